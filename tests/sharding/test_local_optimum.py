"""What the phases of the balanced partition promise, checked on their results."""

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from skewtool.sharding.balance import balanced_homes
from skewtool.sharding.bursts import AVERAGE_WEIGHT, Bursts
from skewtool.sharding.exact import SMALL_IDS


def _better_exchange(loads: npt.NDArray[np.int64], homes: npt.NDArray[np.int32], num_shards: int) -> str | None:
    """An exchange, or a row handed over, that lowers the busiest shard below what it had without raising another to it."""
    load = np.bincount(homes, weights=loads, minlength=num_shards)
    rows = np.bincount(homes, minlength=num_shards)
    high = int(load.argmax())
    if load[high] <= -(-int(loads.sum()) // num_shards):
        return None
    for low in range(num_shards):
        given_away = loads[homes == high]
        taken = [*loads[homes == low], *([0] if rows[high] > rows[low] else [])]
        change = given_away[:, None] - np.array(taken, np.int64)[None, :]
        if ((change > 0) & (change < load[high] - load[low])).any():
            return f"between {high} and {low}"
    return None


@settings(max_examples=150)
@given(st.data())
def test_no_exchange_helps_the_busiest_shard(data: st.DataObject) -> None:
    num_shards = data.draw(st.integers(2, 9))
    size = data.draw(st.integers(SMALL_IDS + 1, SMALL_IDS + 40))
    loads = np.array(data.draw(st.lists(st.integers(0, 10**6), min_size=size, max_size=size)), np.int64)
    homes = balanced_homes(loads, num_shards)
    assert np.ptp(np.bincount(homes, minlength=num_shards)) <= 1
    assert _better_exchange(loads, homes, num_shards) is None


@given(st.lists(st.integers(0, 1000), min_size=SMALL_IDS + 1, max_size=80), st.integers(1, 9))
def test_without_windows_only_the_average_counts(loads: list[int], num_shards: int) -> None:
    """Then dealing apart is the plain greedy rule."""
    nothing = Bursts(np.zeros(len(loads) + 1, np.int64), np.empty(0, np.int32), 1, 1, AVERAGE_WEIGHT)
    array = np.array(loads, np.int64)
    assert (balanced_homes(array, num_shards, nothing) == balanced_homes(array, num_shards)).all()


def test_a_row_is_handed_over_where_that_alone_helps() -> None:
    """35 rows on 4 shards: the busiest shard of the greedy rule has the row too many, and every row to swap is too large."""
    hot = [92, 59, 90, 50, 52, 99, 70, 85, 58]
    places = [0, 6, 8, 13, 16, 21, 25, 31, 33]
    loads = np.ones(35, np.int64)
    loads[[1, 4, 5, 7, 9, 15, 17, 19, 22, 23, 24, 26, 27, 29, 30, 34]] = 2
    loads[places] = hot
    assert _better_exchange(loads, balanced_homes(loads, 4), 4) is None
