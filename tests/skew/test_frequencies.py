"""Shares of the hottest ids and the rank-frequency slope."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool.skew import hottest_share, rank_frequency_slope


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=50), st.integers(0, 60))
def test_hottest_share_equals_a_plain_sum(counts: list[int], num_ids: int) -> None:
    expected = sum(sorted(counts, reverse=True)[:num_ids]) / sum(counts) if sum(counts) else 0.0
    assert hottest_share(np.array(counts, np.int64), num_ids) == expected


def test_no_tokens_have_no_share() -> None:
    assert hottest_share(np.zeros(5, np.int64), 3) == 0.0
    assert hottest_share(np.array([4, 0, 0], np.int64), 1) == 1.0


@pytest.mark.parametrize("exponent", [0.7, 1.0, 1.5])
def test_the_slope_of_a_power_law_is_its_exponent(exponent: float) -> None:
    counts = (1e9 / np.arange(1, 5001) ** exponent).astype(np.int64)
    shuffled = np.random.default_rng(0).permutation(counts)
    assert rank_frequency_slope(shuffled) == pytest.approx(-exponent, abs=0.01)


def test_the_slope_is_a_plain_float() -> None:
    assert type(rank_frequency_slope((10**6 // np.arange(1, 200)).astype(np.int64))) is float


@pytest.mark.parametrize(
    "counts", [[0] * 50, [7] * 50, [10**9], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0], [10, 11, 12, 13, 14, 15, 16, 17, 18] * 5]
)
def test_few_distinct_counts_have_no_slope(counts: list[int]) -> None:
    assert rank_frequency_slope(np.array(counts, np.int64)) is None


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=200))
def test_any_counts_give_a_falling_slope_or_none(counts: list[int]) -> None:
    slope = rank_frequency_slope(np.array(counts, np.int64))
    assert slope is None or (np.isfinite(slope) and slope <= 1e-9)
