"""Where ids live, as tensors on one device, and the chooser by the rule of `skewtool.sharding.chooser`.

The rule is the planner's to the last tie, so what was predicted is what runs. On the CPU it is the planner's own compiled
loop; on a GPU a few vector operations per group of ids, of fixed shapes, for which the host never waits.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from skewtool.sharding import ShardMap, SlotTable, choose_slots
from skewtool.sharding.chooser import EVERY_SHARD, GROUPS, ONE_SLOT, PASSES

__all__ = ["Slots", "choose", "slots_of"]


@dataclass(frozen=True, eq=False)
class Slots:
    """A map as one rank sees it.

    shard_of  int64 [V]      the home of each id
    row_of    int64 [V]      its row in `shards`, ONE_SLOT or EVERY_SHARD
    shards    int64 [F, C]   the shards that hold an id, ascending, -1 behind the last
    own_slot  int64 [V]      the slot of each id on this rank's shard, -1 where it has none
    table                    the planner's form of the first three
    """

    shard_of: Tensor
    row_of: Tensor
    shards: Tensor
    own_slot: Tensor
    table: SlotTable
    rank: int

    @property
    def num_shards(self) -> int:
        return self.table.num_shards


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
    return Slots(shard_of, row_of, shards, own_slot.to(device), table, rank)


def choose(ids: Tensor, slots: Slots, valid: Tensor | None = None) -> Tensor:
    """The shard that this rank asks for each of its distinct ascending ids, int64 [n]: int64 [n].

    `valid`: bool [n], true for the ids that count, which come first; what is said of the others means nothing. Ids on
    every shard give the rank itself. No collectives.
    """
    if not slots.shards.numel():  # no id leaves a choice
        return torch.where(slots.row_of[ids] == EVERY_SHARD, slots.rank, slots.shard_of[ids])
    valid = torch.ones_like(ids, dtype=torch.bool) if valid is None else valid
    if ids.device.type != "cpu":
        return _choose(ids, slots, valid)
    number = int(valid.sum())
    chosen = torch.zeros_like(ids)
    chosen[:number] = torch.from_numpy(choose_slots(ids[:number].numpy(), slots.rank, slots.table))
    return chosen


def _choose(ids: Tensor, slots: Slots, valid: Tensor) -> Tensor:
    """`choose` as vector operations of shapes that do not depend on the ids. Row n of each table is for what is left out."""
    n, num_shards = ids.numel(), slots.num_shards
    row = slots.row_of[ids]
    chosen = torch.where(row == EVERY_SHARD, slots.rank, slots.shard_of[ids])
    if not n:
        return chosen
    several = (row >= 0) & valid
    requests = torch.zeros(num_shards, dtype=torch.int64, device=ids.device)
    requests.scatter_add_(0, chosen, ((row == ONE_SLOT) & valid).long())
    number = several.sum()
    group = (number + GROUPS - 1) // GROUPS
    order = (~several).long().argsort(stable=True)  # those with several slots first, ascending
    holders = slots.shards[row[torch.cat([order, order[:1]])].clamp(min=0)]
    tie = _tie_break(holders, slots, n)
    current = torch.full((n + 1,), -1, device=ids.device)
    within = torch.arange(-(-n // GROUPS), device=ids.device)
    for _ in range(PASSES):
        for each in range(min(GROUPS, n)):
            counts = (within < group) & (each * group + within < number)
            here = torch.where(counts, each * group + within, n)
            candidates, before = holders[here], current[here]
            load = requests[candidates.clamp(min=0)] - (candidates == before[:, None]).long()
            picked = candidates.gather(1, (load * num_shards + tie[here]).argmin(dim=1, keepdim=True)).squeeze(1)
            requests.scatter_add_(0, picked, counts.long())
            requests.scatter_add_(0, before.clamp(min=0), -(counts & (before >= 0)).long())
            current[here] = picked
    result = torch.cat([chosen, chosen[:1]])
    result[torch.where(torch.arange(n, device=ids.device) < number, order, n)] = current[:n]
    return result[:n]


def _tie_break(holders: Tensor, slots: Slots, num_ids: int) -> Tensor:
    """What a slot costs beside the requests of its shard: its distance after this rank, and being on another node."""
    shards_per_node = slots.table.shards_per_node
    far = (num_ids + 2) * slots.num_shards
    distance = (holders - slots.rank) % slots.num_shards
    away = holders // shards_per_node != slots.rank // shards_per_node
    return torch.where(holders < 0, torch.iinfo(torch.int64).max // 2, distance + away * far)
