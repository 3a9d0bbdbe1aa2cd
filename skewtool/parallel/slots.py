"""Where ids live, as tensors on one device, and the chooser by the rule of `skewtool.sharding.chooser`.

The rule is the planner's to the last tie, so what was predicted is what runs; here it is a few vector operations per
group of ids.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from skewtool.sharding import ShardMap, SlotTable
from skewtool.sharding.chooser import EVERY_SHARD, GROUPS, ONE_SLOT, PASSES

__all__ = ["Slots", "choose", "slots_of"]


@dataclass(frozen=True, eq=False)
class Slots:
    """A map as one rank sees it.

    shard_of  int64 [V]      the home of each id
    row_of    int64 [V]      its row in `shards`, ONE_SLOT or EVERY_SHARD
    shards    int64 [F, C]   the shards that hold an id, ascending, -1 behind the last
    own_slot  int64 [V]      the slot of each id on this rank's shard, -1 where it has none
    """

    shard_of: Tensor
    row_of: Tensor
    shards: Tensor
    own_slot: Tensor
    rank: int
    num_shards: int
    shards_per_node: int


@lru_cache(maxsize=16)
def slots_of(shard_map: ShardMap, rank: int, device: torch.device, shards_per_node: int | None = None) -> Slots:
    """The tensors of a map for `rank`, made once per map, rank and device."""
    table = SlotTable.of(shard_map, shards_per_node)
    held = torch.tensor(shard_map.token_at[rank], dtype=torch.int64)
    own_slot = torch.full((shard_map.vocab_size,), -1)
    own_slot[held[held >= 0]] = (held >= 0).nonzero().squeeze(1)
    shard_of, row_of, shards = (
        torch.tensor(array, dtype=torch.int64, device=device) for array in (table.shard_of, table.row_of, table.shards)
    )
    return Slots(shard_of, row_of, shards, own_slot.to(device), rank, table.num_shards, table.shards_per_node)


def choose(ids: Tensor, slots: Slots) -> Tensor:
    """The shard that this rank asks for each of its distinct ascending ids, int64 [n]: int64 [n].

    Ids on every shard give the rank itself. No collectives.
    """
    row = slots.row_of[ids]
    chosen = torch.where(row == EVERY_SHARD, slots.rank, slots.shard_of[ids])
    several = (row >= 0).nonzero().squeeze(1)
    if not several.numel():
        return chosen
    requests = torch.bincount(chosen[row == ONE_SLOT], minlength=slots.num_shards)
    holders = slots.shards[row[several]]
    tie = _tie_break(holders, slots, ids.numel())
    current = torch.full_like(several, -1)
    group = -(-several.numel() // GROUPS)
    for _ in range(PASSES):
        for first in range(0, several.numel(), group):
            here = slice(first, first + group)
            candidates, before = holders[here], current[here]
            load = requests[candidates.clamp(min=0)] - (candidates == before[:, None]).long()
            picked = candidates.gather(1, (load * slots.num_shards + tie[here]).argmin(dim=1, keepdim=True)).squeeze(1)
            requests += torch.bincount(picked, minlength=slots.num_shards)
            requests -= torch.bincount(before[before >= 0], minlength=slots.num_shards)
            current[here] = picked
    chosen[several] = current
    return chosen


def _tie_break(holders: Tensor, slots: Slots, num_ids: int) -> Tensor:
    """What a slot costs beside the requests of its shard: its distance after this rank, and being on another node."""
    far = (num_ids + 2) * slots.num_shards
    distance = (holders - slots.rank) % slots.num_shards
    away = holders // slots.shards_per_node != slots.rank // slots.shards_per_node
    cost = distance + away * far
    return torch.where(holders < 0, torch.iinfo(torch.int64).max // 2, cost)
