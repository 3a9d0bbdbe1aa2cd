"""Replay of real steps: what each shard of each layout is asked for, step by step.

Average load says little about a step: text is bursty. The replay routes every window of a step as its source rank would,
by the chooser that the routed embedding uses, and adds up the requests per shard, as occurrences (raw) and as distinct
ids per source rank (unique). What a rank reads in place, ids on every shard, is no request.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.compiled import compiled
from skewtool.errors import MapError
from skewtool.profiling import WindowContent
from skewtool.sharding import ShardMap, SlotTable
from skewtool.sharding.chooser import EVERY_SHARD, choose

__all__ = ["StepLoads", "replay"]


@compiled
def _request(
    ids: Any, counts: Any, source: Any,
    shard_of: Any, row_of: Any, shards: Any, num_shards: Any, shards_per_node: Any,
    chosen: Any, raw: Any, unique: Any, remote: Any,
) -> None:  # fmt: skip
    """Adds the requests of one source rank: all of them to raw and unique [P], those to other ranks to remote [P]."""
    choose(ids, source, shard_of, row_of, shards, num_shards, shards_per_node, chosen)
    for i in range(ids.size):
        if row_of[ids[i]] != EVERY_SHARD:
            raw[chosen[i]] += counts[i]
            unique[chosen[i]] += 1
            remote[chosen[i]] += chosen[i] != source


@dataclass(frozen=True, eq=False)
class StepLoads:
    """Rows asked of each shard: int64 [steps, layouts, P].

    raw: with repeats; unique: once per source rank; remote: those of unique that come from another rank than the
    shard's own, which is what crosses the wire. `tokens` and `distinct`, int64 [steps], count all lookups of a step
    under no layout at all: occurrences, and distinct ids of each rank.
    """

    raw: npt.NDArray[np.int64]
    unique: npt.NDArray[np.int64]
    remote: npt.NDArray[np.int64]
    tokens: npt.NDArray[np.int64]
    distinct: npt.NDArray[np.int64]


def replay(
    steps: Iterable[Sequence[WindowContent]], maps: Sequence[ShardMap], num_shards: int, shards_per_node: int | None = None
) -> StepLoads:
    """Routes all steps under each map: windows with ascending ids, maps of `num_shards` shards, `shards_per_node` on a node.

    Errors: MapError for an id without a row, or nodes of unequal size.
    """
    tables = [SlotTable.of(each, shards_per_node) for each in maps]
    vocab_size = min((each.vocab_size for each in maps), default=np.iinfo(np.int32).max)
    asked: list[npt.NDArray[np.int64]] = []
    lookups: list[tuple[int, int]] = []
    for step in steps:
        loads = np.zeros((len(maps), 3, num_shards), np.int64)
        for source, (ids, counts) in enumerate(step):
            if ids.size and int(ids[-1]) >= vocab_size:
                raise MapError(f"a window holds id {ids[-1]}, but a map has rows for {vocab_size} ids only")
            chosen = np.empty(ids.size, np.int32)
            for table, (raw, unique, remote) in zip(tables, loads, strict=True):
                _request(ids, counts, source, *table.arrays, chosen, raw, unique, remote)
        asked.append(loads)
        lookups.append((sum(int(counts.sum()) for _, counts in step), sum(ids.size for ids, _ in step)))
    together = np.array(asked, np.int64).reshape(len(asked), len(maps), 3, num_shards)
    totals = np.array(lookups, np.int64).reshape(len(lookups), 2)
    return StepLoads(together[:, :, 0], together[:, :, 1], together[:, :, 2], totals[:, 0], totals[:, 1])
