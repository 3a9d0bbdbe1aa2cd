"""What no map with equal rows can beat: a proved lower bound on the busiest shard's load.

The largest of
- the mean: some shard has at least ceil(total / P);
- pigeonholes: of the k P + 1 hottest ids some shard holds k + 1, at least the coldest k + 1 of them; and since it holds
  at least floor(V / P) rows, also that many less k + 1 of the coldest ids of all. k = 0 is the hottest id's own load
  with the rows that must come with it.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Balance", "assess", "lower_bound"]

_BITS = 62


def lower_bound(loads: npt.NDArray[np.int64], num_shards: int) -> int:
    """A bound on the largest load of any shard, for loads int64 [V] and maps whose shards differ by at most one row."""
    total = exact_sum(loads)
    # Sums must fit 64 bits. Dropping low bits rounds down, which keeps a lower bound valid.
    shift = max(0, total.bit_length() - _BITS)
    hottest = np.sort(loads >> shift)[::-1]
    sums = np.concatenate([[0], np.cumsum(hottest)])
    more = np.arange((hottest.size - 1) // num_shards + 1)  # k
    last = more * num_shards
    pigeonhole = sums[last + 1] - sums[last - more]
    coldest = np.maximum(hottest.size // num_shards - (more + 1), 0)
    with_rows = pigeonhole + sums[-1] - sums[hottest.size - coldest]
    return max(-(-total // num_shards), int(with_rows.max(initial=0)) << shift)


def exact_sum(loads: npt.NDArray[np.int64]) -> int:
    """The sum as a Python integer, also where it exceeds 64 bits."""
    high, low = loads >> 32, loads & 0xFFFFFFFF
    return (int(high.sum()) << 32) + int(low.sum())


@dataclass(frozen=True)
class Balance:
    """How even loads per shard are. `imbalance` and `lower_bound` are busiest / mean, 1.0 when the total is 0."""

    busiest: int
    total: int
    num_shards: int
    bound: int

    @property
    def imbalance(self) -> float:
        return self._over_mean(self.busiest)

    @property
    def lower_bound(self) -> float:
        return self._over_mean(self.bound)

    @property
    def gap(self) -> float:
        """How far above the bound, as a share of it; below 0 only for maps of unequal rows."""
        return (self.busiest - self.bound) / self.bound if self.bound else 0.0

    def _over_mean(self, load: int) -> float:
        return load * self.num_shards / self.total if self.total else 1.0


def assess(loads: npt.NDArray[np.int64], shard_of: npt.NDArray[np.int32], num_shards: int) -> Balance:
    """The balance of homes shard_of [V] under loads int64 [V]."""
    per_shard = [exact_sum(part) for part in _parts(loads, shard_of, num_shards)]
    return Balance(max(per_shard), sum(per_shard), num_shards, lower_bound(loads, num_shards))


def _parts(loads: npt.NDArray[np.int64], shard_of: npt.NDArray[np.int32], num_shards: int) -> list[npt.NDArray[np.int64]]:
    order = np.argsort(shard_of, kind="stable")
    ends = np.cumsum(np.bincount(shard_of, minlength=num_shards))[:-1]
    return np.split(loads[order], ends)
