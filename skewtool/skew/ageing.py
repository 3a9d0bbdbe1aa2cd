"""`ageing`: how even maps stay over a corpus: raw load in each block of a profile's time line.

A block's counts are exact for the ids that the time line follows one by one, which are nearly all tokens. What else a block
has in each of the 64 ranges of ids, and among ids that are not followed, is estimated: spread over the other ids there as
they occur in the whole corpus. So contiguous shards that are whole ranges have exact loads, too. The load of an id with
copies is divided as the routed embedding does it (see `skewtool.sharding.split_requests`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.profiling import Profile, Timeline
from skewtool.profiling.timeline import NUM_FOLLOWED, NUM_RANGES
from skewtool.sharding import ShardMap
from skewtool.sharding.split_requests import split_load

__all__ = ["Ageing", "ageing", "block_counts", "drift", "raw_imbalance"]

Counts = npt.NDArray[np.float64]

_WHOLE = 1 << 40
"""The tokens of a block are scaled to this many, so that estimates below one token keep their weight as integers."""


@dataclass(frozen=True, eq=False)
class Ageing:
    """For B blocks in the order of the corpus: `num_tokens` int64 [B]; `drift` float64 [B], how far the tokens of a block
    are from those of the first (see `drift`); and for each layout, by name, `imbalance` float64 [B], busiest / mean."""

    num_tokens: npt.NDArray[np.int64]
    drift: npt.NDArray[np.float64]
    imbalance: Mapping[str, npt.NDArray[np.float64]]

    def to_json(self) -> dict[str, Any]:
        """The documented keys: lists with a number for each block."""
        return {
            "num_tokens": self.num_tokens.tolist(),
            "drift": self.drift.tolist(),
            "imbalance": {name: each.tolist() for name, each in self.imbalance.items()},
        }


def ageing(profile: Profile, maps: Mapping[str, ShardMap]) -> Ageing | None:
    """Judges maps, by name, on each block of a profile's corpus; None when the profile has no time line.

    To see a map age, judge it on a profile of what came after the corpus that it was made from; baselines are maps, too
    (`partition(profile, num_shards, "contiguous")`). The maps need a row for each id that occurs.
    """
    timeline = profile.timeline
    if timeline is None:
        return None
    imbalance = {name: np.ones(len(timeline)) for name in maps}
    for block, counts in enumerate(block_counts(timeline, profile.counts)):
        for name, each in maps.items():
            imbalance[name][block] = raw_imbalance(counts, each)
    return Ageing(timeline.num_tokens, drift(timeline), imbalance)


def block_counts(timeline: Timeline, counts: npt.NDArray[np.int64]) -> Iterator[Counts]:
    """Occurrences of each id in each block, float64 [V], partly estimated, for counts int64 [V] of the whole corpus."""
    group = np.arange(counts.size) * NUM_RANGES // counts.size
    group[NUM_FOLLOWED:] = NUM_RANGES  # one group more, of ids that are not followed
    remaining = counts.astype(np.float64)
    remaining[timeline.ids] = 0
    in_group = np.bincount(group, remaining, NUM_RANGES + 1)
    for num_tokens, exact, loads in zip(timeline.num_tokens, timeline.counts, timeline.loads, strict=True):
        left = np.append(loads, num_tokens - loads.sum()) - np.bincount(group[timeline.ids], exact, NUM_RANGES + 1)
        share = np.divide(left, in_group, out=np.zeros(left.size), where=in_group > 0)
        estimate = remaining * share[group]
        estimate[timeline.ids] = exact
        yield estimate


def raw_imbalance(counts: Counts, shard_map: ShardMap) -> float:
    """Busiest shard's load / mean under counts float64 [V], 1.0 without load; ids on every shard are read in place."""
    total = float(counts.sum())
    loads = np.zeros(shard_map.vocab_size, np.int64)
    shown = counts[: loads.size]
    loads[: shown.size] = np.rint(shown * (_WHOLE / total)) if total else 0
    single = np.zeros(shard_map.num_shards, np.int64)
    one_slot = shard_map.num_copies == 0
    np.add.at(single, shard_map.shard_of[one_slot], loads[one_slot])
    load = single + split_load(shard_map, loads, single)
    mean = float(load.mean())
    return float(load.max()) / mean if mean else 1.0


def drift(timeline: Timeline) -> npt.NDArray[np.float64]:
    """Share of each block's tokens that would have to be others to be distributed as the first block's: float64 [B].

    The total-variation distance of the shares of the ids that the time line follows one by one, all others taken
    together; so at most the distance of all ids. Chance alone makes it larger than 0, the more the fewer tokens there are.
    """
    others = timeline.num_tokens - timeline.counts.sum(axis=1)
    shares = np.column_stack([timeline.counts, others]) / timeline.num_tokens[:, None]
    return np.asarray(np.abs(shares - shares[0]).sum(axis=1) / 2)
