"""`FixedCapacityRoute`: a route whose exchanges have the same shapes for every batch, so that nothing waits for the host.

Each rank sends each shard room for `capacity` ids, filled or not. Nothing depends on what the ids are, so building and
looking up can run ahead of the host, and be captured in a CUDA graph. What does not fit overflows into a second, exact
exchange; no lookup is ever dropped. With a balanced map a capacity little above the mean suffices, which is what makes
this affordable: see `skewtool.skew.route_capacity`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from skewtool.errors import RouteError
from skewtool.parallel.collectives import all_gather, all_to_all
from skewtool.parallel.differentiable import exchange_equal_parts
from skewtool.parallel.groups import Group
from skewtool.parallel.routing.requests import Requests, flat_ids
from skewtool.parallel.routing.route import Route, first_bad_id, refuse_bad_ids, slots_for
from skewtool.parallel.routing.rows import read_rows
from skewtool.sharding import ShardMap

__all__ = ["FixedCapacityRoute"]


@dataclass(frozen=True, eq=False)
class FixedCapacityRoute:
    """The way of one batch, padded to fixed shapes.

    ids         int64 of any shape
    place       int64 [n]       for each token the place of its row: in the P * capacity rows that arrive, or behind them
                                in the n that are read in place
    here        bool [n]        false for tokens whose id overflowed
    asked       int64 [P C]     local slots that ranks ask this one for, by rank
    is_asked    bool [P C]      false where there is room but no request
    own         int64 [n]       local slots read in place
    health      int64 [P, 3]    of each rank: position and value of its first bad id, and the number of overflowed ids
    """

    ids: Tensor
    place: Tensor
    here: Tensor
    asked: Tensor
    is_asked: Tensor
    own: Tensor
    health: Tensor
    shard_map: ShardMap
    group: Group

    @classmethod
    def build(cls, ids: Tensor, shard_map: ShardMap, group: Group = None, *, capacity: int) -> "FixedCapacityRoute":
        """Routes ids, int32 or int64 of any shape, as `Route.build`, with room for `capacity` requests of each rank to
        each shard. Collectives: one all_to_all of P * capacity ids, one all_gather of 3 integers. The host waits for
        nothing.

        Errors: RouteError at once for what `Route.build` refuses before its collectives; for ids out of range from
        `lookup` or `check`, on every rank.
        """
        if capacity < 1:
            raise RouteError(f"capacity must be at least 1 row, got {capacity}")
        flat = flat_ids(ids)
        slots = slots_for(shard_map, group, flat.device)
        bad = (flat < 0) | (flat >= shard_map.real_vocab)
        requests = Requests.of(flat.masked_fill(bad, 0), slots, ask_once=True, fixed_shapes=True)
        num_shards, device = shard_map.num_shards, flat.device
        start = requests.number.cumsum(0) - requests.number  # of what is read in place, then of each shard's
        number = torch.arange(flat.numel(), device=device)
        index = number - start[requests.shard.clamp(max=num_shards - 1) + 1]
        in_place, nothing = requests.shard < 0, requests.shard == num_shards
        fits = (index < capacity) & ~in_place & ~nothing
        room = torch.where(fits, requests.shard * capacity + index, num_shards * capacity)
        sent = torch.full((num_shards * capacity + 1,), -1, device=device).scatter_(0, room, requests.ids)[:-1]
        asked = all_to_all(sent, group, "ids")
        overflow = (~(fits | in_place | nothing)).sum()
        own = torch.where(in_place, number + num_shards * capacity, room)
        return cls(
            ids=ids,
            place=own[requests.place].clamp(max=max(num_shards * capacity + number.numel() - 1, 0)),
            here=(fits | in_place)[requests.place],
            asked=slots.own_slot[asked.clamp(min=0)].clamp(min=0),
            is_asked=asked >= 0,
            own=slots.own_slot[requests.ids].clamp(min=0),
            health=all_gather(torch.cat([first_bad_id(flat, bad), overflow[None]]), group, "counts"),
            shard_map=shard_map,
            group=group,
        )

    def lookup_what_fits(self, weight: Tensor) -> Tensor:
        """Rows of all ids, [*shape, H], from this rank's weight [S, H]; zeros for ids that overflowed. Differentiable.

        Collectives: one all_to_all of P * capacity rows, and one of gradients in backward. The host waits for nothing,
        so a CUDA graph can hold it; `lookup` adds what is missing.
        """
        rows = read_rows(weight, torch.cat([self.asked, self.own]))
        asked, own = torch.split(rows, [self.asked.numel(), self.own.numel()])
        asked = torch.where(self.is_asked[:, None], asked, 0)
        arrived = torch.cat([exchange_equal_parts(asked, self.group), own])
        found = torch.where(self.here[:, None], read_rows(arrived, self.place), 0)
        return found.reshape(*self.ids.shape, weight.size(1))

    def overflow(self) -> int:
        """Ids that did not fit, over all ranks. Waits for `build`, no longer. Errors: RouteError for ids out of range."""
        health = self.health.tolist()
        refuse_bad_ids([row[:2] for row in health], self.shard_map.real_vocab)
        return sum(row[2] for row in health)

    def lookup(self, weight: Tensor) -> Tensor:
        """Rows of all ids, [*shape, H], exact. Where any rank overflowed, which all know without a further collective,
        one more exact exchange (`Route.build` and `Route.lookup`) brings the rest.

        Errors: RouteError for ids out of range, on every rank.
        """
        found = self.lookup_what_fits(weight)
        if not self.overflow():
            return found
        missing = (~self.here).nonzero().squeeze(1)
        route = Route.build(self.ids.reshape(-1)[missing], self.shard_map, self.group)
        flat = found.reshape(-1, weight.size(1))
        return flat.index_copy(0, missing, route.lookup(weight)).reshape(found.shape)
