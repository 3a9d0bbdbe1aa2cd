"""The lower bound against trying all maps of equal rows, and balances against plain sums."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skewtool.sharding import Balance, ShardMap, assess, lower_bound
from skewtool.sharding.balance import balanced_homes
from skewtool.sharding.loads import exact_sum

LOADS = st.one_of(
    st.lists(st.integers(0, 4), min_size=1, max_size=7),
    st.lists(st.integers(0, 1000), min_size=1, max_size=7),
    st.lists(st.integers(0, 10**18), min_size=1, max_size=7),
    st.lists(st.integers(2**63 - 9, 2**63 - 1), min_size=1, max_size=7),
)


def _best(loads: list[int], num_shards: int) -> int:
    """The smallest busiest load of all maps whose shards differ by at most one row."""
    fewest, one_more = divmod(len(loads), num_shards)
    limits = [fewest + 1] * one_more + [fewest] * (num_shards - one_more)
    best = sum(loads)
    order = sorted(loads, reverse=True)

    def place(number: int, rows: list[int], load: list[int]) -> None:
        nonlocal best
        if max(load) >= best:
            return
        if number == len(order):
            best = max(load)
            return
        tried = set()
        for shard in range(num_shards):
            state = (limits[shard], rows[shard], load[shard])
            if rows[shard] < limits[shard] and state not in tried:
                tried.add(state)
                rows[shard] += 1
                load[shard] += order[number]
                place(number + 1, rows, load)
                rows[shard] -= 1
                load[shard] -= order[number]

    place(0, [0] * num_shards, [0] * num_shards)
    return best


def _best_by_permutation(loads: list[int], num_shards: int) -> int:
    """The same, with nothing clever in it."""
    fewest, one_more = divmod(len(loads), num_shards)
    shard_of = [s for s in range(num_shards) for _ in range(fewest + (s < one_more))]
    return min(
        max(sum(load for load, shard in zip(loads, order, strict=True) if shard == s) for s in range(num_shards))
        for order in set(permutations(shard_of))
    )


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(1, 4))
@settings(max_examples=25)
def test_the_search_of_these_tests_is_right(loads: list[int], num_shards: int) -> None:
    assert _best(loads, num_shards) == _best_by_permutation(loads, num_shards)


@given(LOADS, st.integers(1, 8))
@example([0], 4)
@example([1, 1, 1], 2)
@example([5, 5, 5, 5, 1], 2)
def test_no_map_of_equal_rows_is_below_the_bound(loads: list[int], num_shards: int) -> None:
    bound = lower_bound(np.array(loads, np.int64), num_shards)
    assert isinstance(bound, int)
    assert bound <= _best(loads, num_shards)
    assert bound >= -(-sum(loads) // num_shards)
    # Beyond 62 bits low bits are dropped, so the hottest id counts only up to rounding.
    assert bound >= max(loads) - (0 if sum(loads) < 2**62 else 2**12)


@given(st.lists(st.integers(0, 10**18), min_size=1, max_size=60), st.integers(1, 70))
def test_balanced_is_never_below_the_bound(loads: list[int], num_shards: int) -> None:
    array = np.array(loads, np.int64)
    shift = max(0, sum(loads).bit_length() - 62)
    balance = assess(array, ShardMap.from_homes(balanced_homes(array >> shift, num_shards), num_shards))
    assert balance.busiest >= balance.bound
    assert balance.gap >= 0
    assert balance.imbalance >= balance.lower_bound >= 1.0 - 1e-12


@pytest.mark.parametrize(
    ("loads", "num_shards", "bound"),
    [
        ([0, 0, 0], 2, 0),
        ([7], 1, 7),
        ([7], 5, 7),
        ([100, 0, 0, 0], 2, 100),
        ([10, 10, 10], 2, 20),  # two of three hot ids share a shard
        ([1, 1, 1, 1, 1], 2, 3),  # ceil(mean)
        ([10, 4, 3, 3], 2, 13),  # the hottest id needs a second row, at best the coldest
        ([6, 6, 6, 6, 6, 0, 0, 0, 0], 2, 18),  # k = 2
    ],
)
def test_known_bounds(loads: list[int], num_shards: int, bound: int) -> None:
    assert lower_bound(np.array(loads, np.int64), num_shards) == bound


@given(st.lists(st.integers(0, 2**63 - 1), max_size=50))
def test_sums_are_exact_beyond_64_bits(loads: list[int]) -> None:
    assert exact_sum(np.array(loads, np.int64)) == sum(loads)


@given(st.data())
def test_assess_equals_plain_sums(data: st.DataObject) -> None:
    num_shards = data.draw(st.integers(1, 6))
    loads = data.draw(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=20))
    homes = data.draw(st.lists(st.integers(0, num_shards - 1), min_size=len(loads), max_size=len(loads)))
    balance = assess(np.array(loads, np.int64), ShardMap.from_homes(np.array(homes, np.int32), num_shards))
    per_shard = [sum(x for x, s in zip(loads, homes, strict=True) if s == shard) for shard in range(num_shards)]
    assert balance.busiest == max(per_shard)
    assert balance.total == sum(loads)
    assert balance.imbalance == (max(per_shard) * num_shards / sum(loads) if sum(loads) else 1.0)


def test_nothing_to_do_is_balanced() -> None:
    balance = assess(np.zeros(4, np.int64), ShardMap.from_homes(np.zeros(4, np.int32), 3))
    assert (balance.imbalance, balance.lower_bound, balance.gap) == (1.0, 1.0, 0.0)


def test_gap_is_a_share_of_the_bound() -> None:
    balance = Balance(busiest=110, total=200, num_shards=2, bound=100)
    assert balance.gap == pytest.approx(0.1)
    assert balance.imbalance == pytest.approx(1.1)
    assert balance.lower_bound == pytest.approx(1.0)


def test_published_example_of_an_expert_balancer() -> None:
    loads = np.array([90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86], np.int64)
    bound = lower_bound(loads, 8)
    assert bound == 183  # the hottest id alone: rows are 2 or 1
    assert assess(loads, ShardMap.from_homes(balanced_homes(loads, 8), 8)).busiest >= bound
