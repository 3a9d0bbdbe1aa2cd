"""Exchanges between shards that even out load for as few moved rows as they can.

The busiest shard exchanges a row with another shard, or hands one over where row counts allow. What that costs is the
change in the number of ids away from their old shard: a row that leaves home costs 1, one that was away already (or is
new) costs nothing, and one that comes home gives 1 back. So rows that had to move anyway are exchanged freely.

Each time that exchange is made which gains most per moved row, free ones first. Gain is what it brings the busiest shard
down to the mean, without taking the other shard over it; where no exchange gains, one that brings two shards closer is
good enough. All is integer arithmetic in a fixed order; ties go to the less loaded shard, then the lower, and rows of
one shard by falling load, then id.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.compiled import compiled
from skewtool.sharding.balance import best_exchange, insert_row, remove_row
from skewtool.sharding.equal_rows import load_per_shard

__all__ = ["Exchanges", "exchange"]

Ints = npt.NDArray[np.int64]
Homes = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Exchanges:
    """The shard of each id after them, int32 [V], and (moved rows, busiest load) from before the first to after the last:
    ever more rows, ever less load."""

    shard_of: Homes
    curve: tuple[tuple[int, int], ...]


def exchange(
    loads: Ints, old: Homes, shard_of: Homes, real_vocab: int, movable: npt.NDArray[np.bool_], base: Ints, target: int,
    most_moved: int,
) -> Exchanges:  # fmt: skip
    """Exchanges real ids until the busiest shard has `target`, `most_moved` rows are moved in all, or nothing helps.

    Arrays as in `equal_rows`, whose result is `shard_of`.
    """
    num_shards = base.size
    real_rows = np.bincount(shard_of[:real_vocab], minlength=num_shards)
    all_rows = np.bincount(shard_of, minlength=num_shards)
    ids = np.flatnonzero(movable[:real_vocab])
    width = int(real_rows.max()) + 1  # amid an exchange a shard has one row more
    members, sizes = _members(loads, shard_of, ids, width, num_shards)
    load = base + load_per_shard(loads, shard_of, num_shards)
    start = int(np.count_nonzero((old >= 0) & (old != shard_of))), int(load.max())
    # Free exchanges have no budget that ends them; in practice a few per shard are made.
    log = np.empty((most_moved + 100 * num_shards, 5), np.int64)
    number = _exchange(
        loads, old, members, sizes, load, real_rows, all_rows, target, most_moved - start[0], start[0], log
    )  # fmt: skip
    states = [start, *((int(moved), int(busiest)) for moved, busiest in log[:number, 3:])]
    # Ends where the busiest shard has got no better since: rows moved after that would be moved for nothing.
    last = min(range(len(states)), key=lambda place: (states[place][1], states[place][0], place))
    after = shard_of.copy()
    for given, taken, low in log[:last, :3]:
        high = after[given]
        after[given] = low
        if taken >= 0:
            after[taken] = high
    return Exchanges(after, _front(states[: last + 1]))


def _members(loads: Ints, shard_of: Homes, ids: Ints, width: int, num_shards: int) -> tuple[Ints, Ints]:
    """`ids` of each shard by falling load, int64 [P, width], and how many there are, int64 [P]."""
    ids = ids[np.argsort(-loads[ids], kind="stable")]
    ids = ids[np.argsort(shard_of[ids], kind="stable")]
    sizes = np.bincount(shard_of[ids], minlength=num_shards)
    members = np.full((num_shards, width), -1, np.int64)
    members[shard_of[ids], np.arange(ids.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)] = ids
    return members, sizes


def _front(states: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The states that no other one beats in both moved rows and busiest load."""
    front: list[tuple[int, int]] = []
    for moved, busiest in states:
        while front and front[-1][0] >= moved:
            front.pop()
        if not front or busiest < front[-1][1]:
            front.append((moved, busiest))
    return tuple(front)


@compiled
def _with_cost(old: Any, row: Any, here: Any, there: Any, cost: Any) -> Any:
    """The ids of `row`, on shard `here`, that cost so much when they go to shard `there`."""
    if cost == 1:
        return row[old[row] == here]
    if cost == -1:
        return row[old[row] == there]
    return row[(old[row] != here) & (old[row] != there)]


@compiled
def _best(
    loads: Any, old: Any, members: Any, sizes: Any, load: Any, real_rows: Any, all_rows: Any, mean: Any, allowed: Any
) -> Any:
    """The exchange (low, given, taken, cost) of the busiest shard; low = -1 if none. taken = -1 hands over.

    `mean` below 0: any exchange that brings two shards closer, else only those with shards below the mean.
    """
    high = np.argmax(load)
    best_low, best_given, best_taken, best_cost, best_score = -1, -1, -1, 0, 0.0
    nobody = np.empty(0, np.int64)
    for low in np.argsort(load, kind="mergesort"):
        difference = load[high] - load[low] if mean < 0 else 2 * min(load[high] - mean, mean - load[low])
        if difference <= 1 or (best_cost <= 0 and best_score >= difference * 1e30):  # no free exchange gains more
            break
        may_hand_over = real_rows[high] > real_rows[low] and all_rows[high] > all_rows[low]
        for cost_given in (-1, 0, 1):
            given = _with_cost(old, members[high, : sizes[high]], high, low, cost_given)
            if given.size == 0:
                continue
            for cost_taken in (-1, 0, 1, 2):  # 2: nothing is taken
                hands_over = cost_taken == 2
                cost = cost_given if hands_over else cost_given + cost_taken
                if cost > allowed or (hands_over and not may_hand_over):
                    continue
                taken = nobody if hands_over else _with_cost(old, members[low, : sizes[low]], low, high, cost_taken)
                i, j, gained = best_exchange(loads, given, taken, difference, hands_over)
                score = gained * 1e30 if cost <= 0 else gained / cost
                if gained > 0 and score > best_score:
                    best_low, best_given, best_cost, best_score = low, given[i], cost, score
                    best_taken = -1 if hands_over else taken[j]
    return best_low, best_given, best_taken, best_cost


@compiled
def _move(loads: Any, members: Any, sizes: Any, load: Any, token: Any, high: Any, low: Any) -> None:
    place = 0
    while members[high, place] != token:
        place += 1
    remove_row(members[high], sizes[high], place)
    sizes[high] -= 1
    load[high] -= loads[token]
    insert_row(loads, members[low], sizes[low], token)
    sizes[low] += 1
    load[low] += loads[token]


@compiled
def _exchange(
    loads: Any, old: Any, members: Any, sizes: Any, load: Any, real_rows: Any, all_rows: Any, target: Any, allowed: Any,
    moved: Any, log: Any,
) -> Any:  # fmt: skip
    """Makes exchanges; returns how many. log int64 [n, 5]: given, taken or -1, low, rows moved and busiest load after."""
    mean = load.sum() // load.size
    for number in range(log.shape[0]):
        high = np.argmax(load)
        if load[high] <= target:
            return number
        low, given, taken, cost = _best(loads, old, members, sizes, load, real_rows, all_rows, mean, allowed)
        if low < 0:
            low, given, taken, cost = _best(loads, old, members, sizes, load, real_rows, all_rows, -1, allowed)
        if low < 0:
            return number
        if taken >= 0:
            _move(loads, members, sizes, load, taken, low, high)
        else:
            real_rows[high] -= 1
            real_rows[low] += 1
            all_rows[high] -= 1
            all_rows[low] += 1
        _move(loads, members, sizes, load, given, high, low)
        allowed -= cost
        moved += cost
        log[number] = given, taken, low, moved, load.max()
    return log.shape[0]
