"""`ageing`: how even maps stay over a corpus: raw and unique load in each block of a profile's time line, estimated.

A block's counts are exact for the ids that the time line follows one by one, which are nearly all tokens. What else a block
has in each of the 64 ranges of ids, and among ids that are not followed, is spread over the other ids there as they occur
in the whole corpus. So raw loads of contiguous shards that are whole ranges are exact, too. How many windows of a block hold
an id is not known; how many of the corpus do tells how much it comes in bursts, and their rate goes with its share of the
tokens.

Copies: each slot takes an equal share of the occurrences of an id, and that part of its requests which makes the shards even
(see `skewtool.sharding.split_requests`), as the routed embedding chooses by requests. Ids on every shard are read in place.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.profiling import Profile, Timeline
from skewtool.profiling.profile import WindowStatistics
from skewtool.profiling.timeline import NUM_FOLLOWED, NUM_RANGES
from skewtool.sharding import Load, ShardMap, shard_loads
from skewtool.sharding.split_requests import split_load

__all__ = ["Ageing", "ageing", "block_counts", "block_presence", "drift", "imbalance_of"]

Loads = npt.NDArray[np.float64]

_WHOLE = 1 << 40
"""The load of a block is scaled to this much, so that estimates below one token keep their weight as integers."""


@dataclass(frozen=True, eq=False)
class Ageing:
    """For B blocks in the order of the corpus: `num_tokens` int64 [B]; `drift` float64 [B], how far the tokens of a block
    are from those of the first (see `drift`); and for each load and layout, by name, `imbalance` float64 [B], busiest /
    mean. Without windows there is raw load alone."""

    num_tokens: npt.NDArray[np.int64]
    drift: npt.NDArray[np.float64]
    imbalance: Mapping[Load, Mapping[str, npt.NDArray[np.float64]]]

    @property
    def layouts(self) -> tuple[str, ...]:
        """The names of the layouts, in order."""
        return tuple(self.imbalance["raw"])

    def to_json(self) -> dict[str, Any]:
        """The documented keys: lists with a number for each block."""
        return {
            "num_tokens": self.num_tokens.tolist(),
            "drift": self.drift.tolist(),
            "imbalance": {
                load: {name: each.tolist() for name, each in layouts.items()} for load, layouts in self.imbalance.items()
            },
        }


def ageing(profile: Profile, maps: Mapping[str, ShardMap], tokens_per_rank: int | None = None) -> Ageing | None:
    """Judges maps, by name, on each block of a profile's corpus; None when the profile has no time line.

    To see a map age, judge it on a profile of what came after the corpus that it was made from; baselines are maps, too
    (`partition(profile, num_shards, "contiguous")`). The maps need a row for each id that occurs. Unique load is that of
    windows of `tokens_per_rank` tokens, by default the profile's longest. Errors: ProfileError when it has none of these.
    """
    timeline = profile.timeline
    if timeline is None:
        return None
    windows = profile.window(tokens_per_rank or profile.tokens_per_rank) if profile.windows else None
    loads: tuple[Load, ...] = ("raw",) if windows is None else ("unique", "raw")
    imbalance: dict[Load, dict[str, Loads]] = {load: {name: np.ones(len(timeline)) for name in maps} for load in loads}
    for block, counts in enumerate(block_counts(timeline, profile.counts)):
        of_block: dict[Load, Loads] = {"raw": counts}
        if windows is not None:
            of_block["unique"] = block_presence(counts, profile.counts, windows)
        for load, layouts in imbalance.items():
            for name in layouts:
                layouts[name][block] = imbalance_of(of_block[load], load, maps[name])
    return Ageing(timeline.num_tokens, drift(timeline), imbalance)


def block_counts(timeline: Timeline, counts: npt.NDArray[np.int64]) -> Iterator[Loads]:
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


def block_presence(block: Loads, counts: npt.NDArray[np.int64], windows: WindowStatistics) -> Loads:
    """Estimated chance that a window of the block holds each id, float64 [V], for counts of the block and the corpus [V].

    Bursts of an id are taken to start at random: if a share u of windows holds the id, there are -log(1 - u) a window. Where
    the corpus changes this is somewhat low, since u is that of all blocks together.
    """
    tokens = counts * (windows.length / max(1, int(counts.sum())))
    seen = np.minimum(windows.presence / windows.num_windows, 1 - 0.5 / windows.num_windows)
    bursts = np.minimum(tokens, -np.log1p(-seen))  # at most as many as tokens, which ids of every window do not tell
    change = np.divide(block / block.sum(), counts / counts.sum(), out=np.zeros(counts.size), where=counts > 0)
    return np.asarray(-np.expm1(-bursts * change))


def imbalance_of(loads: Loads, load: Load, shard_map: ShardMap) -> float:
    """Busiest shard / mean under loads float64 [V] of a kind, 1.0 without load."""
    num_shards, num_slots = shard_map.num_shards, shard_map.num_copies + 1
    whole = np.zeros(shard_map.vocab_size, np.int64)
    covered = loads[: whole.size]
    total = float(covered.sum())
    whole[: covered.size] = np.rint(covered * (_WHOLE / total)) if total else 0
    if num_shards > 1:
        whole[num_slots == num_shards] = 0
    if load == "raw" and shard_map.has_copies:
        per_shard = shard_loads(whole, shard_map)
    else:
        single = np.bincount(shard_map.shard_of, np.where(num_slots == 1, whole, 0), num_shards).astype(np.int64)
        per_shard = (single + split_load(shard_map, whole, single)).astype(np.float64)
    mean = float(per_shard.mean())
    return float(per_shard.max()) / mean if mean else 1.0


def drift(timeline: Timeline) -> npt.NDArray[np.float64]:
    """Share of each block's tokens that would have to be others to be distributed as the first block's: float64 [B].

    The total-variation distance of the shares of the ids that the time line follows one by one, all others taken
    together; so at most the distance of all ids. Chance alone makes it larger than 0, the more the fewer tokens there are.
    """
    others = timeline.num_tokens - timeline.counts.sum(axis=1)
    shares = np.column_stack([timeline.counts, others]) / timeline.num_tokens[:, None]
    return np.asarray(np.abs(shares - shares[0]).sum(axis=1) / 2)
