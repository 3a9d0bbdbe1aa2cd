"""`rebalance`: equal rows, budgets and replay for anything; nothing moves for the same loads; drift costs few rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skewtool import Profile, ShardMap, partition
from skewtool.errors import MapError, ProfileError
from skewtool.sharding import Rebalanced, apply_moves, assess, lower_bound, rebalance

COUNTS = st.one_of(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.lists(st.integers(0, 10**18), min_size=1, max_size=60),
    st.builds(lambda size, hot: [0] * hot + [10**18] + [0] * size, st.integers(0, 30), st.integers(0, 30)),
    st.builds(lambda size, load: [load] * size, st.integers(1, 40), st.integers(0, 10**18)),
)
SHARDS = st.integers(1, 12)
STARTS = st.sampled_from(["balanced", "random", "strided", "contiguous", "snake"])


def _rows(shard_map: ShardMap, ids: "slice[Any, Any, Any]" = slice(None)) -> npt.NDArray[np.int64]:
    return np.bincount(shard_map.shard_of[ids], minlength=shard_map.num_shards)


def _check_equal_rows(shard_map: ShardMap) -> None:
    """All rows, those of real ids and those of padding ids, each within one."""
    for ids in (slice(None), slice(0, shard_map.real_vocab), slice(shard_map.real_vocab, None)):
        rows = _rows(shard_map, ids)
        assert rows.max() - rows.min() <= 1


def _check(old: ShardMap, loads: npt.NDArray[np.int64], made: Rebalanced, most_moved: int | None = None) -> None:
    """What holds for any rebalancing, by the maps alone."""
    new = made.shard_map
    replayed = apply_moves(old, made.moves, new.num_shards, new.home_slots, new.real_vocab)
    assert replayed == new
    ids, known = made.moves[:, 0], made.moves[:, 1] >= 0
    assert ids.tolist() == sorted(set(ids.tolist()))
    assert ids[~known].tolist() == list(range(old.vocab_size, new.vocab_size))
    assert (made.moves[:, 1:3] != made.moves[:, 3:]).any(axis=1).all()
    moved = int(np.count_nonzero(old.shard_of != new.shard_of[: old.vocab_size]))
    assert made.moved_rows == made.forced + made.chosen == moved
    assert made.forced <= moved
    assert made.new_rows == new.vocab_size - old.vocab_size
    assert made.slot_changes == len(made.moves) - moved - made.new_rows
    if most_moved is not None:
        assert moved <= most_moved
    busiest = [made.curve[0][0], *(point[0] for point in made.curve)]
    assert busiest == sorted(busiest)
    assert [point[1] for point in made.curve] == sorted((point[1] for point in made.curve), reverse=True)
    assert made.curve[-1] == (moved, made.after.imbalance)
    if not old.has_copies:
        _check_equal_rows(new)
        balance = assess(loads, new) if new.vocab_size > 100 else None  # of small tables that takes an integer program
        per_shard = [sum(loads[row[row >= 0]].tolist()) for row in new.token_at]
        expected = max(per_shard) * len(per_shard) / sum(per_shard) if any(per_shard) else 1.0
        assert made.after.imbalance == pytest.approx(expected, rel=1e-9)
        assert balance is None or balance.imbalance == pytest.approx(expected, rel=1e-9)


def _fewest(old: ShardMap, loads: npt.NDArray[np.int64], num_shards: int) -> int:
    """The least budget, from the error's own words."""
    try:
        rebalance(old, loads, num_shards=num_shards, max_moved=0)
    except MapError as error:
        return int(str(error).split()[-1])
    return 0


@settings(max_examples=200)
@given(st.data())
def test_any_loads_shards_and_budget(data: st.DataObject) -> None:
    old_loads, loads = data.draw(COUNTS), np.array(data.draw(COUNTS), np.int64)
    real = data.draw(st.integers(max(1, len(old_loads) - 9), len(old_loads)))
    strategy = data.draw(STARTS)
    old = partition(old_loads[:real] + [0] * (len(old_loads) - real), data.draw(SHARDS), strategy, real_vocab=real)
    num_shards = data.draw(st.one_of(st.just(old.num_shards), SHARDS))
    full = np.pad(loads, (0, max(0, old.vocab_size - loads.size)))
    new_real = max(real, int(np.flatnonzero(loads).max(initial=0)) + 1)
    try:
        rebalance(old, loads, num_shards=num_shards, max_moved=0, real_vocab=new_real)
        fewest = 0
    except MapError as error:
        fewest = int(str(error).split()[-1])
        assert fewest > 0
        with pytest.raises(MapError, match=f"at least {fewest}$"):
            rebalance(old, loads, num_shards=num_shards, max_moved=fewest - 1, real_vocab=new_real)
    budget = fewest + data.draw(st.integers(0, 10))
    made = rebalance(old, loads, num_shards=num_shards, max_moved=budget, real_vocab=new_real)
    _check(old, full, made, budget)
    assert made.forced == fewest
    again = rebalance(old, loads, num_shards=num_shards, max_moved=budget, real_vocab=new_real)
    assert again.shard_map == made.shard_map


@settings(max_examples=100)
@given(counts=COUNTS, num_shards=SHARDS, padding=st.integers(0, 9), budget=st.sampled_from([0, 5, "100%"]))
def test_the_same_loads_move_nothing(counts: list[int], num_shards: int, padding: int, budget: int | str) -> None:
    old = partition(counts + [0] * padding, num_shards, real_vocab=len(counts))
    made = rebalance(old, counts, max_moved=budget)
    assert made.shard_map.fingerprint == old.fingerprint
    assert made.moves.shape == (0, 5)
    assert made.curve == ((0, made.before.imbalance),)


@settings(max_examples=60)
@given(counts=COUNTS, old_shards=SHARDS, num_shards=SHARDS)
def test_equal_rows_move_as_few_as_can_be(counts: list[int], old_shards: int, num_shards: int) -> None:
    loads = np.array(counts, np.int64)
    old = partition(loads, old_shards)
    # Each remaining shard can keep at most ceil(V / P) of its rows, and only V % P shards that many.
    kept = np.sort(_rows(old)[:num_shards])[::-1]
    fewest, larger = divmod(loads.size, num_shards)
    capacity = fewest + (np.arange(kept.size) < larger)
    assert _fewest(old, loads, num_shards) == loads.size - int(np.minimum(kept, capacity).sum())


@pytest.mark.parametrize(("old_shards", "num_shards"), [(4, 8), (8, 6), (8, 8), (3, 7), (7, 3), (1, 5), (5, 1)])
def test_other_shards_are_even_with_no_more_than_the_forced_moves(old_shards: int, num_shards: int) -> None:
    loads = (10**8 // np.arange(1, 3001) ** 0.8).astype(np.int64)
    old = partition(loads, old_shards)
    fewest = _fewest(old, loads, num_shards)
    made = rebalance(old, loads, num_shards=num_shards, max_moved=fewest)
    _check(old, loads, made, fewest)
    assert made.after.imbalance == pytest.approx(lower_bound(loads, num_shards) / loads.sum() * num_shards, abs=1e-4)
    # A row that stays on its shard keeps its slot unless the shard no longer has that slot.
    stay = np.flatnonzero(made.shard_map.shard_of == old.shard_of)
    kept = old.slot_of[stay] < made.shard_map.home_rows[old.shard_of[stay]]
    assert (made.shard_map.slot_of[stay[kept]] == old.slot_of[stay[kept]]).all()


def _drifting(seed: int, number: int) -> npt.NDArray[np.int64]:
    """Zipf ids in bursts: for 512 tokens one in five is of a topic of 40 ids; which topics come depends on the seed."""
    generator = np.random.default_rng(seed)
    weight = 1 / (np.arange(1, 3001) + 10)
    tokens = np.random.default_rng(99).permutation(4000)[generator.choice(3000, number, p=weight / weight.sum())]
    for first in range(0, number, 512):
        burst = tokens[first : first + 512]
        of_topic = generator.choice(generator.integers(0, 4000, 40), burst.size)
        burst[:] = np.where(generator.random(burst.size) < 0.2, of_topic, burst)
    return tokens


@pytest.mark.parametrize("num_shards", [4, 8, 16])
@pytest.mark.parametrize("load", ["unique", "raw"])
def test_drift_is_undone_by_one_percent_of_rows(profile_of: Callable[..., Profile], num_shards: int, load: Any) -> None:
    first, second = (profile_of(_drifting(seed, 120_000), 4000, windows=(512,)) for seed in (1, 2))
    old = partition(first, num_shards, load=load)
    made = rebalance(old, second, load=load)
    loads = second.counts if load == "raw" else second.window(512).presence
    _check(old, loads, made, 40)
    fresh = assess(loads, partition(second, num_shards, load=load)).imbalance
    assert made.before.imbalance == pytest.approx(assess(loads, old).imbalance)
    assert made.before.imbalance > fresh + 0.001
    assert made.after.imbalance <= fresh + 0.005
    assert len(rebalance(made.shard_map, second, load=load).moves) == 0


def test_exchanges_stop_when_rows_would_move_for_nothing() -> None:
    # Two shards are equally busy; with a budget for one exchange the busiest shard stays as busy.
    old = ShardMap.from_homes(np.array([0, 0, 1, 1, 2, 2, 3, 3]), 4)
    loads = [9, 9, 9, 9, 1, 1, 1, 1]
    assert len(rebalance(old, loads, max_moved=2).moves) == 0
    made = rebalance(old, loads, max_moved=4)
    assert made.curve == ((0, 1.8), (4, 1.0))
    assert made.moved_rows == 4


def test_added_tokens_get_rows_and_nothing_else_moves(profile_of: Callable[..., Profile]) -> None:
    loads = np.append((10**6 // np.arange(1, 1001)).astype(np.int64), [5000, 4000, 0, 300, 0])
    old = partition(loads[:1000], 8)
    made = rebalance(old, loads, max_moved=0)
    _check(old, loads, made, 0)
    assert (made.forced, made.chosen, made.new_rows, made.shard_map.real_vocab) == (0, 0, 5, 1005)
    assert (made.shard_map.shard_of[:1000] == old.shard_of).all()
    assert (made.shard_map.slot_of[:1000] == old.slot_of).all()
    # Added tokens may also take the place of padding ids: the tokenizer says how many there are.
    padded = partition([5, 4, 3, 2, 0, 0], 2, real_vocab=4)
    profile = profile_of([0, 1, 2, 3, 4], 6, windows=(4,), num_token_ids=5)
    assert rebalance(padded, profile, max_moved="100%").shard_map.real_vocab == 5
    assert rebalance(padded, profile_of([0, 1], 6, windows=(4,))).shard_map.real_vocab == 4


def test_ids_beyond_the_profile_have_no_load() -> None:
    old = partition([9, 8, 7, 6, 5, 4], 2)
    made = rebalance(old, [9, 8, 7], max_moved="100%")
    _check(old, np.array([9, 8, 7, 0, 0, 0]), made)
    assert made.after.busiest == 15


def test_padded_home_slots_stay() -> None:
    loads = (10**6 // np.arange(1, 101)).astype(np.int64)
    old = partition(loads, 4, pad_to=16)
    made = rebalance(old, np.roll(loads, 7), max_moved="20%")
    _check(old, np.roll(loads, 7), made, 20)
    assert made.chosen > 0
    assert made.shard_map.home_slots == old.home_slots == 32
    assert rebalance(old, loads, num_shards=5, max_moved="100%").shard_map.home_slots == 20


@pytest.mark.parametrize("load", ["unique", "raw"])
@pytest.mark.parametrize("num_shards", [4, 8])
def test_copies_and_their_homes_stay(profile_of: Callable[..., Profile], num_shards: int, load: Any) -> None:
    first, second = (profile_of(_drifting(seed, 60_000), 4000, windows=(512,), sample_size=64) for seed in (1, 2))
    old = partition(first, num_shards, load=load, extra_rows="1%")
    assert old.has_copies
    same = rebalance(old, first, load=load)
    assert same.shard_map.fingerprint == old.fingerprint
    made = rebalance(old, second, load=load)
    _check(old, second.counts, made, 40)
    new = made.shard_map
    _check_equal_rows(new)
    assert (new.token_at[:, new.home_slots :] == old.token_at[:, old.home_slots :]).all()
    copied = old.num_copies > 0
    assert (new.shard_of[copied] == old.shard_of[copied]).all()
    assert made.after.imbalance <= made.before.imbalance
    with pytest.raises(MapError, match="partition --shards 3 --extra-rows"):
        rebalance(old, second, num_shards=3)
    with pytest.raises(MapError, match="partition --shards 3 --extra-rows"):
        apply_moves(old, made.moves, 3, 9999)


def test_drift_around_copies_is_evened_out() -> None:
    generator = np.random.default_rng(0)
    loads = generator.permutation(10**6 // np.arange(1, 2001) ** 0.7).astype(np.int64)
    old = partition(np.roll(loads, 9), 4, extra_rows=2)
    made = rebalance(old, loads, max_moved="2%")
    _check(old, loads, made, 40)
    assert made.before.imbalance > 1.001
    assert made.after.imbalance < 1.0001


def test_equal_rows_that_copies_forbid() -> None:
    # Shard 0 has three rows, all with copies on the other shard.
    homes = ShardMap.from_homes(np.array([0, 0, 0, 1]), 2)
    old = homes.with_copies(np.array([[-1, -1, -1], [0, 1, 2]]))
    with pytest.raises(MapError, match="shard 0 must give 1 rows for equal rows, but only 0 of its ids have no copies"):
        rebalance(old, [4, 3, 2, 1])


@pytest.mark.parametrize(
    ("loads", "options", "message"),
    [
        ([1, -1, 0, 0], {}, "id 1 has load -1"),
        ([], {}, "non-empty"),
        ([1, 2, 3, 4], {"num_shards": 0}, "at least 1, got 0"),
        ([1, 2, 3, 4], {"max_moved": "x"}, "rows or a percentage such as 10%, got 'x'"),
        ([1, 2, 3, 4], {"max_moved": "nan%"}, "max_moved"),
        ([1, 2, 3, 4], {"max_moved": "inf%"}, "max_moved"),
        ([1, 2, 3, 4], {"max_moved": -1}, "must not be negative, got -1"),
        ([1, 2, 3, 4], {"max_moved": "-1%"}, "must not be negative"),
        ([1, 2, 3, 4], {"real_vocab": 5}, "real_vocab must be 1 to the 4 ids"),
        ([1, 2, 3, 4], {"real_vocab": 3}, r"id 3 has load 4 but is a padding id \(real_vocab is 3\)"),
        ([1, 2, 3, 4], {"num_shards": 4}, "equal rows on 4 shards need 2 of 4 rows moved, max_moved allows 0; .* least 2"),
    ],
)
def test_bad_parameters_are_named(loads: list[int], options: dict[str, Any], message: str) -> None:
    with pytest.raises(MapError, match=message):
        rebalance(ShardMap.from_homes(np.array([0, 1, 0, 1]), 2), loads, **options)


def test_a_profile_without_the_windows(profile_of: Callable[..., Profile]) -> None:
    profile = profile_of([0, 1, 2, 3] * 8, 4, windows=(8,))
    with pytest.raises(ProfileError, match="no windows of 5"):
        rebalance(partition(profile, 2), profile, tokens_per_rank=5)
    with pytest.raises(MapError, match="unknown load"):
        rebalance(partition(profile, 2), profile, load="bytes")  # type: ignore[arg-type]
