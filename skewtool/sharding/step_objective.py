"""The objective "steps": the map whose sampled steps have the least 99th percentile of busiest / mean.

A map learns bursts from three quarters of the sampled windows, with different weights of the average against them, and is
judged on the other quarter; the best weight then learns from all. Searching on for maps that fit the sample itself would
be of no use: which windows come next is chance, and the floor of chance (see `skewtool.skew.step_floor`) is near. On
natural text the result is within chance of that for unique load, which keeps bursts apart with one fixed weight.
"""

import numpy as np
import numpy.typing as npt

from skewtool.errors import MapError
from skewtool.profiling import WindowStatistics
from skewtool.sharding.balance import balanced_homes
from skewtool.sharding.bursts import Bursts
from skewtool.sharding.chooser import SlotTable
from skewtool.sharding.copies import judge_steps, learnt_windows
from skewtool.sharding.shard_map import ShardMap

__all__ = ["homes_by_steps"]

_WEIGHTS = (1, 4, 16, 64, 256)


def homes_by_steps(statistics: WindowStatistics, real_vocab: int, num_shards: int) -> npt.NDArray[np.int32]:
    """The shard of each real id: int32 [real_vocab]. Errors: MapError when there are fewer sampled windows than shards."""
    if len(statistics.sample) < num_shards:
        raise MapError(
            f"the steps of {num_shards} ranks need as many sampled windows of {statistics.length} tokens, the profile has "
            f"{len(statistics.sample)}; profile with a larger --sample-windows, or use --load unique"
        )
    loads = statistics.presence[:real_vocab]
    learnt, unseen = learnt_windows(statistics.sample, num_shards)

    def p99(weight: int) -> float:
        homes = balanced_homes(loads, num_shards, Bursts.of(statistics, num_shards, learnt, weight))
        whole = np.concatenate([homes, np.zeros(statistics.presence.size - real_vocab, np.int32)])
        return judge_steps(SlotTable.of(ShardMap.from_homes(whole, num_shards)), unseen, statistics.length)[2]

    best = min(_WEIGHTS, key=lambda weight: (p99(weight), weight))
    return balanced_homes(loads, num_shards, Bursts.of(statistics, num_shards, average_weight=best))
