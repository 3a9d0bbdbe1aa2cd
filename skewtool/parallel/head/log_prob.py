"""`log_prob` and `entropy` of logits whose columns lie on shards."""

from typing import Any

import torch
from torch import Tensor

from skewtool.parallel.collectives import all_reduce
from skewtool.parallel.groups import Group
from skewtool.parallel.head.cross_entropy import vocab_parallel_cross_entropy
from skewtool.parallel.head.labels import Labels
from skewtool.parallel.head.softmax_statistics import LocalSums, own_targets, statistics_of
from skewtool.parallel.home_rows import HomeRows, home_rows_of
from skewtool.sharding import ShardMap

__all__ = ["entropy", "log_prob"]


def log_prob(
    logits: Tensor, ids: Tensor, shard_map: ShardMap, group: Group = None, *, ignore_index: int = -100
) -> Tensor:
    """log p(id) for logits [..., R], this rank's home columns, and ids int [...]: at least float32 [...]. Differentiable.

    0 where an id is `ignore_index`. Unsharded equivalent:
    ``torch.log_softmax(whole_logits, -1).gather(-1, ids[..., None]).squeeze(-1)``. Collectives and errors as
    `vocab_parallel_cross_entropy`, whose negative per-token loss it is.
    """
    return -vocab_parallel_cross_entropy(logits, ids, shard_map, group, ignore_index=ignore_index, reduction="none")


class _Entropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, home: HomeRows, group: Group) -> Tensor:
        wide = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
        nothing = torch.zeros(logits.size(0), dtype=torch.int64, device=logits.device)
        targets = own_targets(Labels(nothing, nothing > 0), home)
        statistics = statistics_of(LocalSums.reduce_(wide, targets, home, False), targets[1], home, group)
        probability = wide.mul_((statistics.local_scale / statistics.total)[:, None])
        shifted = logits.to(wide.dtype) - (statistics.maximum + statistics.log_total)[:, None]
        information = torch.where(probability > 0, probability * shifted, probability)  # 0 log 0 = 0, and NaN stays
        result = -all_reduce(information.sum(dim=1), group, "statistics")
        ctx.save_for_backward(probability, shifted, result)
        ctx.dtype = logits.dtype
        return result

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        probability, shifted, result = ctx.saved_tensors
        by_class = torch.where(probability > 0, shifted + result[:, None], 0)
        return (-gradients[0][:, None] * probability * by_class).to(ctx.dtype), None, None


def entropy(logits: Tensor, shard_map: ShardMap, group: Group = None) -> Tensor:
    """-sum of p log p over all classes for logits [..., R], this rank's home columns: at least float32 [...].

    Unsharded equivalent: ``torch.distributions.Categorical(logits=whole_logits).entropy()``. Differentiable; keeps two
    buffers of the logits' size. Collectives: all_reduce MAX of N numbers, SUM of 2 N and SUM of N; backward none.
    """
    home = home_rows_of(shard_map, group, logits.device)
    flat = logits.reshape(-1, logits.size(-1))
    return _Entropy.apply(flat, home, group).reshape(logits.shape[:-1])  # type: ignore[no-any-return,no-untyped-call]
