"""The most even split of requests over copies, against a linear program."""

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from skewtool import ShardMap
from skewtool.sharding.split_requests import split_load


def _map_with_copies(seed: int, num_ids: int, num_shards: int) -> ShardMap:
    generator = np.random.default_rng(seed)
    homes = ShardMap.from_homes(np.arange(num_ids) % num_shards, num_shards)
    copies = np.full((num_shards, num_ids), -1, np.int32)
    for shard in range(num_shards):
        others = np.flatnonzero((homes.shard_of != shard) & (generator.random(num_ids) < 0.3))
        copies[shard, : others.size] = others
    return homes.with_copies(copies)


def _least_busiest(shard_map: ShardMap, loads: npt.NDArray[np.int64], single: npt.NDArray[np.int64]) -> float:
    """The busiest shard's load under the best split: variables are the part of each id in each slot, and that load."""
    several = np.flatnonzero((shard_map.num_copies > 0) & (shard_map.num_copies < shard_map.num_shards - 1)).tolist()
    if not several:
        return float(single.max())
    slots = [(shard, token) for shard, row in enumerate(shard_map.token_at.tolist()) for token in row if token in several]
    whole = np.array([[float(token == each) for _, token in slots] + [0.0] for each in several])
    below = np.array([[float(shard == each) for shard, _ in slots] + [-1.0] for each in range(shard_map.num_shards)])
    cost = np.array([0.0] * len(slots) + [1.0])
    found = linprog(cost, A_ub=below, b_ub=-single, A_eq=whole, b_eq=loads[several])
    assert found.fun is not None
    return float(found.fun)


@settings(max_examples=60)
@given(seed=st.integers(0, 10**6), num_ids=st.integers(1, 14), num_shards=st.integers(2, 5))
def test_the_split_is_as_even_as_can_be(seed: int, num_ids: int, num_shards: int) -> None:
    generator = np.random.default_rng(seed)
    shard_map = _map_with_copies(seed, num_ids, num_shards)
    loads = generator.integers(0, 10**6, num_ids)
    single = generator.integers(0, 10**6, num_shards)
    split = split_load(shard_map, loads, single)
    assert (split >= 0).all()
    several = (shard_map.num_copies > 0) & (shard_map.num_copies < num_shards - 1)
    assert int(split.sum()) == pytest.approx(int(loads[several].sum()), abs=num_shards)
    assert float((split + single).max()) == pytest.approx(_least_busiest(shard_map, loads, single), rel=1e-4, abs=2)


def test_without_copies_nothing_is_split() -> None:
    shard_map = ShardMap.from_homes(np.array([0, 1, 0]), 2)
    assert split_load(shard_map, np.array([3, 2, 1]), np.array([4, 2])).tolist() == [0, 0]


def test_ids_on_every_shard_count_nowhere() -> None:
    shard_map = ShardMap.from_homes(np.array([0, 1, 0]), 2).with_copies(np.array([[1], [0]]))
    assert split_load(shard_map, np.array([30, 20, 1]), np.array([1, 0])).tolist() == [0, 0]
