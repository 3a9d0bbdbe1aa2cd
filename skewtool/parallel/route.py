"""`Route`: where the lookups of one batch go. Built once per batch from ids alone, used by every table with the same map.

A route can be built ahead for the next batch while the current one computes. It is used by the forward pass, the backward
pass and by any number of tables (embedding and its tied head, several embeddings) with the same map.

    distinct ids of this rank -> a shard for each (the chooser) -> counts to all ranks -> ids exchanged -> local slots

Ids on every shard are read in place and never enter the exchange.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from skewtool.errors import RouteError
from skewtool.parallel.exchange import Counts, exchange, gather_rows
from skewtool.parallel.groups import Group, rank_of, size_of
from skewtool.parallel.slots import Slots, choose, slots_of
from skewtool.sharding import ShardMap
from skewtool.sharding.chooser import EVERY_SHARD

__all__ = ["Route"]


@dataclass(frozen=True, eq=False)
class Route:
    """The way of one batch of ids to their rows and back.

    shape         of the ids
    place         int64 [n]        for each token (flattened) the place of its row among those that arrive: first the rows
                                   read in place, then those of the exchange
    own_slots     int64 [L]        local slots read in place
    asked_slots   int64 [A]        local slots that ranks ask this one for, by rank
    counts        rows that shards send to ranks
    """

    shape: torch.Size
    place: Tensor
    own_slots: Tensor
    asked_slots: Tensor
    counts: Counts

    @classmethod
    def build(
        cls,
        ids: Tensor,
        shard_map: ShardMap,
        group: Group = None,
        *,
        distinct: bool = True,
        shards_per_node: int | None = None,
    ) -> "Route":
        """Routes ids, int32 or int64 of any shape and stride, over a map with one shard per rank of `group`.

        `distinct=False` asks for every occurrence (raw), for comparison. Collectives of the group: one all_gather of
        P + 2 integers per rank, and one all_to_all_single of ids. On a GPU the host waits for the counts, and for the
        numbers of ids with one slot, several and all. All ranks must call it, also with no ids.

        Errors, on every rank alike: RouteError when any rank has an id outside [0, real_vocab), naming rank, id and
        position; and, before any collective, when the map has not one shard per rank or ids are no integers.
        """
        if shard_map.num_shards != size_of(group):
            raise RouteError(
                f"the map has {shard_map.num_shards} shards, but the group {size_of(group)} ranks; there must be one each"
            )
        if ids.dtype not in (torch.int32, torch.int64):
            raise RouteError(f"ids must be int32 or int64, got {ids.dtype}")
        flat = ids.reshape(-1).long()
        slots = slots_of(shard_map, rank_of(group), flat.device, shards_per_node)
        bad = (flat < 0) | (flat >= shard_map.real_vocab)
        looked_up, place, shard = _requests(flat.masked_fill(bad, 0), slots, distinct)
        in_place = slots.row_of[looked_up] == EVERY_SHARD
        by_shard = torch.where(in_place, -1, shard).argsort(stable=True)
        num_own = in_place.sum()
        sent = torch.bincount(shard[~in_place], minlength=slots.num_shards)
        counts, num_own_rows = _agree(sent, num_own, bad, flat, shard_map, group)
        asked_ids = exchange(looked_up[by_shard[num_own_rows:]], counts)
        return cls(
            shape=ids.shape,
            place=_inverse(by_shard)[place],
            own_slots=slots.own_slot[looked_up[by_shard[:num_own_rows]]],
            asked_slots=slots.own_slot[asked_ids],
            counts=counts.reversed,
        )

    def lookup(self, weight: Tensor) -> Tensor:
        """The rows of all ids, [*shape, H], from this rank's weight [S, H]. Differentiable.

        Collectives: one all_to_all_single of rows, and one more in backward.
        """
        rows = torch.cat([weight.index_select(0, self.own_slots), gather_rows(weight, self.asked_slots, self.counts)])
        return rows.index_select(0, self.place).reshape(*self.shape, weight.size(1))


def _inverse(permutation: Tensor) -> Tensor:
    inverse = torch.empty_like(permutation)
    inverse[permutation] = torch.arange(permutation.numel(), device=permutation.device)
    return inverse


def _requests(ids: Tensor, slots: Slots, distinct: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Ids to look up, the place of each token among them, and the shard asked for each."""
    unique, place = torch.unique(ids, return_inverse=True)
    shard = choose(unique, slots)
    if distinct:
        return unique, place, shard
    return ids, torch.arange(ids.numel(), device=ids.device), shard[place]


def _agree(sent: Tensor, num_own: Tensor, bad: Tensor, ids: Tensor, shard_map: ShardMap, group: Group) -> tuple[Counts, int]:
    """Tells all ranks how many rows go where, and whether any has a bad id. Waits for the device."""
    where = torch.where(bad.any(), bad.long().argmax() if bad.numel() else bad.new_zeros((), dtype=torch.int64), -1)
    bad_id = ids[where] if ids.numel() else where
    mine = torch.cat([sent, torch.stack([where, bad_id])])
    everyone = [torch.empty_like(mine) for _ in range(size_of(group))]
    if size_of(group) > 1:
        dist.all_gather(everyone, mine, group=group)
    else:
        everyone = [mine]
    *known, num_own_rows = torch.cat([*everyone, num_own[None]]).tolist()
    table = [known[first : first + mine.numel()] for first in range(0, len(known), mine.numel())]
    for rank, row in enumerate(table):
        if row[-2] >= 0:
            raise RouteError(
                f"rank {rank} has id {row[-1]} at position {row[-2]} (flattened); ids must be at least 0 and below "
                f"{shard_map.real_vocab}"
            )
    return Counts(tuple(tuple(row[:-2]) for row in table), group), num_own_rows
