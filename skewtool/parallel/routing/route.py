"""`Route`: where the lookups of one batch go. Built once per batch from ids alone, used by every table with the same map.

A route can be built ahead for the next batch while the current one computes. It is used by the forward pass, the backward
pass and by any number of tables (embedding and its tied head, several embeddings) with the same map.

    distinct ids of this rank -> a shard for each (the chooser) -> counts to all ranks -> ids exchanged -> local slots

Ids on every shard are read in place and never enter the exchange.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from skewtool.errors import RouteError
from skewtool.parallel.collectives import all_gather
from skewtool.parallel.groups import Group, rank_of, size_of
from skewtool.parallel.routing.exchange import Counts, exchange, exchange_rows
from skewtool.parallel.routing.requests import Requests, flat_ids
from skewtool.parallel.routing.rows import read_rows
from skewtool.parallel.routing.slots import Slots, slots_of
from skewtool.sharding import ShardMap

__all__ = ["Route", "first_bad_id", "refuse_bad_ids", "slots_for"]


@dataclass(frozen=True, eq=False)
class Route:
    """The way of one batch of ids to their rows and back.

    shape         of the ids
    place         int64 [n]        for each token (flattened) the place of its row among those that arrive: first the rows
                                   read in place, then those of the exchange
    slots         int64 [L + A]    local slots that are read: L in place, then A that ranks ask this one for, by rank
    num_in_place  L
    counts        rows that shards send to ranks
    """

    shape: torch.Size
    place: Tensor
    slots: Tensor
    num_in_place: int
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
        P + 2 integers per rank, and one all_to_all of ids. On a GPU the host waits once, for the counts. All ranks must
        call it, also with no ids. See `FixedCapacityRoute` for a way without waiting.

        Errors, on every rank alike: RouteError when any rank has an id outside [0, real_vocab), naming rank, id and
        position; and, before any collective, when the map has not one shard per rank or ids are no integers.
        """
        flat = flat_ids(ids)
        slots = slots_for(shard_map, group, flat.device, shards_per_node)
        bad = (flat < 0) | (flat >= shard_map.real_vocab)
        requests = Requests.of(flat.masked_fill(bad, 0), slots, distinct, fixed_shapes=flat.device.type != "cpu")
        mine = torch.cat([requests.number[1:], first_bad_id(flat, bad)])
        everyone = torch.cat([all_gather(mine, group, "counts").reshape(-1), requests.number[:1]]).tolist()  # the one wait
        *table, num_in_place = everyone
        by_rank = [table[first : first + mine.numel()] for first in range(0, len(table), mine.numel())]
        refuse_bad_ids([row[-2:] for row in by_rank], shard_map.real_vocab)
        counts = Counts(tuple(tuple(row[:-2]) for row in by_rank), group)
        asked = exchange(requests.ids[num_in_place : num_in_place + sum(counts.sent)], counts, "ids")
        return cls(
            shape=ids.shape,
            place=requests.place,
            slots=slots.own_slot[torch.cat([requests.ids[:num_in_place], asked])],
            num_in_place=num_in_place,
            counts=counts.reversed,
        )

    def lookup(self, weight: Tensor) -> Tensor:
        """The rows of all ids, [*shape, H], from this rank's weight [S, H]. Differentiable.

        Collectives: one all_to_all of rows, and one of gradients in backward.
        """
        read = read_rows(weight, self.slots)
        in_place, asked = torch.split(read, [self.num_in_place, self.slots.numel() - self.num_in_place])
        rows = torch.cat([in_place, exchange_rows(asked, self.counts)])
        return read_rows(rows, self.place).reshape(*self.shape, weight.size(1))


def slots_for(shard_map: ShardMap, group: Group, device: torch.device, shards_per_node: int | None = None) -> Slots:
    """The slots as this rank sees them. Errors: RouteError where the map has not one shard per rank."""
    if shard_map.num_shards != size_of(group):
        raise RouteError(
            f"the map has {shard_map.num_shards} shards, but the group {size_of(group)} ranks; there must be one each"
        )
    return slots_of(shard_map, rank_of(group), device, shards_per_node)


def first_bad_id(ids: Tensor, bad: Tensor) -> Tensor:
    """Position and id of the first bad one among ids int64 [n], int64 [2]; position -1 where none is."""
    if not ids.numel():
        return ids.new_tensor([-1, 0])
    position = bad.long().argmax(dim=0, keepdim=True)
    return torch.cat([torch.where(bad.any(), position, -1), ids.gather(0, position)])  # `ids[position]` would wait


def refuse_bad_ids(by_rank: list[list[int]], real_vocab: int) -> None:
    """Errors: RouteError for the first rank whose `first_bad_id` has a position."""
    for rank, (position, token) in enumerate(by_rank):
        if position >= 0:
            raise RouteError(
                f"rank {rank} has id {token} at position {position} (flattened); ids must be at least 0 and below "
                f"{real_vocab}"
            )
