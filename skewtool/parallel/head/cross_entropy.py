"""`vocab_parallel_cross_entropy`: the loss of logits whose columns lie on shards."""

from typing import Any, Literal

import torch
from torch import Tensor

from skewtool.errors import LabelError
from skewtool.parallel.groups import Group
from skewtool.parallel.head.labels import Labels, checked_labels, mean_divisor
from skewtool.parallel.head.objective import REDUCTIONS, Objective, reduced
from skewtool.parallel.head.softmax_statistics import LocalSums, SoftmaxStatistics, own_targets, statistics_of
from skewtool.parallel.home_rows import HomeRows, home_rows_of
from skewtool.sharding import ShardMap

__all__ = ["Reduction", "check_reduction", "vocab_parallel_cross_entropy"]

Reduction = Literal["mean", "sum", "none"]

_BLOCK_ELEMENTS = 2**22
"""Logits widened at a time, so that no second copy of all of them is made."""


def check_reduction(reduction: str) -> None:
    """Errors: LabelError unless it is mean, sum or none."""
    if reduction not in REDUCTIONS:
        raise LabelError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")


def _widened(logits: Tensor) -> Tensor:
    """A copy in at least float32: what is handed in is never overwritten."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)


def _blocks(logits: Tensor) -> list[slice]:
    rows = max(1, _BLOCK_ELEMENTS // max(logits.size(1), 1))
    return [slice(first, first + rows) for first in range(0, logits.size(0), rows)]


def _local_sums(logits: Tensor, targets: tuple[Tensor, Tensor], home: HomeRows, smoothing: bool) -> LocalSums:
    column, here = targets
    parts = [
        LocalSums.reduce_(_widened(logits[rows]), (column[rows], here[rows]), home, smoothing)
        for rows in _blocks(logits) or [slice(0, 0)]
    ]
    return LocalSums(
        torch.cat([part.maximum for part in parts]),
        torch.cat([part.exponentials for part in parts]),
        torch.cat([part.differences for part in parts if part.differences is not None]) if smoothing else None,
        torch.cat([part.target for part in parts]),
    )


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Labels, objective: Objective, home: HomeRows, group: Group) -> Tensor:
        targets = own_targets(labels, home)
        statistics = statistics_of(_local_sums(logits, targets, home, objective.smooths), targets[1], home, group)
        ctx.save_for_backward(logits)
        ctx.state = (statistics, targets, labels, objective, home)
        return objective.loss(statistics, labels)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        (logits,) = ctx.saved_tensors
        statistics, (column, here), labels, objective, home = ctx.state
        upstream = torch.where(labels.counted, gradients[0], 0)
        result = torch.empty_like(logits)
        for rows in _blocks(logits):
            wide = _widened(logits[rows])
            if home.no_class.numel():
                wide.index_fill_(1, home.no_class, -torch.inf)
            shift = torch.where(statistics.maximum == -torch.inf, 0, statistics.maximum)[rows]
            exponentials = wide.sub_(shift[:, None]).exp_()
            here_too = SoftmaxStatistics(
                statistics.maximum[rows], statistics.total[rows], statistics.target[rows], None, torch.ones_like(shift)
            )
            targets = (column[rows], here[rows])
            result[rows] = objective.gradient_(exponentials, here_too, targets, upstream[rows], home)
        return result, None, None, None, None


def vocab_parallel_cross_entropy(
    logits: Tensor,
    labels: Tensor,
    shard_map: ShardMap,
    group: Group = None,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    data_parallel_group: Group = None,
    nan_if_empty: bool = False,
    check_labels: bool = True,
) -> Tensor:
    """Cross-entropy of logits [..., R], this rank's home columns, any floating dtype, for labels int [...], the same
    tokens on every rank. float32 (float64 for float64): a scalar, or [...] for reduction "none".

    Unsharded equivalent::

        F.cross_entropy(whole_logits[:, :real_vocab], labels, ignore_index=..., reduction=..., label_smoothing=...)
        # + z_loss * torch.logsumexp(whole_logits[:, :real_vocab], 1) ** 2 for each label that counts

    Padding ids and empty slots are no classes, whatever their logits. `logits` are never overwritten. The gradient is
    that of a loss of which every rank holds the same value: call backward on every rank, with the same gradient.

    The mean divides by the labels that count. With `data_parallel_group` it divides by those of all its ranks, and each
    rank returns its share: shares add up to the mean, and so do gradients, which must then be summed over that group,
    not averaged. With no label that counts the mean is 0 with zero gradients (NaN with `nan_if_empty`, as torch).

    Collectives over `group`: one all_gather of two integers (the host waits; none with `check_labels=False`), all_reduce
    MAX of N numbers and SUM of 2 N, or 3 N with label smoothing; backward none. Over `data_parallel_group`: one
    all_reduce of one integer.

    Errors: LabelError on every rank for labels that are neither ignored nor in [0, real_vocab).
    """
    check_reduction(reduction)
    home = home_rows_of(shard_map, group, logits.device)
    if logits.size(-1) != shard_map.home_slots or logits.shape[:-1] != labels.shape:
        raise LabelError(
            f"logits must be [*labels.shape, {shard_map.home_slots}], one column per home slot, got {list(logits.shape)} "
            f"for labels {list(labels.shape)}"
        )
    checked = checked_labels(labels, ignore_index, shard_map.real_vocab, group, check_labels)
    objective = Objective(shard_map.real_vocab, label_smoothing, z_loss)
    flat = logits.reshape(-1, logits.size(-1))
    losses: Tensor = _CrossEntropy.apply(flat, checked, objective, home, group)  # type: ignore[no-untyped-call]
    divisor = mean_divisor(checked.counted, data_parallel_group, nan_if_empty) if reduction == "mean" else None
    return losses.reshape(labels.shape) if reduction == "none" else reduced(losses, divisor, reduction)
