"""Exchanges between shards: each one against trying all, and the curve they leave."""

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st

from skewtool.sharding.exchanges import _best, _front, _members, exchange


def _cost(old: list[int], token: int, here: int, there: int) -> int:
    return (old[token] == here) - (old[token] == there)


def _score(loads: list[int], old: list[int], shard_of: list[int], allowed: int, load: list[int]) -> tuple[bool, float]:
    """The best (free, gain per moved row) of all exchanges of the busiest shard with those below the mean."""
    num_shards, high = len(load), load.index(max(load))
    mean = sum(load) // num_shards
    rows = [shard_of.count(shard) for shard in range(num_shards)]
    best = (False, 0.0)
    for low in range(num_shards):
        difference = 2 * min(load[high] - mean, mean - load[low])
        if difference <= 1:
            continue
        takers: list[int | None] = [token for token, shard in enumerate(shard_of) if shard == low]
        for given_ in (token for token, shard in enumerate(shard_of) if shard == high):
            for taken in [*takers, *([None] if rows[high] > rows[low] else [])]:
                delta = loads[given_] - (0 if taken is None else loads[taken])
                cost = _cost(old, given_, high, low) + (0 if taken is None else _cost(old, taken, low, high))
                gained = difference - abs(difference - 2 * delta)
                if cost <= allowed and 0 < delta < difference and gained > 0:
                    best = max(best, (cost <= 0, gained / max(cost, 1)))
    return best


@settings(max_examples=200)
@given(st.data())
def test_the_best_exchange_is_the_best_of_all(data: st.DataObject) -> None:
    size, num_shards = data.draw(st.integers(2, 16)), data.draw(st.integers(2, 5))
    shard = st.integers(0, num_shards - 1)
    loads = data.draw(st.lists(st.integers(0, 30), min_size=size, max_size=size))
    shard_of = data.draw(st.lists(shard, min_size=size, max_size=size))
    old = data.draw(st.lists(st.integers(-1, num_shards), min_size=size, max_size=size))
    allowed = data.draw(st.integers(0, 2))
    homes, amounts, before = np.array(shard_of, np.int32), np.array(loads, np.int64), np.array(old, np.int32)
    rows = np.bincount(homes, minlength=num_shards)
    members, sizes = _members(amounts, homes, np.arange(size), size + 1, num_shards)
    load = np.bincount(homes, amounts, num_shards).astype(np.int64)
    mean = int(load.sum()) // num_shards
    low, given_, taken, cost = _best(amounts, before, members, sizes, load, rows, rows, mean, allowed)
    free, score = _score(loads, old, shard_of, allowed, load.tolist())
    if low < 0:
        assert (free, score) == (False, 0.0)
        return
    high = int(np.argmax(load))
    assert (shard_of[given_], shard_of[taken] if taken >= 0 else low) == (high, low)
    assert cost == _cost(old, given_, high, low) + (_cost(old, taken, low, high) if taken >= 0 else 0)
    difference = 2 * min(load[high] - mean, mean - load[low])
    delta = loads[given_] - (loads[taken] if taken >= 0 else 0)
    found = (difference - abs(difference - 2 * delta)) / max(cost, 1)
    assert ((cost <= 0), float(found)) == (free, score)


def _exchanged(loads: list[int], shard_of: list[int], most_moved: int) -> tuple[npt.NDArray[np.int32], int]:
    homes, amounts = np.array(shard_of, np.int32), np.array(loads, np.int64)
    num_shards = int(homes.max()) + 1
    movable = np.ones(homes.size, np.bool_)
    found = exchange(amounts, homes, homes, homes.size, movable, np.zeros(num_shards, np.int64), 0, most_moved)
    return found.shard_of, found.curve[-1][1]


def test_a_hand_over_costs_one_row_and_an_exchange_two() -> None:
    shard_of, busiest = _exchanged([5, 3, 3, 4], [0, 0, 0, 1], 1)
    assert (shard_of.tolist(), busiest) == ([0, 1, 0, 1], 8)  # of equal rows the lower id
    assert _exchanged([5, 3, 3, 1], [0, 0, 1, 1], 1)[1] == 8
    shard_of, busiest = _exchanged([5, 3, 3, 1], [0, 0, 1, 1], 2)
    assert (shard_of.tolist(), busiest) == ([1, 0, 0, 1], 6)


def test_ids_that_may_not_move_stay() -> None:
    homes, amounts = np.array([0, 0, 1, 1], np.int32), np.array([0, 0, 3, 1])
    movable = np.array([False, False, True, True])
    found = exchange(amounts, homes, homes, 4, movable, np.array([8, 0]), 0, 4)
    assert (found.shard_of == homes).all()
    assert found.curve == ((0, 8),)


def test_the_front_keeps_what_no_other_state_beats() -> None:
    assert _front([(4, 90), (6, 90), (8, 80), (7, 80), (9, 70), (9, 60)]) == ((4, 90), (7, 80), (9, 60))
    assert _front([(4, 90), (3, 85)]) == ((3, 85),)
