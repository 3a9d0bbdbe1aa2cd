"""`Bursts`: which sampled windows hold which ids, to keep ids that burst together on different shards.

Text is bursty: a window in Korean, or of tables, holds many ids that others do not. A shard that happens to home several
of them is busy in that step, however even it is on average. Dealing ids by falling load, each to the shard that already
has the fewest of its windows' other ids, spreads every topic over all shards.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.compiled import compiled
from skewtool.profiling import WindowStatistics

__all__ = ["Bursts", "deal_apart"]

_MOST_STEPS = 48_000_000
"""Windows looked at times ids per window times shards: about 40 ms of work."""

AVERAGE_WEIGHT = 16
"""How much a shard's load on average counts against the loads in the id's own windows."""


@compiled
def _transpose(indptr: Any, ids: Any, windows_of: Any, window: Any) -> None:
    """From ids per window to windows per id: windows_of int64 [V + 1] becomes the bounds of each id's part of `window`."""
    for token in ids:
        windows_of[token + 1] += 1
    for token in range(windows_of.size - 1):
        windows_of[token + 1] += windows_of[token]
    place = windows_of[:-1].copy()
    for number in range(indptr.size - 1):
        for token in ids[indptr[number] : indptr[number + 1]]:
            window[place[token]] = number
            place[token] += 1


@dataclass(frozen=True, eq=False)
class Bursts:
    """The windows of id i are window[bounds[i]:bounds[i + 1]], numbered below `num_sampled`; the whole corpus has
    `num_windows`. bounds: int64 [V + 1], window: int32. `average_weight`: see AVERAGE_WEIGHT."""

    bounds: npt.NDArray[np.int64]
    window: npt.NDArray[np.int32]
    num_sampled: int
    num_windows: int
    average_weight: int

    @classmethod
    def of(
        cls,
        statistics: WindowStatistics,
        num_shards: int,
        most_windows: int | None = None,
        average_weight: int = AVERAGE_WEIGHT,
    ) -> "Bursts | None":
        """From the sample of windows: the first `most_windows` of it (default all), as many as the work allows.

        None when these are fewer than the shards: then what they show of bursts is mostly chance.
        """
        sample = statistics.sample
        used = int(np.searchsorted(sample.indptr, _MOST_STEPS // num_shards, side="right")) - 1
        used = used if most_windows is None else min(used, most_windows)
        if used < num_shards:
            return None
        indptr = sample.indptr[: used + 1]
        bounds, window = np.zeros(statistics.presence.size + 1, np.int64), np.empty(indptr[-1], np.int32)
        _transpose(indptr, sample.ids[: indptr[-1]], bounds, window)
        return cls(bounds, window, used, statistics.num_windows, average_weight)


@compiled
def deal_apart(
    loads: Any, order: Any, num_shards: Any, bounds: Any, window: Any, num_sampled: Any, num_windows: Any,
    average_weight: Any, members: Any, rows: Any, load: Any,
) -> None:  # fmt: skip
    """Deals ids in `order` under row limits; fills `members` [P, R], `rows` [P] and `load` [P].

    The score of a shard is the number of other ids it has in the windows of this one, plus what its average load would
    let expect there, times `average_weight`; the least wins, ties go to the lower shard.
    """
    fewest, one_more = order.size // num_shards, order.size % num_shards
    held = np.zeros((num_sampled, num_shards), np.int32)
    together = np.zeros(num_shards, np.int32)
    for token in order:
        first, last = bounds[token], bounds[token + 1]
        together[:] = 0
        for i in range(first, last):
            number = np.uintp(window[i])
            for shard in range(num_shards):
                together[shard] += held[number, shard]
        best, best_score = -1, 0
        # An id that no sampled window holds still counts with its average load.
        weight = average_weight * max(last - first, 1)
        for shard in range(num_shards):
            if rows[shard] < fewest or (rows[shard] == fewest and one_more > 0):
                score = np.int64(together[shard]) * num_windows + weight * load[shard]
                if best < 0 or score < best_score:
                    best, best_score = shard, score
        one_more -= rows[best] == fewest
        members[best, rows[best]] = token
        rows[best] += 1
        load[best] += loads[token]
        for i in range(first, last):
            held[window[i], best] += 1
