"""Replay of real steps: what each shard of each layout is asked for, step by step.

Average load says little about a step: text is bursty. The replay routes every window of a step as its source rank would
and adds up the requests per shard, as occurrences (raw) and as distinct ids per source rank (unique).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.compiled import compiled
from skewtool.profiling import WindowContent
from skewtool.sharding import ShardMap

__all__ = ["StepLoads", "replay"]


@compiled
def _request(ids: Any, counts: Any, shard_of: Any, raw: Any, unique: Any) -> None:
    for layout in range(shard_of.shape[0]):
        for i in range(ids.size):
            shard = shard_of[layout, ids[i]]
            raw[layout, shard] += counts[i]
            unique[layout, shard] += 1


@dataclass(frozen=True, eq=False)
class StepLoads:
    """Rows asked of each shard: int64 [steps, layouts, P], with and without repeats on a source rank."""

    raw: npt.NDArray[np.int64]
    unique: npt.NDArray[np.int64]


def replay(steps: Iterable[Sequence[WindowContent]], maps: Sequence[ShardMap], num_shards: int) -> StepLoads:
    """Routes all steps under each map; all maps have `num_shards` shards and rows for every id of the windows."""
    tables = np.zeros((len(maps), max((each.vocab_size for each in maps), default=1)), np.int32)
    for table, each in zip(tables, maps, strict=True):
        table[: each.vocab_size] = each.shard_of
    raw, unique = [], []
    for step in steps:
        loads = np.zeros((2, len(maps), num_shards), np.int64)
        for ids, counts in step:
            _request(ids, counts, tables, loads[0], loads[1])
        raw.append(loads[0])
        unique.append(loads[1])
    shape = (-1, len(maps), num_shards)
    return StepLoads(np.array(raw, np.int64).reshape(shape), np.array(unique, np.int64).reshape(shape))
