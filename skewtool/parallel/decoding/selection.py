"""Weighted selection over shards: at which key the weights of the largest keys add up to a given sum.

Neither keys nor weights leave their shard. 16 ways at a time: each shard tells the weight of its keys from each of 15
candidates on, sums over shards say between which two the key lies, and 4 bits of it are known. Weights are whole numbers,
so sums are exact in any order, and the result is the same on any number of shards.
"""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["Total", "weighted_select"]

Total = Callable[[Tensor], Tensor]
"""The sum over shards of an int64 tensor."""

_BITS = 4


def weighted_select(keys: Tensor, weights: Tensor, needed: Tensor, bits: int, total: Total) -> Tensor:
    """The highest key of each row from which on weights reach what is needed.

    keys int64 [n, C] of `bits` bits, in [-2^(bits-1), 2^(bits-1)), or lower with weight 0; weights int64 [n, C], at least
    0; needed int64 [n], above 0 and the same on every shard -> int64 [n]: the lowest possible key where all weights do
    not suffice. `total` is called bits / 4 times for [n, 15]. Sums of weights over all shards must be below 2^63.
    """
    ordered, by_key = keys.sort(dim=1)
    from_here = weights.gather(1, by_key).flip(1).cumsum(1).flip(1)
    from_here = torch.cat([from_here, from_here.new_zeros(keys.size(0), 1)], dim=1)
    found = torch.full_like(needed, -(2 ** (bits - 1)))
    ways = torch.arange(1, 2**_BITS, device=keys.device)
    for shift in range(bits - _BITS, -1, -_BITS):
        tried = found[:, None] + ways * 2**shift  # wraps where 64 bits are all there are, to what is meant
        reached = total(from_here.gather(1, torch.searchsorted(ordered, tried))) >= needed[:, None]
        found = found + reached.sum(1) * 2**shift
    return found
