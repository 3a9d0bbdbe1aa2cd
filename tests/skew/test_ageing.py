"""`ageing`: by hand, against real counts of each block, and a balanced map on a corpus that changes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from skewtool import Profile, ShardMap, measure_skew, partition
from skewtool.corpus import open_corpus
from skewtool.profiling import Timeline, profile
from skewtool.profiling import timeline as timelines
from skewtool.skew import ageing as plain_ageing
from skewtool.skew.ageing import ageing, block_counts, drift, raw_imbalance

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
        "imbalance": {"contiguous": [2.0, 1.5], "strided": [1.5, 1.25]},
    }


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


def test_copies_take_what_makes_the_shards_even() -> None:
    homes = ShardMap.from_homes(np.arange(3), 3)
    counts = np.array([6.0, 0.0, 3.0])
    assert raw_imbalance(counts, homes) == pytest.approx(2)
    assert raw_imbalance(counts, homes.with_copies(np.array([[-1], [0], [-1]]))) == pytest.approx(1)
    everywhere = homes.with_copies(np.array([[-1], [0], [0]]))
    assert raw_imbalance(counts, everywhere) == pytest.approx(3)  # id 0 is read in place, id 2 is all that is asked for


def test_maps_of_other_sizes_and_no_load() -> None:
    larger = ShardMap.from_homes(np.arange(8) % 2, 2)
    assert raw_imbalance(np.array([2.0, 2.0, 2.0]), larger) == pytest.approx(4 / 3)
    assert raw_imbalance(np.zeros(3), larger) == 1
    assert raw_imbalance(np.array([2.0, 2.0, 0.0]), ShardMap.from_homes(np.arange(2), 2)) == 1


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
    built = partition(profiled(np.split(tokens, 2)[0], tmp_path), 4, load="raw")
    report = measure_skew(profiled(tokens, tmp_path), {"old": built})
    made = report.over_corpus
    assert made is not None
    assert set(made.imbalance) == {"old", "contiguous", "strided"}
    assert made.num_tokens.tolist() == [32_800] * 32
    old = made.imbalance["old"]
    assert old[:16].max() < 1.1 < 1.3 < old[16:].min()
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
        real = {name: raw_imbalance(np.bincount(ids, minlength=640).astype(float), each) for name, each in maps.items()}
        assert made.imbalance["contiguous"][block] == pytest.approx(real["contiguous"], rel=1e-9)
        for name in ("strided", "balanced"):
            assert made.imbalance[name][block] == pytest.approx(real[name], rel=0.2)
