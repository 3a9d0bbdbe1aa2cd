"""Tokens split over ranks: whose they are, and all of them in one place."""

from typing import Any

import torch
from torch import Tensor

from skewtool.parallel.collectives import all_gather
from skewtool.parallel.differentiable import gather_parts
from skewtool.parallel.groups import Group

__all__ = ["gather_tokens", "own_tokens"]


def own_tokens(num_tokens: int, rank: int, num_ranks: int) -> range:
    """The tokens of a rank where N are split in parts of ceil(N / P), the last ranks fewer or none."""
    most = -(-num_tokens // num_ranks)
    return range(min(rank * most, num_tokens), min((rank + 1) * most, num_tokens))


def gather_tokens(values: Tensor, group: Group = None, *, wide: bool = False) -> Tensor:
    """values [n, ...], n different on each rank -> [N, ...], all tokens by rank. Differentiable.

    Gradients are taken to be partial, as those of hidden states before a vocabulary-parallel head. `wide`: the result is
    in at least float32, so that they are not rounded before they are summed. Collectives: one
    all_gather of one integer, one of values padded to the largest n; backward one reduce_scatter of these. On a GPU the
    host waits for the counts.
    """
    numbers: list[int] = all_gather(torch.tensor([values.size(0)], device=values.device), group, "counts").flatten().tolist()
    padding: list[Any] = [0, 0] * (values.dim() - 1) + [0, max(numbers) - values.size(0)]
    parts = gather_parts(torch.nn.functional.pad(values, padding), group, same_use=False, wide=wide)
    return torch.cat([part[:number] for part, number in zip(parts, numbers, strict=True)])
