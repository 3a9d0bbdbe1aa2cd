"""`route_capacity`: how many requests of one rank to one shard a fixed-capacity route should have room for.

Routes of fixed shapes must hold the most that one rank asks of one shard; what is beyond goes through a second exchange.
On an even map that is little above the mean, on a contiguous one several times it, and fixed shapes pay for it in every
step. The answer is read off the windows of a profile's sample, asked as the chooser asks.
"""

import math

import numpy as np

from skewtool.errors import MapError
from skewtool.profiling import Profile
from skewtool.sharding import ShardMap, SlotTable, choose_slots
from skewtool.sharding.chooser import EVERY_SHARD
from skewtool.skew.steps import sample_windows

__all__ = ["route_capacity"]


def route_capacity(
    profile: Profile,
    shard_map: ShardMap,
    tokens_per_rank: int | None = None,
    *,
    share: float = 0.99,
    headroom: float = 1.05,
) -> int:
    """Room such that the busiest pair of rank and shard fits in a `share` of the windows, times `headroom`.

    `tokens_per_rank`: a window length of the profile, by default its longest. What is asked in place is no request.
    Errors: MapError where the profile has no sampled windows, has ids without a row, or share is not in (0, 1];
    ProfileError where it has no windows, or none of that length.
    """
    if not 0 < share <= 1:
        raise MapError(f"share must be above 0 and at most 1, got {share}")
    chosen = profile.window(profile.tokens_per_rank if tokens_per_rank is None else tokens_per_rank)
    windows = sample_windows(chosen.sample)
    if not windows:
        raise MapError(f"the profile has no sampled windows of {chosen.length:,} tokens; profile with a --sample above 0")
    if (profile.counts[shard_map.vocab_size :] > 0).any():
        raise MapError(f"the profile has ids up to {profile.vocab_size - 1}, the map rows for {shard_map.vocab_size} only")
    table = SlotTable.of(shard_map)
    most = []
    for number, (ids, _) in enumerate(windows):
        asked = choose_slots(ids, number % shard_map.num_shards, table)[table.row_of[ids] != EVERY_SHARD]
        most.append(int(np.bincount(asked, minlength=shard_map.num_shards).max()))
    busiest = float(np.quantile(most, share, method="higher"))
    return max(1, math.ceil(busiest * headroom))
