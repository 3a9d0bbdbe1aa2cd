"""The balanced partition: equal rows per shard (within one), load as even as can be.

First the greedy rule of Graham (1969), longest processing time first, under row limits: ids by falling load (ties: lower
id), each to the shard with the least load (ties: lower shard) that still has a row free. Then exchanges: the busiest
shard swaps a row with another shard, or hands one over where row counts allow, as long as the larger of the two loads
falls; each time the exchange that brings the two closest together. Everything is integer arithmetic in a fixed order,
so the result is the same on every machine.

Where sampled windows are known the first phase also keeps ids apart that burst together (see `bursts`); the exchanges
then touch few of them. Small tables that exchanges leave above the bound are searched (see `exact`).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.compiled import compiled
from skewtool.sharding.bounds import lower_bound
from skewtool.sharding.bursts import Bursts, deal_apart
from skewtool.sharding.exact import SMALL_IDS, searched_homes

__all__ = ["balanced_homes", "best_exchange", "insert_row", "remove_row", "sift_down"]


@compiled
def sift_down(heap: Any, size: Any, load: Any) -> None:
    """Restores the order by (load, shard) after the root of the binary heap changed."""
    parent = 0
    shard = heap[0]
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            load[heap[right]] < load[heap[child]] or (load[heap[right]] == load[heap[child]] and heap[right] < heap[child])
        ):
            child = right
        other = heap[child]
        if load[other] > load[shard] or (load[other] == load[shard] and other > shard):
            break
        heap[parent] = other
        parent = child
    heap[parent] = shard


@compiled
def _deal(loads: Any, order: Any, num_shards: Any, members: Any, rows: Any, load: Any) -> None:
    """Greedy under row limits. Fills `members` [P, R] by falling load, `rows` [P] and `load` [P]."""
    fewest, one_more = order.size // num_shards, order.size % num_shards  # `one_more` shards take a row beyond `fewest`
    heap = np.arange(num_shards)
    size = num_shards
    for token in order:
        while rows[heap[0]] > fewest or (rows[heap[0]] == fewest and one_more == 0):
            size -= 1
            heap[0] = heap[size]
            sift_down(heap, size, load)
        shard = heap[0]
        members[shard, rows[shard]] = token
        rows[shard] += 1
        load[shard] += loads[token]
        one_more -= rows[shard] > fewest
        sift_down(heap, size, load)


@compiled
def best_exchange(loads: Any, high: Any, low: Any, difference: Any, may_hand_over: Any) -> Any:
    """Places (i in `high`, j in `low`, gained) of the exchange that brings two shards closest; gained = 0 if none helps.

    Both are sorted by falling load. An exchange changes the difference from d to |d - 2 delta|; only 0 < delta < d helps.
    j = low.size means that `high` hands over its row without getting one.
    """
    best_i, best_j, best_left = -1, -1, difference
    j = 0
    for i in range(high.size):
        mine = loads[high[i]]
        # The largest theirs with delta = mine - theirs >= d / 2 is at j, the next smaller delta is at j - 1.
        while j < low.size and 2 * (mine - loads[low[j]]) < difference:
            j += 1
        for candidate in (j - 1, j):
            if 0 <= candidate < low.size:
                delta = mine - loads[low[candidate]]
                left = abs(difference - 2 * delta)
                if 0 < delta < difference and left < best_left:
                    best_i, best_j, best_left = i, candidate, left
        if may_hand_over and 0 < mine < difference and abs(difference - 2 * mine) < best_left:
            best_i, best_j, best_left = i, low.size, abs(difference - 2 * mine)
    return best_i, best_j, difference - best_left


@compiled
def insert_row(loads: Any, row: Any, size: Any, token: Any) -> None:
    """Puts `token` into the first `size` places of `row`, sorted by falling load, then id."""
    place = size
    while place > 0 and (
        loads[row[place - 1]] < loads[token] or (loads[row[place - 1]] == loads[token] and row[place - 1] > token)
    ):
        row[place] = row[place - 1]
        place -= 1
    row[place] = token


@compiled
def remove_row(row: Any, size: Any, place: Any) -> None:
    """Takes out the row at `place` of the first `size` and closes the gap."""
    for i in range(place, size - 1):
        row[i] = row[i + 1]


@compiled
def _exchange(loads: Any, members: Any, rows: Any, load: Any, target: Any) -> None:
    """Improves the busiest shard against the others, least loaded first, until it is at `target` or nothing helps."""
    while True:
        high = np.argmax(load)
        if load[high] <= target:
            return
        improved = False
        for low in np.argsort(load, kind="mergesort"):
            difference = load[high] - load[low]
            if difference <= 1:
                break
            i, j, gained = best_exchange(
                loads, members[high, : rows[high]], members[low, : rows[low]], difference, rows[high] > rows[low]
            )
            if gained > 0:
                given = members[high, i]
                remove_row(members[high], rows[high], i)
                rows[high] -= 1
                if j < rows[low]:
                    taken = members[low, j]
                    remove_row(members[low], rows[low], j)
                    rows[low] -= 1
                    insert_row(loads, members[high], rows[high], taken)
                    rows[high] += 1
                    load[high] += loads[taken]
                    load[low] -= loads[taken]
                insert_row(loads, members[low], rows[low], given)
                rows[low] += 1
                load[high] -= loads[given]
                load[low] += loads[given]
                improved = True
                break
        if not improved:
            return


def balanced_homes(
    loads: npt.NDArray[np.int64],
    num_shards: int,
    bursts: Bursts | None = None,
    among: npt.NDArray[np.int64] | None = None,
) -> npt.NDArray[np.int32]:
    """The shard of each id: int32 [V], for loads int64 [V] whose sum fits 62 bits.

    Only the ids `among` (ascending, default all) are dealt; the others get -1.

    Takes O(V log V) plus O(V / P) per exchange; P x V/P ids are held twice.
    """
    among = np.arange(loads.size) if among is None else among
    order = among[np.argsort(-loads[among], kind="stable")]
    members = np.full((num_shards, -(-order.size // num_shards)), -1, np.int64)
    rows, load = np.zeros(num_shards, np.int64), np.zeros(num_shards, np.int64)
    if bursts is None:
        _deal(loads, order, num_shards, members, rows, load)
    else:
        deal_apart(
            loads, order, num_shards, bursts.bounds, bursts.window, bursts.num_sampled, bursts.num_windows,
            bursts.average_weight, members, rows, load,
        )  # fmt: skip
    _exchange(loads, members, rows, load, -(-int(loads[among].sum()) // num_shards))
    shard_of = np.full(loads.size, -1, np.int32)
    if order.size <= SMALL_IDS:
        bound = lower_bound(loads[among], num_shards)
        better = searched_homes(loads[order], num_shards, bound, int(load.max(initial=0)))
        if better is not None:
            shard_of[order] = better
            return shard_of
    full = np.arange(members.shape[1])[None, :] < rows[:, None]
    shards, slots = np.nonzero(full)
    shard_of[members[shards, slots]] = shards
    return shard_of
