"""Equal rows for another number of shards or ids, with the fewest rows moved: the moves that a rebalancing cannot avoid.

Arrays (V ids and P shards of the new map):
  loads    int64 [V]   load of each id that can move; sums fit 62 bits
  old      int32 [V]   the shard of each id's home in the old map, also P or above; -1 for new ids
  movable  bool [V]    ids that may leave their shard
  base     int64 [P]   load that stays on each shard whatever moves

Rows of padding ids, rows of real ids and both together differ by at most one between shards, as `partition` makes them.
Which shards have the one more is an assignment problem: of all ways the one that keeps the most rows where they are, and
of those the one that gives further rows to the least loaded shards.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

from skewtool.compiled import compiled
from skewtool.errors import MapError
from skewtool.sharding.balance import sift_down

__all__ = ["equal_rows", "load_per_shard"]

Ints = npt.NDArray[np.int64]
Homes = npt.NDArray[np.int32]


def equal_rows(loads: Ints, old: Homes, real_vocab: int, movable: npt.NDArray[np.bool_], base: Ints) -> Homes:
    """The shard of each id, int32 [V], with equal rows on base.size shards and the fewest ids moved.

    A shard with too many rows gives every n-th by falling load, so that what it keeps is like what it gives. They go, with
    the rows of shards that no longer exist and the new ids, by falling load to the least loaded shard with room.
    Errors: MapError when a shard has too few movable ids.
    """
    num_shards = base.size
    shard_of = np.where(old < num_shards, old, -1).astype(np.int32)
    load = base + load_per_shard(loads, shard_of, num_shards)
    classes = np.arange(real_vocab), np.arange(real_vocab, loads.size)
    rows = [np.bincount(shard_of[ids][shard_of[ids] >= 0], minlength=num_shards) for ids in classes]
    for ids, have, want in zip(classes, rows, _targets(rows, [each.size for each in classes], load), strict=True):
        for shard in np.flatnonzero(have > want):
            _give(loads, ids, shard_of, int(shard), int(have[shard] - want[shard]), movable)
        _take(loads, ids, shard_of, want, base)
    return shard_of


def load_per_shard(loads: Ints, shard_of: Homes, num_shards: int) -> Ints:
    """The sum of loads on each shard: int64 [P], exact; ids without a shard (-1) count nowhere."""
    load = np.zeros(num_shards, np.int64)
    placed = shard_of >= 0
    np.add.at(load, shard_of[placed], loads[placed])
    return load


def _targets(rows: list[Ints], number: list[int], load: Ints) -> tuple[Ints, Ints]:
    """Rows of real and of padding ids that each shard shall have: int64 [P] each."""
    num_shards = load.size
    place = np.arange(num_shards)
    (real, one_more_real), (padding, one_more_padding) = (divmod(each, num_shards) for each in number)
    extra_real = (place < one_more_real).astype(np.int64)
    # Further padding ids go where the real ids had no further one, so that the sum differs by one at most, too.
    extra_padding = ((place - one_more_real) % num_shards < one_more_padding).astype(np.int64)
    kept = np.minimum(rows[0][:, None], real + extra_real) + np.minimum(rows[1][:, None], padding + extra_padding)
    rank = np.argsort(np.argsort(load, kind="stable"), kind="stable")
    first = 3 * num_shards**2 + 1  # more than all ranks together: rows kept decide before load does
    shards, which = linear_sum_assignment(kept * first - rank[:, None] * (extra_real + 2 * extra_padding), maximize=True)
    which = which[np.argsort(shards)]
    return real + extra_real[which], padding + extra_padding[which]


def _give(loads: Ints, ids: Ints, shard_of: Homes, shard: int, number: int, movable: npt.NDArray[np.bool_]) -> None:
    """Takes `number` of `ids` off a shard: their shard_of becomes -1."""
    free = ids[(shard_of[ids] == shard) & movable[ids]]
    if free.size < number:
        raise MapError(
            f"shard {shard} must give {number} rows for equal rows, but only {free.size} of its ids have no copies, and ids "
            "with copies stay; make a new map with skewtool partition --extra-rows"
        )
    free = free[np.argsort(-loads[free], kind="stable")]
    shard_of[free[np.diff(np.arange(free.size + 1) * number // free.size) > 0]] = -1


def _take(loads: Ints, ids: Ints, shard_of: Homes, want: Ints, base: Ints) -> None:
    """Gives shards to those of `ids` that have none."""
    room = want - np.bincount(shard_of[ids][shard_of[ids] >= 0], minlength=want.size)
    waiting = ids[shard_of[ids] < 0]
    waiting = waiting[np.argsort(-loads[waiting], kind="stable")]
    _deal(loads, waiting, room, base + load_per_shard(loads, shard_of, want.size), shard_of)


@compiled
def _deal(loads: Any, order: Any, room: Any, load: Any, shard_of: Any) -> None:
    """Each id of `order` to the least loaded shard (ties: lower shard) with room; room has as many places as ids."""
    heap = np.argsort(load, kind="mergesort")
    size = heap.size
    for token in order:
        while room[heap[0]] == 0:
            size -= 1
            heap[0] = heap[size]
            sift_down(heap, size, load)
        shard = heap[0]
        shard_of[token] = shard
        room[shard] -= 1
        load[shard] += loads[token]
        sift_down(heap, size, load)
