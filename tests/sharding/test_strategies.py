"""Each strategy against the sentence that defines it."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skewtool.sharding import STRATEGIES

LOADS = st.lists(st.integers(0, 10**18), min_size=1, max_size=50)
SHARDS = st.integers(1, 60)


def _homes(name: str, loads: list[int], num_shards: int, seed: int = 0) -> list[int]:
    homes = STRATEGIES[name](np.array(loads, np.int64), num_shards, seed)
    assert homes.dtype == np.int32
    return [int(shard) for shard in homes]


def test_the_names_that_users_know() -> None:
    assert {"contiguous", "strided", "snake", "random", "balanced"} <= set(STRATEGIES)


@pytest.mark.parametrize("name", sorted(STRATEGIES))
@given(loads=LOADS, num_shards=SHARDS, seed=st.integers(-(2**63), 2**63))
@example(loads=[0], num_shards=4, seed=0)
@example(loads=[0, 0, 9, 0], num_shards=1, seed=0)
def test_rows_are_equal_within_one(name: str, loads: list[int], num_shards: int, seed: int) -> None:
    homes = _homes(name, loads, num_shards, seed)
    rows = np.bincount(homes, minlength=num_shards)
    assert rows.size == num_shards
    assert rows.sum() == len(loads)
    if name == "contiguous":
        assert rows.max() == -(-len(loads) // num_shards)
    else:
        assert rows.max() - rows.min() <= 1


@pytest.mark.parametrize("name", sorted(STRATEGIES))
def test_the_same_input_gives_the_same_map(name: str) -> None:
    loads = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    assert _homes(name, loads, 3, 7) == _homes(name, loads, 3, 7)


@given(st.integers(1, 60), SHARDS)
def test_contiguous_is_equal_ranges_the_last_shorter_or_empty(vocab_size: int, num_shards: int) -> None:
    rows = -(-vocab_size // num_shards)
    expected = [shard for shard in range(num_shards) for _ in range(rows)][:vocab_size]
    assert _homes("contiguous", [1] * vocab_size, num_shards) == expected


def test_contiguous_leaves_shards_empty_as_frameworks_do() -> None:
    assert np.bincount(_homes("contiguous", [1] * 10, 8), minlength=8).tolist() == [2, 2, 2, 2, 2, 0, 0, 0]


@given(st.integers(1, 60), SHARDS)
def test_strided_is_the_rest_of_a_division(vocab_size: int, num_shards: int) -> None:
    assert _homes("strided", [1] * vocab_size, num_shards) == [i % num_shards for i in range(vocab_size)]


@given(LOADS, SHARDS)
def test_snake_goes_to_and_fro(loads: list[int], num_shards: int) -> None:
    to_and_fro = [*range(num_shards), *reversed(range(num_shards))]
    expected = [0] * len(loads)
    for place, token in enumerate(sorted(range(len(loads)), key=lambda i: (-loads[i], i))):
        expected[token] = to_and_fro[place % len(to_and_fro)]
    assert _homes("snake", loads, num_shards) == expected


def test_random_is_seeded_and_does_not_look_at_loads() -> None:
    zeros = [0] * 64
    assert _homes("random", zeros, 4, 1) == _homes("random", list(range(64)), 4, 1)
    assert _homes("random", zeros, 4, 1) != _homes("random", zeros, 4, 2)
    assert _homes("random", zeros, 4, 1) != _homes("strided", zeros, 4)


def test_random_is_the_same_in_every_version() -> None:
    assert _homes("random", [0] * 12, 3, 0) == RANDOM_OF_12


def test_strategies_that_look_at_loads_do() -> None:
    falling, rising = [9, 7, 5, 3, 2, 1], [1, 2, 3, 5, 7, 9]
    for name in ("snake", "balanced"):
        assert _homes(name, falling, 2) == _homes(name, rising, 2)[::-1]


def test_balanced_takes_sums_beyond_64_bits() -> None:
    loads = [2**63 - 1] * 6 + [0] * 3
    homes = _homes("balanced", loads, 3)
    assert [sum(1 for i in range(6) if homes[i] == shard) for shard in range(3)] == [2, 2, 2]
    assert np.bincount(homes).tolist() == [3, 3, 3]


RANDOM_OF_12 = [2, 1, 2, 0, 0, 2, 1, 2, 1, 0, 0, 1]
"""Never to be changed: maps of seeded users depend on it."""
