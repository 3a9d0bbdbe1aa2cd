"""What no map with equal rows can beat: a proved lower bound on the busiest shard's load.

The largest of
- the mean: some shard has at least ceil(total / P);
- pigeonholes: of the k P + 1 hottest ids some shard holds k + 1, at least the coldest k + 1 of them; and since it holds
  at least floor(V / P) rows, also that many less k + 1 of the coldest ids of all. k = 0 is the hottest id's own load
  with the rows that must come with it.

For small tables that still show a gap the bound is proved by search or integer program (see `exact`).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skewtool.sharding.exact import SMALL_IDS, proved_bound
from skewtool.sharding.loads import exact_sum, fit_62_bits
from skewtool.sharding.shard_map import ShardMap

__all__ = ["Balance", "assess", "lower_bound", "shard_loads"]


def lower_bound(loads: npt.NDArray[np.int64], num_shards: int) -> int:
    """A bound on the largest load of any shard, for loads int64 [V] and maps whose shards differ by at most one row."""
    total = exact_sum(loads)
    scaled, shift = fit_62_bits(loads)  # rounds down, which keeps a lower bound valid
    hottest = np.sort(scaled)[::-1]
    sums = np.concatenate([[0], np.cumsum(hottest)])
    more = np.arange((hottest.size - 1) // num_shards + 1)  # k
    last = more * num_shards
    pigeonhole = sums[last + 1] - sums[last - more]
    coldest = np.maximum(hottest.size // num_shards - (more + 1), 0)
    with_rows = pigeonhole + sums[-1] - sums[hottest.size - coldest]
    return max(-(-total // num_shards), int(with_rows.max(initial=0)) << shift)


def shard_loads(loads: npt.NDArray[np.int64], shard_map: ShardMap) -> npt.NDArray[np.float64]:
    """Load per shard, float64 [P], when each slot of an id takes an equal share of loads int64 [V]."""
    shares = loads / (shard_map.num_copies + 1)
    token_at = shard_map.token_at
    return np.asarray(np.where(token_at >= 0, shares[token_at], 0.0).sum(axis=1))


@dataclass(frozen=True)
class Balance:
    """How even loads per shard are. `imbalance` and `lower_bound` are busiest / mean, 1.0 when the total is 0."""

    busiest: float
    total: float
    num_shards: int
    bound: float

    @classmethod
    def of(cls, per_shard: npt.NDArray[np.float64], bound: float) -> "Balance":
        """Of loads float64 [P], with a bound beside the mean."""
        total = float(per_shard.sum())
        return cls(float(per_shard.max()), total, per_shard.size, max(bound, total / per_shard.size))

    @property
    def imbalance(self) -> float:
        return self._over_mean(self.busiest)

    @property
    def lower_bound(self) -> float:
        return self._over_mean(self.bound)

    def _over_mean(self, load: float) -> float:
        return load * self.num_shards / self.total if self.total else 1.0

    @property
    def gap(self) -> float:
        """How far above the bound, as a share of it; below 0 only for maps of unequal rows."""
        return (self.busiest - self.bound) / self.bound if self.bound else 0.0


def assess(loads: npt.NDArray[np.int64], shard_map: ShardMap) -> Balance:
    """The balance of a map under loads int64 [V], each slot of an id taking an equal share.

    With copies the bound is the mean, or an equal share for every shard of the hottest id.
    """
    if not shard_map.has_copies:
        per_shard = [exact_sum(part) for part in _parts(loads, shard_map)]
        bound = lower_bound(loads, shard_map.num_shards)
        equal_rows = int(np.ptp(shard_map.home_rows)) <= 1
        if equal_rows and max(per_shard) > bound and loads.size <= SMALL_IDS and sum(per_shard) < 1 << 62:
            bound = proved_bound(loads, shard_map.num_shards, bound, max(per_shard))
        return Balance(max(per_shard), sum(per_shard), len(per_shard), bound)
    return Balance.of(shard_loads(loads, shard_map), float(loads.max(initial=0)) / shard_map.num_shards)


def _parts(loads: npt.NDArray[np.int64], shard_map: ShardMap) -> list[npt.NDArray[np.int64]]:
    homes = shard_map.token_at[:, : shard_map.home_slots]
    return [loads[row[row >= 0]] for row in homes]
