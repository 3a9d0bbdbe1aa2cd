"""Loads of a profile, and loads given by users in every numeric type."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool import Profile
from skewtool.errors import MapError, ProfileError
from skewtool.sharding import LOADS, loads_of
from skewtool.sharding.loads import checked_loads

TOKENS = [0, 0, 0, 1] * 8 + [2, 2, 3, 3]  # five windows of 8, the last one shorter


def test_raw_is_every_occurrence(profile_of: Callable[..., Profile]) -> None:
    profile = profile_of(TOKENS, 6, windows=(8, 16))
    assert loads_of(profile, "raw").tolist() == [24, 8, 2, 2, 0, 0]


def test_unique_is_windows_that_hold_the_id(profile_of: Callable[..., Profile]) -> None:
    profile = profile_of(TOKENS, 6, windows=(8, 16))
    assert loads_of(profile, "unique", 8).tolist() == [4, 4, 1, 1, 0, 0]
    assert loads_of(profile, "unique", 16).tolist() == [2, 2, 1, 1, 0, 0]
    assert loads_of(profile, "unique").tolist() == [2, 2, 1, 1, 0, 0]  # the longest window


def test_windows_that_were_not_counted_are_named(profile_of: Callable[..., Profile]) -> None:
    with pytest.raises(ProfileError, match=r"no windows of 9 tokens \(it has: 8, 16\)"):
        loads_of(profile_of(TOKENS, 6, windows=(8, 16)), "unique", 9)
    with pytest.raises(ProfileError, match="--window"):
        loads_of(profile_of(TOKENS, 6, windows=()), "unique")
    assert loads_of(profile_of(TOKENS, 6, windows=()), "raw").sum() == len(TOKENS)


def test_an_unknown_load_is_named(profile_of: Callable[..., Profile]) -> None:
    assert set(LOADS) == {"unique", "raw"}
    with pytest.raises(MapError, match="unknown load 'bytes'; known are unique, raw"):
        loads_of(profile_of(TOKENS, 6), "bytes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32",
              "float64", "longdouble", ">i2", ">u4", ">i8", ">u8", ">f4", ">f8"],
)  # fmt: skip
def test_any_numeric_type_gives_the_same_loads(dtype: str) -> None:
    given_loads = np.array([1, 0, 1, 1], dtype)
    loads = checked_loads(given_loads)
    assert loads.dtype == np.int64
    assert loads.tolist() == [1, 0, 1, 1]


@pytest.mark.parametrize("container", [list, tuple, pd.Series, np.asarray])
def test_any_vector_is_taken(container: Callable[[list[int]], Any]) -> None:
    assert checked_loads(container([3, 0, 2])).tolist() == [3, 0, 2]


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=20))
def test_whole_numbers_stay_exact(loads: list[int]) -> None:
    assert checked_loads(np.array(loads, np.int64)).tolist() == loads
    assert checked_loads(np.array(loads, np.uint64)).tolist() == loads


@pytest.mark.parametrize(
    ("loads", "token", "shown"),
    [
        ([1.0, float("nan"), 2.0], 1, "nan"),
        ([float("inf"), 1.0], 0, "inf"),
        ([0.0, 1.0, float("-inf")], 2, "-inf"),
        ([3, 2, -1, -5], 2, "-1"),
        ([3.0, -1.0], 1, "-1.0"),
        ([1.0, 2.5], 1, "2.5"),
        ([1.0, 1e-300], 1, "1e-300"),
        ([1.0, 2.0**63], 1, "9.2"),
        ([1.0, 1e300], 1, "1e+300"),
        (np.array([1, 2**64 - 1], np.uint64), 1, "18446744073709551615"),
        (np.array([2**63], np.uint64), 0, "9223372036854775808"),
        (np.array([0, -128], np.int8), 1, "-128"),
        (np.array([0, np.nan], np.float32), 1, "nan"),
        (np.array([0, np.inf], np.float16), 1, "inf"),
        (np.array([0, -1], ">i4"), 1, "-1"),
        (np.array([0, np.nan], ">f8"), 1, "nan"),
    ],
)
def test_the_first_bad_id_is_named(loads: Any, token: int, shown: str) -> None:
    with pytest.raises(MapError, match=rf"id {token} has load") as caught:
        checked_loads(loads)
    assert shown in str(caught.value)


def test_large_numbers_in_foreign_byte_order_are_refused() -> None:
    with pytest.raises(MapError, match="id 1 has load 18446744073709551615"):
        checked_loads(np.array([1, 2**64 - 1], ">u8"))


def test_half_precision_is_checked_without_a_warning() -> None:
    assert checked_loads(np.array([1, 2048, 65504], np.float16)).tolist() == [1, 2048, 65504]


@pytest.mark.parametrize(
    ("loads", "message"),
    [
        ([], "non-empty vector"),
        (5, "non-empty vector"),
        ([[1, 2], [3, 4]], "non-empty vector.*2, 2"),
        (np.empty((0, 3)), "non-empty vector"),
        (["1", "2"], "must be numbers"),
        ([1 + 2j], "must be numbers"),
        ([None, 1], "must be numbers"),
        ([2**70, 1], "must be numbers"),
        (np.array(["2020-01-01"], "datetime64[D]"), "must be numbers"),
    ],
)
def test_what_is_no_vector_of_numbers_is_refused(loads: Any, message: str) -> None:
    with pytest.raises(MapError, match=message):
        checked_loads(loads)
