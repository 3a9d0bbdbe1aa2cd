"""What each shard is asked for where ids have copies and sources choose among their slots: the most even split.

The chooser (see `chooser`) lets requests go where there are few, so over many steps the load of an id with several slots
is divided as makes the shards even. Here that division is computed: ids in turn divide their load over their slots anew,
filling up the least loaded first, until nothing changes. Each turn lowers the sum of squares, which has one optimum, and
the loads of the optimum are the most even ones.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.compiled import compiled
from skewtool.sharding.chooser import SlotTable
from skewtool.sharding.shard_map import ShardMap

__all__ = ["split_load"]

_MOST_PASSES = 1000
_SETTLED = 1e-9


@compiled
def _fill_up(amount: Any, levels: Any, parts: Any) -> None:
    """Divides `amount` over vessels with `levels` [n] so that the lowest are filled to one height; fills `parts` [n]."""
    order = np.argsort(levels, kind="mergesort")
    below, height = 0.0, 0.0
    for number in range(order.size):
        below += levels[order[number]]
        height = (amount + below) / (number + 1)
        if number + 1 == order.size or height <= levels[order[number + 1]]:
            break
    for place in range(levels.size):
        parts[place] = max(0.0, height - levels[place])


@compiled
def _split(amounts: Any, holders: Any, load: Any, most_passes: Any, settled: Any) -> None:
    """Adds `amounts` float64 [n] to `load` float64 [P], each over its holders int32 [n, C] (-1 behind the last)."""
    parts = np.zeros(holders.shape, np.float64)
    for _ in range(most_passes):
        change = 0.0
        for number in range(amounts.size):
            shards = holders[number][holders[number] >= 0]
            own = parts[number, : shards.size]
            before = own.copy()
            load[shards] -= before
            _fill_up(amounts[number], load[shards], own)
            load[shards] += own
            change = max(change, np.abs(own - before).max())
        if change <= settled:
            return


def split_load(shard_map: ShardMap, loads: npt.NDArray[np.int64], single: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Load of the ids with copies on each shard, int64 [P], for loads int64 [V] and the load `single` int64 [P] of others.

    Ids on every shard are read in place and count nowhere.
    """
    if not shard_map.has_copies:
        return np.zeros_like(single)
    table = SlotTable.of(shard_map)
    ids = np.flatnonzero(table.row_of >= 0)
    load = single.astype(np.float64)
    amounts = loads[ids].astype(np.float64)
    _split(amounts, table.shards[table.row_of[ids]], load, _MOST_PASSES, _SETTLED * float(amounts.sum()))
    return np.asarray(np.maximum(np.rint(load).astype(np.int64) - single, 0))
