"""Copies by average load alone, for when no windows are known: each copy of an id takes an equal share of its load.

The rule of expert-parallel load balancers (deepseek-ai/EPLB): the next copy goes to the id whose slots carry most each.
Then ids are placed by falling load per slot, home and copies on the least loaded shards that have room and do not hold
the id. Small tables are refined from several starts: copies are given, taken and moved one by one as long as the load of
the busiest shard falls; that finds splits the rule does not see, as giving a middling id two slots so that it fits
beside a hot one.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.compiled import compiled
from skewtool.sharding.balance import sift_down

__all__ = ["copies_by_load"]

_SMALL = 1024
"""Ids times shards up to which copies are refined."""


def _number_slots(loads: npt.NDArray[np.int64], total_copies: int, num_shards: int) -> npt.NDArray[np.int64]:
    """Slots per id, int64 [V]: up to `total_copies` more than one each, at most one per shard. Ties: the lower id.

    Bisects the load per slot above which ids get further slots, then gives what is left to those with most per slot.
    """

    def slots_for(most: float) -> npt.NDArray[np.int64]:
        wanted = np.ceil(loads / most) if most > 0 else np.where(loads > 0, num_shards, 1)
        return np.clip(wanted, 1, num_shards).astype(np.int64)

    low, high = 0.0, float(loads.max())
    for _ in range(64):
        middle = (low + high) / 2
        if int((slots_for(middle) - 1).sum()) > total_copies:
            low = middle
        else:
            high = middle
    slots = slots_for(high) if high > 0 else np.ones(loads.size, np.int64)
    while (left := total_copies - int((slots - 1).sum())) > 0:
        able = np.flatnonzero((slots < num_shards) & (loads > 0))
        if not able.size:
            break
        most_per_slot = able[np.argsort(-(loads[able] / slots[able]), kind="stable")]
        slots[most_per_slot[:left]] += 1
    return slots


@compiled
def _place(
    loads: Any, slots: Any, order: Any, scanned: Any, num_shards: Any, extra_rows: Any, shard_of: Any, copies: Any
) -> Any:
    """Fills the homes shard_of [V] and copies [P, E] (-1 where empty); returns the busiest load and the sum of squares.

    The first `scanned` ids of `order` look at all shards for each slot, the others have one slot and take a heap's least.
    """
    fewest, one_more = loads.size // num_shards, loads.size % num_shards
    load = np.zeros(num_shards, np.float64)
    rows, used = np.zeros(num_shards, np.int64), np.zeros(num_shards, np.int64)
    holds = np.full(num_shards, -1, np.int64)
    copies[:] = -1
    for token in order[:scanned]:
        share = loads[token] / slots[token]
        for slot in range(slots[token]):
            best = -1
            for shard in range(num_shards):
                if slot == 0:
                    room = rows[shard] < fewest or (rows[shard] == fewest and one_more > 0)
                else:
                    room = used[shard] < extra_rows and holds[shard] != token
                if room and (best < 0 or load[shard] < load[best]):
                    best = shard
            if best < 0:  # the copies' room is used up, or only on shards that hold the id: the home serves the rest
                load[shard_of[token]] += share * (slots[token] - slot)
                break
            if slot == 0:
                one_more -= rows[best] == fewest
                rows[best] += 1
                shard_of[token] = best
            else:
                copies[best, used[best]] = token
                used[best] += 1
            holds[best] = token
            load[best] += share
    heap = np.argsort(load, kind="mergesort")
    size = num_shards
    for token in order[scanned:]:
        while rows[heap[0]] > fewest or (rows[heap[0]] == fewest and one_more == 0):
            size -= 1
            heap[0] = heap[size]
            sift_down(heap, size, load)
        shard_of[token] = heap[0]
        one_more -= rows[heap[0]] == fewest
        rows[heap[0]] += 1
        load[heap[0]] += loads[token]
        sift_down(heap, size, load)
    return load.max(), (load * load).sum()


def copies_by_load(loads: npt.NDArray[np.int64], num_shards: int, extra_rows: int) -> tuple[Any, Any]:
    """Homes int32 [V] and copies int32 [P, E] (-1 where empty) for loads int64 [V]; equal rows, one slot per shard."""
    table = _Table(loads, num_shards, extra_rows)
    slots = _number_slots(loads, num_shards * extra_rows, num_shards)
    if table.small:
        starts = [slots, *table.starts()]
        slots = min((table.refined(start) for start in starts), key=table.unevenness)
    table.unevenness(slots)
    return table.shard_of, table.copies


class _Table:
    """Places given numbers of slots, and refines them for small tables."""

    def __init__(self, loads: npt.NDArray[np.int64], num_shards: int, extra_rows: int) -> None:
        self.loads, self.num_shards, self.extra_rows = loads, num_shards, extra_rows
        self.small = loads.size * num_shards <= _SMALL
        self.shard_of = np.empty(loads.size, np.int32)
        self.copies = np.empty((num_shards, extra_rows), np.int32)

    def unevenness(self, slots: npt.NDArray[np.int64]) -> tuple[float, float]:
        """Places the ids; the busiest shard's load, then the sum of squares."""
        # In a small table the order is strictly by load per slot; a large one has its few ids with copies first.
        single = (slots == 1) & (not self.small)
        order = np.lexsort((-(self.loads / slots), single))
        busiest, squares = _place(
            self.loads, slots, order, int((~single).sum()), self.num_shards, self.extra_rows, self.shard_of, self.copies
        )  # fmt: skip
        return float(busiest), float(squares)

    def starts(self) -> list[npt.NDArray[np.int64]]:
        """As few slots as keep each below 1.0, 1.1, … 2.0 times the mean load of a shard, where the budget allows."""
        mean = max(float(self.loads.sum()) / self.num_shards, 1e-9)
        tried = [
            np.clip(np.ceil(self.loads / (mean * tenths / 10)), 1, self.num_shards).astype(np.int64)
            for tenths in range(10, 21)
        ]
        return [slots for slots in tried if (slots - 1).sum() <= self.num_shards * self.extra_rows]

    def refined(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Gives, takes or moves single copies while that lowers the unevenness; the best change each time."""
        found = self.unevenness(slots)
        while True:
            changed = min(self._changes(slots), key=self.unevenness, default=slots)
            least = self.unevenness(changed)
            if least >= found:
                return slots
            found, slots = least, changed

    def _changes(self, slots: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
        givers = [-1, *np.flatnonzero(slots > 1)]
        takers = [-1, *np.flatnonzero((slots < self.num_shards) & (self.loads > 0))]
        for giver in givers:
            for taker in takers:
                changed = slots.copy()
                if giver >= 0:
                    changed[giver] -= 1
                if taker >= 0:
                    changed[taker] += 1
                if giver != taker and (changed - 1).sum() <= self.num_shards * self.extra_rows:
                    yield changed
