"""`Requests`: which rows a rank needs for its ids, and of whom it asks them. Before anything is sent.

In fixed shapes all tensors depend on the number of ids alone, so that nothing waits for a GPU. Else, for a CPU, where there
is nothing to wait for, they hold the distinct ids alone, which halves the work.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from skewtool.errors import RouteError
from skewtool.parallel.routing.slots import Slots, choose
from skewtool.sharding.chooser import EVERY_SHARD

__all__ = ["Requests", "distinct", "flat_ids"]


def flat_ids(ids: Tensor) -> Tensor:
    """ids of any shape and stride as int64 [n]. Errors: RouteError unless they are int32 or int64."""
    if ids.dtype not in (torch.int32, torch.int64):
        raise RouteError(f"ids must be int32 or int64, got {ids.dtype}")
    return ids.reshape(-1).long()


def distinct(ids: Tensor, fixed_shapes: bool) -> tuple[Tensor, Tensor, Tensor]:
    """ids int64 [n] -> the distinct ones ascending, int64 [u]; which of these count, bool [u]; and the place of each id
    among them, int64 [n]. In fixed shapes u = n, with zeros behind the distinct ids: torch.unique would wait for the
    device to learn how many there are."""
    if not fixed_shapes:
        unique, place = torch.unique(ids, return_inverse=True)
        return unique, torch.ones_like(unique, dtype=torch.bool), place
    n = ids.numel()
    ascending, order = ids.sort(stable=True)
    first = torch.ones_like(ids, dtype=torch.bool)
    first[1:] = ascending[1:] != ascending[:-1]
    index = first.cumsum(0) - 1
    unique = torch.zeros_like(ids).scatter_(0, index, ascending)
    place = torch.empty_like(ids).scatter_(0, order, index)
    return unique, torch.arange(n, device=ids.device) < first.sum(), place


@dataclass(frozen=True, eq=False)
class Requests:
    """What one rank looks up.

    ids      int64 [u]       first those read in place, then by shard asked, then what means nothing
    place    int64 [n]       for each token the place of its row among `ids`
    number   int64 [P + 1]   how many are read in place, then how many are asked of each shard
    shard    int64 [u]       of each of `ids`: -1 read in place, the shard asked, P nothing
    """

    ids: Tensor
    place: Tensor
    number: Tensor
    shard: Tensor

    @classmethod
    def of(cls, ids: Tensor, slots: Slots, ask_once: bool, fixed_shapes: bool) -> "Requests":
        """The requests for ids int64 [n], all in range; once per distinct id, or for every occurrence."""
        unique, counts, place = distinct(ids, fixed_shapes)
        shard = torch.where(slots.row_of[unique] == EVERY_SHARD, -1, choose(unique, slots, counts))
        if ask_once:
            shard = torch.where(counts, shard, slots.num_shards)
        else:
            unique, shard, place = ids, shard[place], torch.arange(ids.numel(), device=ids.device)
        shard, order = shard.sort(stable=True)
        number = torch.zeros(slots.num_shards + 2, dtype=torch.int64, device=ids.device)
        number.scatter_add_(0, shard + 1, torch.ones_like(shard))
        inverse = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=ids.device))
        return cls(unique[order], inverse[place], number[:-1], shard)
