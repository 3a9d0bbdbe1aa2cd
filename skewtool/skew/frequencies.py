"""How skewed token frequencies are, before any sharding: shares of the hottest ids and the rank-frequency slope."""

import numpy as np
import numpy.typing as npt

__all__ = ["hottest_share", "rank_frequency_slope"]


def hottest_share(counts: npt.NDArray[np.int64], num_ids: int) -> float:
    """The share of all tokens that the `num_ids` most frequent of counts [V] hold; 0.0 when there are no tokens."""
    total = int(counts.sum())
    if not total:
        return 0.0
    return int(np.sort(counts)[::-1][:num_ids].sum()) / total


def rank_frequency_slope(counts: npt.NDArray[np.int64]) -> float | None:
    """Slope of log count over log rank, about -1 for natural text (Zipf's law); None for fewer than 10 distinct counts.

    A least-squares line through at most 200 ranks spaced evenly on the log axis, from rank 1 to the last id that occurs
    at least 10 times: beyond that counts are steps of 1 and say little.
    """
    falling = np.sort(counts[counts >= 10])[::-1]
    if np.unique(falling).size < 10:
        return None
    ranks = np.unique(np.geomspace(1, falling.size, 200).astype(np.int64))
    slope, _ = np.polyfit(np.log(ranks), np.log(falling[ranks - 1]), 1)
    return float(slope)
