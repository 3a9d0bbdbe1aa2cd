"""The chooser: which slot of an id a source rank asks. One pure rule, used by the replay and by the routed embedding.

An id with one slot is asked of its home. An id on every shard is read in place and is no request. For the others the
source spreads its requests so that no shard gets more than another, as far as their slots allow:

    in 3 passes over these ids, ascending, in 64 equal groups per pass: each id of the group goes to the slot whose shard
    has the fewest requests of this source so far (its own request, from an earlier pass, not counted); ties go to the
    source's own shard, then to the next shard after it, cyclically.

Where shards are told to lie on nodes, slots on other nodes than the source's are looked at only when its own node has none.

All ids of a group look at the same numbers, so a group is one vector operation on a GPU, and the result is the same
integers everywhere. Because ties go on from the source's own shard, remainders of different sources fall on different
shards. Three passes leave the shards of a source within about one request of each other; the first alone within four.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.compiled import compiled
from skewtool.errors import MapError
from skewtool.sharding.shard_map import ShardMap

__all__ = ["GROUPS", "PASSES", "SlotTable", "choose_slots"]

GROUPS = 64
PASSES = 3

ONE_SLOT = -1
EVERY_SHARD = -2


@dataclass(frozen=True, eq=False)
class SlotTable:
    """The slots of each id, as the chooser reads them.

    shard_of  int32 [V]      the home of each id
    row_of    int32 [V]      its row in `shards`; ONE_SLOT or EVERY_SHARD where there is nothing to choose
    shards    int32 [F, C]   the shards that hold an id, ascending, -1 behind the last
    """

    shard_of: npt.NDArray[np.int32]
    row_of: npt.NDArray[np.int32]
    shards: npt.NDArray[np.int32]
    num_shards: int
    shards_per_node: int

    @classmethod
    def of(cls, shard_map: ShardMap, shards_per_node: int | None = None) -> "SlotTable":
        """The table of a map; shards [k n, (k + 1) n) are on one node of n = `shards_per_node` (default: all on one).

        Errors: MapError when nodes would be of unequal size.
        """
        shards_per_node = shard_map.num_shards if shards_per_node is None else shards_per_node
        if shards_per_node < 1 or shard_map.num_shards % shards_per_node:
            raise MapError(f"{shard_map.num_shards} shards are no whole number of nodes of {shards_per_node} shards")
        num_slots = shard_map.num_copies + 1
        row_of = np.full(shard_map.vocab_size, ONE_SLOT, np.int32)
        chosen = np.flatnonzero((num_slots > 1) & (num_slots < shard_map.num_shards))
        row_of[chosen] = np.arange(chosen.size)
        if shard_map.num_shards > 1:
            row_of[num_slots == shard_map.num_shards] = EVERY_SHARD
        shards = np.full((chosen.size, int(num_slots[chosen].max(initial=0))), -1, np.int32)
        where, slots = np.nonzero(shard_map.token_at >= 0)
        rows = row_of[shard_map.token_at[where, slots]]
        where, rows = where[rows >= 0], rows[rows >= 0]
        by_row = np.argsort(rows, kind="stable")  # shards of a row stay ascending
        sizes = np.bincount(rows, minlength=chosen.size)
        place = np.arange(rows.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        shards[rows[by_row], place] = where[by_row]
        return cls(shard_map.shard_of, row_of, shards, shard_map.num_shards, shards_per_node)

    @property
    def arrays(self) -> tuple[Any, Any, Any, int, int]:
        """What the compiled chooser takes."""
        return self.shard_of, self.row_of, self.shards, self.num_shards, self.shards_per_node


@compiled
def choose(
    ids: Any, source: Any, shard_of: Any, row_of: Any, shards: Any, num_shards: Any, shards_per_node: Any, chosen: Any
) -> None:
    """Fills `chosen` int32 [n] for distinct ascending `ids`; the compiled form of `choose_slots`."""
    far_away = (ids.size + 2) * num_shards  # more than any number of requests can cost
    requests = np.zeros(num_shards, np.int64)
    several = np.empty(ids.size, np.int64)
    number = 0
    for i in range(ids.size):
        row = row_of[ids[i]]
        if row == EVERY_SHARD:
            chosen[i] = source
        elif row == ONE_SLOT:
            chosen[i] = shard_of[ids[i]]
            requests[chosen[i]] += 1
        else:
            chosen[i] = -1
            several[number] = i
            number += 1
    group = -(-number // GROUPS)
    for _ in range(PASSES):
        for first in range(0, number, max(group, 1)):
            before = requests.copy()
            for i in several[first : min(first + group, number)]:
                best, least = -1, np.int64(0)
                for shard in shards[row_of[ids[i]]]:
                    if shard < 0:
                        break
                    cost = (before[shard] - (shard == chosen[i])) * num_shards + (shard - source) % num_shards
                    if shard // shards_per_node != source // shards_per_node:
                        cost += far_away
                    if best < 0 or cost < least:
                        best, least = shard, cost
                if chosen[i] >= 0:
                    requests[chosen[i]] -= 1
                requests[best] += 1
                chosen[i] = best


def choose_slots(ids: npt.NDArray[Any], source: int, table: SlotTable) -> npt.NDArray[np.int32]:
    """The shard that rank `source` asks for each of its distinct `ids`, ascending int [n]: int32 [n].

    Ids on every shard give `source` itself: they are read in place. See the module for the rule.
    """
    chosen = np.empty(ids.size, np.int32)
    choose(ids, source, *table.arrays, chosen)
    return chosen
