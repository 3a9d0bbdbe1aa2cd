"""`partition`: degenerate counts, padding, and the same bytes whatever the machine and the types."""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from skewtool import Profile, ShardMap, partition
from skewtool.errors import MapError, ProfileError
from skewtool.sharding import STRATEGIES, assess, lower_bound, real_vocab_of

BALANCED_ROWS = sorted(set(STRATEGIES) - {"contiguous"})

COUNTS = st.one_of(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.lists(st.integers(0, 10**18), min_size=1, max_size=60),
    st.builds(lambda size, hot: [0] * hot + [10**18] + [0] * size, st.integers(0, 30), st.integers(0, 30)),
    st.builds(lambda size: [0] * size, st.integers(1, 40)),
    st.builds(lambda size, load: [load] * size, st.integers(1, 40), st.integers(1, 10**18)),
)

EXPERTS = [
    [90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86],
    [20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27],
]
"""The example that an expert balancer documents."""


def _check_equal_rows(shard_map: ShardMap, num_shards: int, vocab_size: int) -> None:
    assert shard_map.num_shards == num_shards
    assert shard_map.vocab_size == vocab_size
    assert int(shard_map.home_rows.sum()) == vocab_size
    assert int(shard_map.home_rows.max() - shard_map.home_rows.min()) <= 1
    assert sorted(shard_map.token_at[shard_map.token_at >= 0].tolist()) == list(range(vocab_size))


def _bytes(shard_map: ShardMap, folder: Path) -> bytes:
    shard_map.save(folder / "map.safetensors")
    return (folder / "map.safetensors").read_bytes()


@pytest.mark.parametrize("strategy", BALANCED_ROWS)
@settings(max_examples=40)
@given(counts=COUNTS, num_shards=st.integers(1, 80))
@example(counts=[0] * 16, num_shards=4)
@example(counts=[0], num_shards=4)
@example(counts=[1], num_shards=1)
def test_any_counts_and_any_number_of_shards(strategy: str, counts: list[int], num_shards: int) -> None:
    shard_map = partition(counts, num_shards, strategy)
    _check_equal_rows(shard_map, num_shards, len(counts))
    balance = assess(np.array(counts, np.int64), shard_map)
    assert balance.busiest >= lower_bound(np.array(counts, np.int64), num_shards)
    assert balance.imbalance >= 1.0 or balance.imbalance == pytest.approx(1.0)
    if not any(counts):
        assert balance.imbalance == 1.0


@pytest.mark.parametrize(("vocab_size", "num_shards", "rows"), [
    (10, 4, [3, 3, 2, 2]), (3, 8, [1, 1, 1, 0, 0, 0, 0, 0]), (1, 1, [1]), (1, 4, [1, 0, 0, 0]), (16, 4, [4, 4, 4, 4]),
])  # fmt: skip
@pytest.mark.parametrize("strategy", BALANCED_ROWS)
def test_rows_when_nothing_divides(strategy: str, vocab_size: int, num_shards: int, rows: list[int]) -> None:
    for counts in ([0] * vocab_size, [7] * vocab_size, list(range(vocab_size))):
        shard_map = partition(counts, num_shards, strategy)
        assert sorted(shard_map.home_rows.tolist(), reverse=True) == rows
        assert shard_map.num_slots == shard_map.home_slots == max(rows)


def test_a_table_that_its_shards_do_not_divide() -> None:
    counts = (10**9 // np.arange(1, 129281)).astype(np.int64)
    shard_map = partition(counts, 24)
    _check_equal_rows(shard_map, 24, 129280)
    assert shard_map.home_slots == 5387
    assert 24 * shard_map.home_slots - shard_map.vocab_size == 8


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
@pytest.mark.parametrize("pad_to", [1, 2, 8, 64, 100])
def test_home_slots_are_padded_on_request(strategy: str, pad_to: int) -> None:
    shard_map = partition(list(range(37)), 5, strategy, pad_to=pad_to)
    assert shard_map.home_slots % pad_to == 0
    assert 8 <= shard_map.home_slots < 8 + pad_to
    assert shard_map.vocab_size == 37
    assert (shard_map.shard_of == partition(list(range(37)), 5, strategy).shard_of).all()


def test_rows_past_the_tokenizer_are_spread_evenly() -> None:
    counts = np.zeros(160, np.int64)
    counts[:146] = 1000 // np.arange(1, 147)
    for strategy in ("balanced", "snake", "random"):
        shard_map = partition(counts, 8, strategy, real_vocab=146)
        assert shard_map.real_vocab == 146
        assert shard_map.home_rows.tolist() == [20] * 8
        padding = np.bincount(shard_map.shard_of[146:], minlength=8)
        assert padding.sum() == 14
        assert padding.max() - padding.min() <= 1
    # As frameworks place them: all on the last shard.
    contiguous = partition(counts, 8, "contiguous", real_vocab=146)
    assert np.bincount(contiguous.shard_of[146:], minlength=8).tolist() == [0] * 7 + [14]


@settings(max_examples=60)
@given(st.data())
def test_padding_ids_never_break_equal_rows(data: st.DataObject) -> None:
    counts = data.draw(COUNTS)
    num_shards = data.draw(st.integers(1, 70))
    padded = counts + [0] * data.draw(st.integers(0, 40))
    shard_map = partition(padded, num_shards, data.draw(st.sampled_from(BALANCED_ROWS)), real_vocab=len(counts))
    _check_equal_rows(shard_map, num_shards, len(padded))
    real = np.bincount(shard_map.shard_of[: len(counts)], minlength=num_shards)
    assert real.max() - real.min() <= 1


def test_padding_ids_must_not_have_load() -> None:
    with pytest.raises(MapError, match=r"id 3 has load 2 but is a padding id \(real_vocab is 2\)"):
        partition([5, 4, 0, 2], 2, real_vocab=2)


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint64", "float64", ">i4", ">f8"])
@pytest.mark.parametrize("counts", [*EXPERTS, [0] * 12, [1] * 12, [10**9, *[0] * 11]])
def test_the_type_of_the_counts_does_not_change_a_byte(tmp_path: Path, counts: list[int], dtype: str) -> None:
    for strategy in STRATEGIES:
        expected = _bytes(partition(counts, 8, strategy), tmp_path)
        assert _bytes(partition(np.array(counts, dtype), 8, strategy), tmp_path) == expected


def test_layout_in_memory_does_not_change_a_byte(tmp_path: Path) -> None:
    counts = np.array(EXPERTS[0])
    for same in (np.repeat(counts, 2)[::2], np.asfortranarray(np.tile(counts, (2, 1)))[0], counts[::-1].copy()[::-1]):
        assert _bytes(partition(same, 8), tmp_path) == _bytes(partition(counts, 8), tmp_path)


MAPS = """
import hashlib, os, sys, tempfile
import numpy as np
from skewtool import partition
from skewtool.sharding import STRATEGIES

digest = hashlib.sha256()
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "map.safetensors")
    for counts in ([90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86], (10**7 // np.arange(1, 3001)).tolist(), [3] * 50):
        for dtype in ("int32", "int64", "float64"):
            for num_shards in (1, 7, 8):
                for strategy in sorted(STRATEGIES):
                    partition(np.array(counts, dtype), num_shards, strategy, seed=5).save(path)
                    with open(path, "rb") as file:
                        digest.update(file.read())
print(digest.hexdigest())
"""


def test_hash_seed_and_threads_do_not_change_a_byte(run_python: Callable[..., Any], tmp_path: Path) -> None:
    found = set()
    for hash_seed, threads in (("0", "1"), ("1", "2")):
        done = run_python(
            MAPS, cwd=tmp_path,
            env={"PYTHONHASHSEED": hash_seed, "NUMBA_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "TZ": "UTC+9"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.add(done.stdout)
    digest = hashlib.sha256()
    for counts in (EXPERTS[0], (10**7 // np.arange(1, 3001)).tolist(), [3] * 50):
        for dtype in ("int32", "int64", "float64"):
            for num_shards in (1, 7, 8):
                for strategy in sorted(STRATEGIES):
                    made = partition(np.array(counts, dtype), num_shards, strategy, seed=5)
                    digest.update(_bytes(made, tmp_path))
    assert found == {f"{digest.hexdigest()}\n"}


@pytest.mark.parametrize("counts", EXPERTS)
def test_published_example_of_an_expert_balancer(counts: list[int]) -> None:
    shard_map = partition(counts, 8)
    _check_equal_rows(shard_map, 8, 12)
    assert shard_map == partition(counts, 8)
    # Four shards have one row and four have two: the best is to leave the four hottest alone.
    assert assess(np.array(counts), shard_map).busiest == max(counts)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([1.0, float("nan")], 2), {}, "id 1 has load nan"),
        (([1, -1], 2), {}, "id 1 has load -1"),
        (([1.0, float("inf")], 2), {}, "id 1 has load inf"),
        ((np.array([2**64 - 1], np.uint64), 1), {}, "id 0 has load 18446744073709551615"),
        (([], 2), {}, "non-empty"),
        (([1, 2], 0), {}, "at least 1, got 0"),
        (([1, 2], -3), {}, "at least 1, got -3"),
        (([1, 2], 2, "best"), {}, "unknown strategy 'best'; known are contiguous, strided"),
        (([1, 2], 2), {"pad_to": 0}, "pad_to"),
        (([1, 2], 2), {"real_vocab": 0}, "real_vocab must be 1 to the 2 ids"),
        (([1, 2], 2), {"real_vocab": 3}, "real_vocab must be 1 to the 2 ids"),
        (([1, 2], 2), {"real_vocab": -1}, "real_vocab"),
    ],
)
def test_bad_parameters_are_named(arguments: tuple[Any, ...], options: dict[str, Any], message: str) -> None:
    with pytest.raises(MapError, match=message):
        partition(*arguments, **options)


@pytest.mark.parametrize("seed", [0, -1, 2**63, -(2**70)])
def test_seeds_of_any_sign_and_size_work(seed: int) -> None:
    _check_equal_rows(partition([1, 2, 3], 2, "random", seed=seed), 2, 3)


def test_a_huge_seed_works_or_is_refused() -> None:
    with suppress(MapError):
        _check_equal_rows(partition([1, 2, 3], 2, "random", seed=2**200), 2, 3)


def test_a_profile_gives_its_loads_and_sizes(profile_of: Callable[..., Profile]) -> None:
    tokens = [0, 0, 0, 0, 0, 0, 1, 2] * 4 + [3, 4, 3, 4, 3, 4, 3, 4]
    profile = profile_of(tokens, 8, windows=(4, 8), num_token_ids=6)
    assert real_vocab_of(profile) == 6
    for load, window in (("raw", None), ("unique", 4), ("unique", 8)):
        loads = profile.counts if window is None else profile.window(window).presence
        for strategy in ("contiguous", "strided", "snake", "random"):
            made = partition(profile, 3, strategy, load=load, tokens_per_rank=window)  # type: ignore[arg-type]
            assert made == partition(loads, 3, strategy, real_vocab=6)
            assert made.real_vocab == 6
    assert partition(profile, 3, load="raw") == partition(profile.counts, 3, real_vocab=6)
    assert partition(profile, 3) == partition(profile, 3, load="unique", tokens_per_rank=8)
    assert partition(profile, 3, real_vocab=8).real_vocab == 8
    with pytest.raises(ProfileError, match="no windows of 5"):
        partition(profile, 3, tokens_per_rank=5)
    with pytest.raises(MapError, match="padding id"):
        partition(profile, 3, real_vocab=4)


@settings(max_examples=30)
@given(st.data())
def test_any_profile_gives_equal_rows(profile_of: Callable[..., Profile], data: st.DataObject) -> None:
    vocab_size = data.draw(st.integers(1, 20))
    tokens = data.draw(st.lists(st.integers(0, vocab_size - 1), max_size=60))
    profile = profile_of(tokens, vocab_size, windows=(2, 4))
    num_shards = data.draw(st.integers(1, 25))
    made = partition(profile, num_shards)
    _check_equal_rows(made, num_shards, vocab_size)
    assert made == partition(profile, num_shards)
    loads = profile.window(4).presence
    assert assess(loads, made).busiest >= lower_bound(loads, num_shards)


def test_a_tokenizer_with_more_ids_than_rows_has_no_padding(profile_of: Callable[..., Profile]) -> None:
    assert real_vocab_of(profile_of([0, 1], 4, num_token_ids=9)) == 4
    assert real_vocab_of(profile_of([0, 1], 4)) == 4


def test_the_order_of_files_does_not_change_a_byte(tmp_path: Path) -> None:
    from skewtool import open_corpus, profile

    paths = []
    for number in range(3):
        path = tmp_path / f"{number}.npy"
        np.save(path, np.random.default_rng(number).integers(0, 50, 300).astype(np.uint16))
        paths.append(path)
    first = partition(profile(open_corpus(paths), vocab_size=64, windows=(32,)), 4)
    second = partition(profile(open_corpus(paths[::-1]), vocab_size=64, windows=(32,)), 4)
    assert _bytes(first, tmp_path) == _bytes(second, tmp_path)


def test_steps_is_as_even_on_average_and_needs_enough_windows(profile_of: Callable[..., Profile]) -> None:
    tokens = np.random.default_rng(0).zipf(1.3, 6400).clip(1, 200) - 1
    profile = profile_of(tokens, 200, windows=(64,), sample_size=100)
    made = partition(profile, 4, load="steps")
    _check_equal_rows(made, 4, 200)
    assert assess(profile.window(64).presence, made).gap == 0.0
    assert made == partition(profile, 4, load="steps")
    with pytest.raises(MapError, match="as many sampled windows"):
        partition(profile, 101, load="steps")


def test_an_unknown_load_is_named() -> None:
    with pytest.raises(MapError, match="unknown load 'mean'"):
        partition([1, 2, 3], 2, load="mean")  # type: ignore[arg-type]
