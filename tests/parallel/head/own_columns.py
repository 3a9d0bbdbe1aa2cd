"""Logits as they lie on ranks, and the comparison of their loss with that of whole logits."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from skewtool.parallel.head import vocab_parallel_cross_entropy
from skewtool.parallel.home_rows import home_rows_of
from skewtool.sharding import ShardMap
from tests.parallel.comparing import assert_equal, backward

__all__ = ["check", "own_columns"]


def own_columns(logits: Tensor, shard_map: ShardMap, padding: float = 0.0) -> Tensor:
    """From logits [..., V] by id those of this rank's home slots; `padding` where there is no class."""
    home = home_rows_of(shard_map, None, logits.device)
    own = logits[..., home.ids.clamp(min=0)].clone()
    own[..., home.no_class] = padding
    return own.requires_grad_()


def check(logits: Tensor, labels: Tensor, shard_map: ShardMap, what: str, tolerance: float = 1e-10, **options: Any) -> None:
    """Loss and local gradient against `F.cross_entropy` of logits [N, V] in float64."""
    whole = logits[:, : shard_map.real_vocab].clone().requires_grad_()
    expected = F.cross_entropy(whole, labels, **options)
    backward(expected.sum())
    assert whole.grad is not None
    own = own_columns(logits, shard_map, padding=100.0)
    loss = vocab_parallel_cross_entropy(own, labels, shard_map, **options)
    backward(loss.sum())
    assert own.grad is not None
    assert torch.isfinite(loss).all(), what
    assert_equal(loss.detach(), expected.detach(), f"loss, {what}", tolerance)
    home = home_rows_of(shard_map, None, logits.device)
    assert_equal(own.grad[:, home.is_class], whole.grad[:, home.ids[home.is_class]], f"gradient, {what}", tolerance)
    assert not own.grad[:, home.no_class].any(), what
