"""Steps: consecutive windows in order, seeded draws where there are too few."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool import Profile
from skewtool.profiling import WindowContent
from skewtool.skew.steps import DRAWN_STEPS, consecutive_steps, drawn_steps, sample_windows

Steps = list[list[int]]


def _windows(number: int) -> list[WindowContent]:
    """Window k holds the id k once."""
    return [(np.array([k], np.int32), np.array([1], np.int32)) for k in range(number)]


def _names(steps: Iterator[list[WindowContent]]) -> Steps:
    return [[int(ids[0]) for ids, _ in step] for step in steps]


@given(st.integers(0, 60), st.integers(1, 9))
def test_consecutive_steps_are_groups_in_order(number: int, num_ranks: int) -> None:
    steps = _names(consecutive_steps(iter(_windows(number)), num_ranks))
    if number >= num_ranks:
        assert steps == [list(range(first, first + num_ranks)) for first in range(0, number - num_ranks + 1, num_ranks)]
    else:
        assert len(steps) == (DRAWN_STEPS if number else 0)
        assert all(len(step) == num_ranks and set(step) <= set(range(number)) for step in steps)


def test_consecutive_steps_are_made_as_they_are_needed() -> None:
    taken = 0

    def windows() -> Iterator[WindowContent]:
        nonlocal taken
        for window in _windows(100):
            taken += 1
            yield window

    next(consecutive_steps(windows(), 4))
    assert taken == 4


def test_draws_are_seeded() -> None:
    first, same, other = (_names(drawn_steps(_windows(20), 4, seed)) for seed in (3, 3, 4))
    assert first == same != other
    assert _names(drawn_steps(_windows(20), 4, 3, num_steps=5)) == first[:5]


@given(st.integers(1, 12), st.integers(1, 12))
def test_draws_repeat_only_where_they_must(number: int, num_ranks: int) -> None:
    steps = _names(drawn_steps(_windows(number), num_ranks, num_steps=10))
    assert len(steps) == 10
    for step in steps:
        assert len(step) == num_ranks
        if number >= num_ranks:
            assert len(set(step)) == num_ranks


def test_no_windows_make_no_steps() -> None:
    assert _names(drawn_steps([], 4)) == []
    assert _names(consecutive_steps([], 4)) == []


def test_draws_leave_the_global_generator_alone() -> None:
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.rand()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    list(drawn_steps(_windows(9), 3))
    assert np.random.rand() == expected  # noqa: NPY002


def test_sample_windows_are_those_of_the_profile(profile_of: Callable[..., Profile]) -> None:
    profile = profile_of([3, 3, 1, 3, 2, 2, 2, 2, 0], 5, windows=(4,))
    found = [(ids.tolist(), counts.tolist()) for ids, counts in sample_windows(profile.window(4).sample)]
    assert found == [([1, 3], [1, 3]), ([2], [4])]  # the shorter tail is no step


@pytest.mark.parametrize("num_ranks", [1, 5])
def test_every_window_can_be_drawn(num_ranks: int) -> None:
    drawn = {name for step in _names(drawn_steps(_windows(6), num_ranks)) for name in step}
    assert drawn == set(range(6))
