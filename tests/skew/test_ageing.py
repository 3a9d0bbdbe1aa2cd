"""`ageing`: by hand, against real counts of each block, and a balanced map on a corpus that changes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from skewtool import Profile, ShardMap, measure_skew, partition
from skewtool.corpus import open_corpus
from skewtool.profiling import Timeline, WindowSample, WindowStatistics, profile
from skewtool.profiling import timeline as timelines
from skewtool.sharding import LOADS, Load
from skewtool.skew import ageing as plain_ageing
from skewtool.skew.ageing import ageing, block_counts, block_presence, drift, imbalance_of

ProfileOf = Callable[..., Profile]
Tables = list[list[int]]


def profile_of_blocks(tables: Tables, others: list[int] | None = None, beyond: list[int] | None = None) -> Profile:
    """From counts of the followed ids in each block, tokens of others, and the counts of these ids in all."""
    arrays = [np.array(table, np.int64) for table in tables]
    counts = np.concatenate([sum(arrays), np.array(beyond or [], np.int64)])
    made = Timeline.of(arrays, others or [0] * len(tables), counts.size)
    return Profile(counts, (), (), sample_size=0, seed=0, dropped={}, timeline=made)


def test_by_hand() -> None:
    judged = profile_of_blocks([[6, 2, 0, 0], [1, 1, 4, 2]])
    maps = {name: partition(judged.counts, 2, name) for name in ("contiguous", "strided")}
    made = ageing(judged, maps)
    assert made is not None
    assert made.to_json() == {
        "num_tokens": [8, 8],
        "drift": [0.0, 0.75],
        "imbalance": {"raw": {"contiguous": [2.0, 1.5], "strided": [1.5, 1.25]}},
    }
    assert made.layouts == ("contiguous", "strided")


def test_what_is_not_followed_one_by_one_is_spread_as_in_the_whole_corpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 256 ids, four to a range, id 0 alone is listed, and ids from 248 on are not even in ranges."""
    monkeypatch.setattr(timelines, "NUM_IDS", 1)
    monkeypatch.setitem(block_counts.__globals__, "NUM_FOLLOWED", 248)
    tables = np.zeros((2, 248), np.int64)
    tables[:, [0, 1, 2, 4, 5]] = [[6, 2, 1, 0, 0], [4, 0, 1, 3, 1]]
    judged = profile_of_blocks(tables.tolist(), [2, 6], [0, 5, 0, 3, 0, 0, 0, 0])
    assert judged.timeline is not None
    found = np.array(list(block_counts(judged.timeline, judged.counts)))
    assert found[:, [0, 1, 2, 4, 5]].tolist() == [[6, 1.5, 1.5, 0, 0], [4, 0.5, 0.5, 3, 1]]
    assert found[:, [249, 251]].tolist() == [[1.25, 0.75], [3.75, 2.25]]
    assert found.sum(axis=1).tolist() == [11, 15]
    assert np.delete(found, [0, 1, 2, 4, 5, 249, 251], axis=1).max() == 0
    assert drift(judged.timeline).tolist() == pytest.approx([0, 6 / 11 - 4 / 15])


def test_copies_share_occurrences_equally_and_take_requests_that_make_the_shards_even() -> None:
    homes = ShardMap.from_homes(np.arange(3), 3)
    loads = np.array([6.0, 1.0, 3.0])
    two = homes.with_copies(np.array([[-1], [0], [-1]]))
    everywhere = homes.with_copies(np.array([[-1], [0], [0]]))
    expected: dict[Load, tuple[float, float, float]] = {"raw": (1.8, 1.2, 2.25), "unique": (1.8, 1.05, 2.25)}
    for load, imbalance in expected.items():  # shards 3 4 3 by equal shares, 3.5 3.5 3 by choice; 0 1 3 without id 0
        assert [imbalance_of(loads, load, each) for each in (homes, two, everywhere)] == pytest.approx(imbalance)


def windows_with(ids: npt.NDArray[np.int64], length: int) -> npt.NDArray[np.int64]:
    """How many windows of `length` tokens hold each id below 300."""
    return np.array([(ids.reshape(-1, length) == token).any(axis=1).sum() for token in range(300)])


@pytest.mark.parametrize("length", [100, 400])
@pytest.mark.parametrize("repeats", [1, 8])
@pytest.mark.parametrize(("changed", "error"), [(0, 0.02), (300, 0.1)])
def test_presence_of_a_block_is_estimated_from_that_of_the_corpus(
    length: int, repeats: int, changed: int, error: float
) -> None:
    """Also of ids that come eight times in a row; near where frequencies stay, and low where all of them change halfway."""
    rng = np.random.default_rng(3)
    weight = 1 / np.arange(1, 301)
    later = np.concatenate([rng.permutation(changed), np.arange(changed, 300)])
    halves = [np.repeat(rng.choice(order, 200_000 // repeats, p=weight / weight.sum()), repeats)
              for order in (np.arange(300), later)]  # fmt: skip
    counts = [np.bincount(ids, minlength=300) for ids in halves]
    presence = [windows_with(ids, length) for ids in halves]
    windows = WindowStatistics(length, 400_000 // length, presence[0] + presence[1], WindowSample.of([]))
    for block, real in zip(counts, presence, strict=True):
        found = block_presence(block.astype(float), counts[0] + counts[1], windows) * (200_000 // length)
        assert np.abs(found - real).sum() < error * real.sum()


def test_maps_of_other_sizes_and_no_load() -> None:
    larger = ShardMap.from_homes(np.arange(8) % 2, 2)
    assert imbalance_of(np.array([2.0, 2.0, 2.0]), "raw", larger) == pytest.approx(4 / 3)
    assert imbalance_of(np.zeros(3), "unique", larger) == 1
    assert imbalance_of(np.array([2.0, 2.0, 0.0]), "raw", ShardMap.from_homes(np.arange(2), 2)) == 1
    assert imbalance_of(np.array([5.0, 1.0]), "unique", ShardMap.from_homes(np.zeros(2, int), 1)) == 1


def test_a_profile_without_a_time_line_has_no_ages(profile_of: ProfileOf) -> None:
    made = profile_of([1, 2, 3], 4)
    assert plain_ageing(made, {}) is None
    assert measure_skew(made, num_shards=2).to_json()["over_corpus"] is None


@pytest.fixture(scope="module")
def tokens() -> npt.NDArray[np.int64]:
    """1,049,600 ids below 640: frequencies move to other ids from the middle on."""
    rng = np.random.default_rng(2)
    weight = 1 / np.arange(1, 641)
    drawn = rng.choice(640, 32 * 32_800, p=weight / weight.sum())
    return np.concatenate([rng.permutation(640)[half] for half in np.split(drawn, 2)])


def profiled(tokens: npt.NDArray[np.int64], folder: Path) -> Profile:
    np.save(folder / "ids.npy", tokens.astype(np.uint16))
    return profile(open_corpus(folder / "ids.npy"), vocab_size=640, windows=(100,))


def test_a_balanced_map_ages_where_the_corpus_changes(tokens: npt.NDArray[np.int64], tmp_path: Path) -> None:
    first_half = profiled(np.split(tokens, 2)[0], tmp_path)
    report = measure_skew(
        profiled(tokens, tmp_path), {load: partition(first_half, 4, load=load) for load in LOADS}, tokens_per_rank=100
    )
    made = report.over_corpus
    assert made is not None
    assert made.layouts == ("unique", "raw", "contiguous", "strided")
    assert made.num_tokens.tolist() == [32_800] * 32
    for load in LOADS:
        old = made.imbalance[load][load]
        assert old[:16].max() < old[16:].min()
        assert old[16:].mean() - 1 > 2 * (old[:16].mean() - 1)
    assert made.drift[:16].max() < 0.1 < 0.5 < made.drift[16:].min()


def test_estimates_are_near_real_counts(
    tokens: npt.NDArray[np.int64], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few ids one by one; contiguous shards of whole ranges are exact all the same."""
    monkeypatch.setattr(timelines, "NUM_IDS", 40)
    judged = profiled(tokens, tmp_path)
    maps = {name: partition(judged.counts, 8, name) for name in ("contiguous", "strided", "balanced")}
    made = ageing(judged, maps)
    assert made is not None
    for block, ids in enumerate(tokens.reshape(32, -1)):
        real = np.bincount(ids, minlength=640).astype(float)
        for name, each in maps.items():
            near = 1e-9 if name == "contiguous" else 0.2
            assert made.imbalance["raw"][name][block] == pytest.approx(imbalance_of(real, "raw", each), rel=near)
