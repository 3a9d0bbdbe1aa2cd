"""The statistical floor of a step: the imbalance that chance alone gives the best map without copies.

Which of its ids a window holds is chance. Were all ids independent, the load of a shard in a step of P ranks would be a
sum of many independent yes-or-no draws: mean P * sum(q) / P and variance sum(q (1 - q)) for ids with presence q, spread
evenly over the shards. Their sum is fixed by the mean that busiest is divided by, which leaves 1 - 1/P of the variance;
the largest of P such normal variables has the quantiles of one at p ** (1 / P). Below this no map without copies gets,
except by luck: a user who is there can stop. Bursts make real steps less even, copies make them more even.
"""

import numpy as np
from scipy.special import ndtri

from skewtool.profiling import WindowStatistics

__all__ = ["step_floor"]


def step_floor(windows: WindowStatistics, num_shards: int, quantile: float) -> float | None:
    """Busiest / mean of unique load at a quantile (0 to 1) of steps; None without windows or without tokens."""
    if not windows.num_windows or not windows.presence.any():
        return None
    chance = windows.presence / windows.num_windows
    mean = float(chance.sum())
    variance = float((chance * (1 - chance)).sum()) * (1 - 1 / num_shards)
    return 1.0 + max(0.0, float(ndtri(quantile ** (1 / num_shards)))) * float(np.sqrt(variance)) / mean
