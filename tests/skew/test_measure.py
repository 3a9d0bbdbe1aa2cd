"""`measure_skew` against sums done by hand, at the edges, and the keys that scripts depend on."""

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from skewtool import Profile, ShardMap, SkewReport, measure_skew, partition
from skewtool.errors import MapError, ProfileError
from skewtool.sharding import STRATEGIES
from skewtool.skew import BASELINES, HIDDEN, LayoutSkew, Quantiles
from skewtool.skew.steps import drawn_steps, sample_windows

ProfileOf = Callable[..., Profile]
Tokens = Callable[..., npt.NDArray[np.int64]]

LAYOUT_KEYS = {
    "layout", "load", "mean_imbalance", "lower_bound", "step_imbalance", "busiest_rows_per_token", "extra_rows_per_shard"
}  # fmt: skip


def _refuse(value: str) -> float:
    raise AssertionError(f"{value} is no JSON")


def _layout(report: SkewReport, name: str, load: str) -> LayoutSkew:
    (found,) = [each for each in report.layouts if (each.layout, each.load) == (name, load)]
    return found


def _as_json(report: SkewReport) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(report.to_json()), parse_constant=_refuse)
    return found


@pytest.fixture
def profile(profile_of: ProfileOf, zipf_tokens: Tokens) -> Profile:
    return profile_of(zipf_tokens(2048, 100), 100)


def test_averages_equal_plain_sums(profile: Profile) -> None:
    report = measure_skew(profile, num_shards=4)
    for load, loads in (("raw", profile.counts), ("unique", profile.window(64).presence)):
        by_shard = {
            "contiguous": loads.reshape(4, 25).sum(axis=1).tolist(),
            "strided": loads.reshape(25, 4).sum(axis=0).tolist(),
        }
        for name, expected in by_shard.items():
            found = _layout(report, name, load)
            assert found.loads.tolist() == expected
            assert found.mean_imbalance == pytest.approx(max(expected) * 4 / sum(expected))
            assert found.extra_rows_per_shard == 0
            assert 1.0 <= found.lower_bound <= found.mean_imbalance


def test_steps_equal_plain_sums(profile: Profile) -> None:
    report = measure_skew(profile, num_shards=4, seed=3)
    raw, unique = [], []
    for step in drawn_steps(sample_windows(profile.window(64).sample), 4, 3):
        by_count, by_id = [0] * 4, [0] * 4
        for ids, counts in step:
            for token, count in zip(ids.tolist(), counts.tolist(), strict=True):
                by_count[token // 25] += count
                by_id[token // 25] += 1
        raw.append(max(by_count) * 4 / sum(by_count))
        unique.append((max(by_id) * 4 / sum(by_id), max(by_id) / 64))
    assert report.num_steps == len(raw) == 200
    found = _layout(report, "contiguous", "raw")
    assert found.steps == pytest.approx(raw)
    assert found.step_imbalance is not None
    assert found.step_imbalance.max == pytest.approx(max(raw))
    assert found.step_imbalance.p50 == pytest.approx(float(np.median(raw)))
    found = _layout(report, "contiguous", "unique")
    assert found.steps == pytest.approx([imbalance for imbalance, _ in unique])
    assert found.busiest_rows_per_token is not None
    assert found.busiest_rows_per_token.max == pytest.approx(max(rows for _, rows in unique))


def test_windows_of_a_corpus_are_steps_in_order(profile: Profile) -> None:
    windows = [(np.array([k % 2], np.int32), np.array([64], np.int32)) for k in range(7)]
    report = measure_skew(profile, num_shards=2, against=["strided"], windows=iter(windows), tokens_per_rank=64)
    assert report.num_steps == 3
    assert _layout(report, "strided", "raw").steps.tolist() == [1.0, 1.0, 1.0]


def test_hidden_is_even_and_serves_every_row_in_part(profile: Profile) -> None:
    report = measure_skew(profile, num_shards=4)
    for load in ("raw", "unique"):
        hidden = _layout(report, HIDDEN, load)
        assert hidden.mean_imbalance == hidden.lower_bound == 1.0
        assert hidden.step_imbalance == Quantiles(1.0, 1.0, 1.0)
    hidden_rows = _layout(report, HIDDEN, "raw").busiest_rows_per_token
    assert hidden_rows == Quantiles(1.0, 1.0, 1.0)  # 4 ranks with 64 tokens each ask every shard, for a fourth of a row


@pytest.mark.parametrize("against", [["hidden"], []])
def test_baselines_may_be_hidden_alone_or_none(profile: Profile, against: list[str]) -> None:
    report = measure_skew(profile, num_shards=4, against=against)
    assert [each.layout for each in report.layouts] == against * 2
    everything = measure_skew(profile, num_shards=4)
    for each in report.layouts:
        assert each.to_json() == _layout(everything, each.layout, each.load).to_json()


def test_keys_that_scripts_depend_on(profile: Profile) -> None:
    found = _as_json(measure_skew(profile, {"mine": partition(profile, 4)}))
    assert set(found) >= {"shards", "tokens_per_rank", "steps", "top1_percent_share", "layouts"}
    assert (found["shards"], found["tokens_per_rank"], found["steps"]) == (4, 64, 200)
    for layout in found["layouts"]:
        assert set(layout) >= LAYOUT_KEYS
        assert set(layout["step_imbalance"]) == set(layout["busiest_rows_per_token"]) == {"p50", "p99", "max"}
    assert {layout["layout"] for layout in found["layouts"]} == {"mine", *BASELINES}
    assert {layout["load"] for layout in found["layouts"]} == {"raw", "unique"}


@pytest.mark.parametrize("num_shards", [1, 2, 7, 100, 512])
def test_any_number_of_shards(profile: Profile, num_shards: int) -> None:
    report = measure_skew(profile, num_shards=num_shards, against=[*STRATEGIES, HIDDEN])
    _as_json(report)
    for each in report.layouts:
        assert each.loads.shape == (num_shards,)
        assert 1.0 <= each.mean_imbalance <= num_shards + 1e-9
        assert ((each.steps >= 1.0 - 1e-12) & (each.steps <= num_shards + 1e-9)).all()
        if num_shards == 1:
            assert each.mean_imbalance == 1.0


def test_no_tokens_are_balanced(profile_of: ProfileOf) -> None:
    report = measure_skew(profile_of([], 10), num_shards=4)
    found = _as_json(report)
    assert (found["steps"], found["top1_percent_share"]) == (0, 0.0)
    for each in report.layouts:
        assert each.mean_imbalance == each.lower_bound == 1.0
        assert each.step_imbalance is None
        assert each.busiest_rows_per_token is None
    assert len(report.table()) == len(report.layouts)


def test_one_id_has_everything(profile_of: ProfileOf) -> None:
    report = measure_skew(profile_of([5] * 640, 8), num_shards=4)
    _as_json(report)
    for name in ("contiguous", "strided"):
        for load in ("raw", "unique"):
            assert _layout(report, name, load).mean_imbalance == 4.0
            assert _layout(report, name, load).lower_bound == 4.0


def test_fewer_tokens_than_a_window_replay_nothing(profile_of: ProfileOf) -> None:
    report = measure_skew(profile_of(list(range(10)), 10), num_shards=2)
    assert report.num_steps == 0
    _as_json(report)


def test_balanced_beats_contiguous_on_text(profile: Profile) -> None:
    report = measure_skew(profile, {"balanced": partition(profile, 4)})
    assert _layout(report, "balanced", "unique").mean_imbalance < 1.01
    assert _layout(report, "contiguous", "unique").mean_imbalance > 1.5


def test_the_same_seed_gives_the_same_report(profile: Profile) -> None:
    first, same, other = (measure_skew(profile, num_shards=4, seed=seed).to_json() for seed in (1, 1, 2))
    assert first == same != other


@pytest.mark.parametrize("seed", [-1, -(2**70)])
def test_a_negative_seed_works_or_is_refused(profile: Profile, seed: int) -> None:
    try:
        found = measure_skew(profile, num_shards=2, seed=seed).num_steps
    except (MapError, ProfileError):
        found = 200
    assert found == 200


def test_maps_that_do_not_fit_are_named(profile: Profile) -> None:
    four, three = partition(profile, 4), partition(profile, 3)
    with pytest.raises(MapError, match="map b has 3 shards, expected 4"):
        measure_skew(profile, {"a": four, "b": three})
    with pytest.raises(MapError, match="map a has 4 shards, expected 8"):
        measure_skew(profile, {"a": four}, num_shards=8)
    with pytest.raises(MapError, match="number of shards is not known"):
        measure_skew(profile)
    with pytest.raises(MapError, match="number of shards"):
        measure_skew(profile, num_shards=0)
    with pytest.raises(MapError, match="unknown layout 'best'"):
        measure_skew(profile, num_shards=4, against=["best"])
    small = partition([1] * 40, 4)
    with pytest.raises(MapError, match=r"map small has rows for 40 ids, but the corpus holds id \d+"):
        measure_skew(profile, {"small": small})
    with pytest.raises(ProfileError, match="no windows of 65 tokens"):
        measure_skew(profile, num_shards=4, tokens_per_rank=65)


def test_a_map_without_rows_for_ids_that_never_occur_fits(profile: Profile) -> None:
    assert not profile.counts[80:].any()
    made = measure_skew(profile, {"small": partition(profile.counts[:80], 4)})
    assert _layout(made, "small", "raw").loads.sum() == profile.num_tokens


def test_a_map_with_more_rows_fits(profile: Profile) -> None:
    padded = partition([*profile.counts.tolist(), *[0] * 28], 4, real_vocab=100)
    found = _layout(measure_skew(profile, {"padded": padded}), "padded", "raw")
    assert found.loads.sum() == profile.num_tokens


def test_a_map_named_like_a_baseline_does_not_stand_for_two_layouts(profile: Profile) -> None:
    try:
        report = measure_skew(profile, {"hidden": partition(profile, 4)})
    except MapError as error:
        names = str(error)
        assert "hidden" in names
    else:
        shown = [(each.layout, each.load) for each in report.layouts]
        assert len(shown) == len(set(shown))


def test_quantiles() -> None:
    found = Quantiles.of(np.arange(1, 101, dtype=np.float64))
    assert found is not None
    assert (found.p50, found.max) == (50.5, 100.0)
    assert found.p99 == pytest.approx(99.01)
    assert all(type(value) is float for value in vars(found).values())
    assert Quantiles.of(np.empty(0)) is None


def test_the_table_has_a_row_for_each_layout_and_load(profile: Profile) -> None:
    report = measure_skew(profile, num_shards=4)
    table = report.table()
    assert len(table) == len(report.layouts) == 6
    assert list(table["layout"]) == [each.layout for each in report.layouts]
    assert not any(isinstance(value, float) and math.isnan(value) for value in table["step_imbalance.p99"])


def test_maps_keep_their_order_and_are_not_changed(profile: Profile) -> None:
    maps: dict[str, ShardMap] = {"z": partition(profile, 4), "a": partition(profile, 4, "snake")}
    report = measure_skew(profile, maps)
    assert list(maps) == ["z", "a"]
    assert list(dict.fromkeys(each.layout for each in report.layouts))[:2] == ["z", "a"]
