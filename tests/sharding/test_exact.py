"""The search and the integer program against brute force, and what the printed gap of small tables says."""

from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from skewtool.sharding import assess, partition
from skewtool.sharding.balance import balanced_homes
from skewtool.sharding.exact import milp_bound, proved_bound, searched_homes


def _busiest(loads: npt.NDArray[np.int64], homes: npt.NDArray[np.int32], num_shards: int) -> int:
    return max(int(loads[homes == shard].sum()) for shard in range(num_shards))


def _optimum(loads: npt.NDArray[np.int64], num_shards: int) -> int:
    """All assignments with equal rows."""
    homes = np.array(list(product(range(num_shards), repeat=loads.size)))
    on_shard = homes[:, :, None] == np.arange(num_shards)
    rows = on_shard.sum(axis=1)
    equal = np.ptp(rows, axis=1) <= 1
    return int((on_shard * loads[None, :, None]).sum(axis=1).max(axis=1)[equal].min())


def _random_case(seed: int, most_ids: int, most_shards: int) -> tuple[npt.NDArray[np.int64], int]:
    generator = np.random.default_rng(seed)
    size = int(generator.integers(1, most_ids + 1))
    num_shards = int(generator.integers(1, most_shards + 1))
    if seed % 2:
        return (10_000 / np.arange(1, size + 1)).astype(np.int64), num_shards
    return generator.integers(0, 10 ** int(generator.integers(1, 6)), size), num_shards


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_balanced_is_the_optimum_of_200_random_small_cases(first: int) -> None:
    for seed in range(first, first + 20):
        loads, num_shards = _random_case(seed, 8, 4)
        homes = balanced_homes(loads, num_shards)
        assert _busiest(loads, homes, num_shards) == _optimum(loads, num_shards), (loads, num_shards)


@pytest.mark.parametrize("seed", range(12))
def test_balanced_agrees_with_the_integer_program(seed: int) -> None:
    loads, num_shards = _random_case(seed, 14, 4)
    busiest = _busiest(loads, balanced_homes(loads, num_shards), num_shards)
    assert milp_bound(loads, num_shards) == busiest == proved_bound(loads, num_shards, 0, busiest)


def test_the_search_finds_what_it_is_asked_for() -> None:
    loads = np.array([8, 7, 6, 5, 4, 4], np.int64)  # 8 + 5 + 4 and 7 + 6 + 4
    homes = searched_homes(loads, 2, bound=17, busiest=19)
    assert homes is not None
    assert _busiest(loads, homes, 2) == 17


def test_nothing_better_is_none() -> None:
    assert searched_homes(np.array([3, 2, 1], np.int64), 3, bound=3, busiest=3) is None


def test_small_tables_show_no_gap() -> None:
    loads = [50, 30, 5, 5, 4, 3, 2, 1, 44]
    balance = assess(np.array(loads), partition(loads, 4))
    assert balance.gap == 0.0


def test_loads_beyond_exact_floats_are_left_to_the_search() -> None:
    loads = np.array([2**55, 2**55 + 1, 2**54, 3], np.int64)
    assert milp_bound(loads, 2) == 0
    assert _busiest(loads, balanced_homes(loads, 2), 2) == _optimum(loads, 2)
