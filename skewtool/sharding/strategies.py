"""Strategies: plain functions (loads int64 [V], num_shards, seed, bursts) -> the shard of each id, int32 [V].

contiguous  equal ranges of ids, ceil(V / P) each, the last shorter or empty: what frameworks do
strided     id % P
snake       by falling load to and fro: shards 0 … P-1, then P-1 … 0
random      a seeded shuffle, equal rows
balanced    equal rows and load as even as can be, on average and, where `bursts` are known, within steps

Ties are broken by lower id, then lower shard. All but contiguous give every shard floor(V / P) or ceil(V / P) rows.
"""

import hashlib
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from skewtool.sharding.balance import balanced_homes
from skewtool.sharding.bursts import Bursts
from skewtool.sharding.loads import fit_62_bits
from skewtool.sharding.shard_map import contiguous_homes

__all__ = ["STRATEGIES", "Strategy"]

Loads = npt.NDArray[np.int64]
Homes = npt.NDArray[np.int32]
Strategy = Callable[..., Homes]


def _contiguous(loads: Loads, num_shards: int, seed: int, bursts: Bursts | None = None) -> Homes:
    return contiguous_homes(loads.size, num_shards)


def _strided(loads: Loads, num_shards: int, seed: int, bursts: Bursts | None = None) -> Homes:
    return (np.arange(loads.size) % num_shards).astype(np.int32)


def _snake(loads: Loads, num_shards: int, seed: int, bursts: Bursts | None = None) -> Homes:
    turn, place = np.divmod(np.arange(loads.size), num_shards)
    homes = np.empty(loads.size, np.int32)
    homes[np.argsort(-loads, kind="stable")] = np.where(turn % 2, num_shards - 1 - place, place)
    return homes


def _random(loads: Loads, num_shards: int, seed: int, bursts: Bursts | None = None) -> Homes:
    # Ordered by a hash of (seed, id), not by a library's generator, so that every version gives the same map.
    stream = hashlib.shake_256(str(seed).encode()).digest(8 * loads.size)
    homes = np.empty(loads.size, np.int32)
    homes[np.argsort(np.frombuffer(stream, "<u8"), kind="stable")] = np.arange(loads.size) % num_shards
    return homes


def _balanced(loads: Loads, num_shards: int, seed: int, bursts: Bursts | None = None) -> Homes:
    return balanced_homes(fit_62_bits(loads)[0], num_shards, bursts)


STRATEGIES: dict[str, Strategy] = {
    "contiguous": _contiguous,
    "strided": _strided,
    "snake": _snake,
    "random": _random,
    "balanced": _balanced,
}
"""By the names that `strategy` and --strategy take."""

KEEPS_ID_ORDER = ("contiguous", "strided")
"""Strategies that place padding ids by their number, as frameworks do, and do not look at loads."""
