"""`plan`: the bytes of each layout against sums done by hand, copies that pay or do not, memory, and the advice."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from skewtool import Profile, partition
from skewtool.errors import MapError, ProfileError
from skewtool.sharding import SlotTable, choose_slots
from skewtool.skew import LayoutPlan, Plan, plan
from skewtool.skew.copy_gradients import exchanged_rows
from skewtool.skew.measured_layouts import step_requests
from skewtool.skew.replay import replay
from skewtool.skew.steps import drawn_steps, sample_windows

ProfileOf = Callable[..., Profile]
Tokens = Callable[..., npt.NDArray[np.int64]]

ROUTED = ("contiguous routed", "strided routed", "balanced routed")
TWO_SHARDS: dict[str, Any] = {"num_shards": 2, "hidden": 8, "bytes_per_element": 2}
"""Rows of 16 bytes, 8 on each shard of the hidden layout."""


def _refuse(value: str) -> float:
    raise AssertionError(f"{value} is no JSON")


def _layout(made: Plan, name: str) -> LayoutPlan:
    (found,) = [each for each in made.layouts if each.layout == name]
    return found


def _bytes(layout: LayoutPlan) -> tuple[int, ...]:
    """Weight, buffers, forward, backward, sync, in all."""
    return (
        layout.weight_bytes, layout.temporary_bytes, layout.busiest_forward_bytes, layout.busiest_backward_bytes,
        layout.gradient_sync_bytes, layout.busiest_bytes_per_update,
    )  # fmt: skip


def _says(made: Plan, *parts: str) -> bool:
    return any(all(part in sentence for part in parts) for sentence in made.advice)


@pytest.fixture(scope="module")
def tiny(profile_of: ProfileOf) -> Profile:
    """Ids 0, 1, 2 in each of two windows of 4 tokens; id 3 never occurs. Whatever is drawn, both ranks hold 0, 1, 2."""
    return profile_of([0, 0, 1, 2, 2, 1, 0, 0], 4, windows=(4,))


@pytest.fixture(scope="module")
def text(profile_of: ProfileOf, zipf_tokens: Tokens) -> Profile:
    return profile_of(zipf_tokens(4096, 400), 400, windows=(64,), sample_size=32)


def test_bytes_of_training_are_those_worked_out_by_hand(tiny: Profile) -> None:
    made = plan(tiny, **TWO_SHARDS, extra_rows=1, lookups_per_update=3)
    # n = 4, P = 2, N = 8, R = 2, rows of 16 bytes. All-reduce sends 2 (1/2) 8 x 16 = 128; rows, and a copy that is reduced.
    assert _bytes(_layout(made, "contiguous all-reduce")) == (32, 256, 128, 0, 0, 3 * 128)
    # Rows, the same padded to equal parts (which they are), and the part of 4 rows that comes back.
    assert _bytes(_layout(made, "contiguous reduce-scatter")) == (32, 320, 64, 64, 0, 3 * 128)
    # One shard has two of the ids and the other one. The first sends 2 rows and asks 1 id, the second 1 row and 2 ids; each
    # tells the other 4 integers: forward max(2 x 16 + 8, 16 + 2 x 8) + 32 = 72, backward 2 x 16. The first reads 2 rows for
    # each rank, puts together 3, and has an output of 4: (4 + 3 + 4) x 16.
    for name in ROUTED:
        assert _bytes(_layout(made, name)) == (32, 176, 72, 32, 0, 3 * 104)
    # A copy on each shard puts two ids on both; the third is sent once. Forward max(16, 8) + 32, all-reduce of 2 float32
    # rows: 2 (1/2) 2 x 32. It reads 3 rows for itself and 1 for the other.
    assert _bytes(_layout(made, "balanced with copies")) == (48, 176, 48, 16, 64, 3 * 64 + 64)
    # 3 integers, 4 ids of 8 bytes to one other shard, 4 parts of 8 bytes back; 8 rows in parts and whole, and 4 put out.
    assert _bytes(_layout(made, "hidden")) == (32, 192, 88, 32, 0, 3 * 120)
    # The same with 3 distinct ids: 24 + 24 + 24, 24 back, 6 rows in parts and whole.
    assert _bytes(_layout(made, "hidden distinct")) == (32, 160, 72, 24, 0, 3 * 96)
    assert made.best == "balanced with copies"
    assert [each.layout for each in made.layouts][2:6] == [*ROUTED, "balanced with copies"]
    assert [each.extra_rows_per_shard for each in made.layouts] == [0, 0, 0, 0, 0, 1, 0, 0]


def test_inference_has_no_gradients(tiny: Profile) -> None:
    learning, made = (plan(tiny, **TWO_SHARDS, extra_rows=1, lookups_per_update=number) for number in (1, None))
    for there, here in zip(learning.layouts, made.layouts, strict=True):
        assert here.busiest_backward_bytes == here.gradient_sync_bytes == 0
        assert here.busiest_bytes_per_update == here.busiest_forward_bytes == there.busiest_forward_bytes
        assert (here.weight_bytes, here.temporary_bytes) == (there.weight_bytes, there.temporary_bytes)


def test_rows_beyond_the_profile_are_padding(tiny: Profile) -> None:
    made = plan(tiny, **TWO_SHARDS, vocab_size=6, extra_rows=0)
    assert made.sizes.vocab_size == 6
    # Contiguous: ids 0, 1, 2 are all on shard 0, which reads 6 rows, sends 3 and asks nothing.
    assert _bytes(_layout(made, "contiguous routed")) == (3 * 16, (6 + 3 + 4) * 16, 3 * 16 + 32, 0, 0, 80)
    assert _bytes(_layout(made, "balanced routed")) == (3 * 16, 176, 72, 0, 0, 72)
    assert _layout(made, "hidden").weight_bytes == 6 * 8


def test_columns_and_rows_are_rounded_up(tiny: Profile) -> None:
    made = plan(tiny, num_shards=3, hidden=8, bytes_per_element=1)
    assert _layout(made, "hidden").weight_bytes == 4 * 3  # 3, 3 and 2 columns
    assert _layout(made, "contiguous routed").weight_bytes == 2 * 8  # 2, 2 and 0 rows


@pytest.mark.parametrize("number", [int, np.int32])
def test_big_tables_are_exact(tiny: Profile, number: Callable[[int], Any]) -> None:
    made = plan(tiny, num_shards=number(1), hidden=number(16384), bytes_per_element=number(4), vocab_size=number(256_000))
    assert {each.weight_bytes for each in made.layouts} == {16_777_216_000}
    assert all(type(value) in (int, bool, str) for each in made.layouts for value in vars(each).values())


def test_big_steps_are_exact(tiny: Profile) -> None:
    made = plan(tiny, num_shards=2, hidden=2**33, bytes_per_element=4, extra_rows=0, lookups_per_update=1000)
    row = 2**35
    assert _layout(made, "contiguous all-reduce").busiest_bytes_per_update == 1000 * 8 * row
    assert _layout(made, "contiguous routed").busiest_bytes_per_update == 1000 * (2 * row + 8 + 32 + 2 * row)
    assert _layout(made, "hidden distinct").busiest_bytes_per_update == 1000 * (24 + 24 + 3 * row)


def test_requests_are_those_of_the_replay(text: Profile) -> None:
    shard_map = partition(text, 4, extra_rows="20%")
    steps = list(drawn_steps(sample_windows(text.window(64).sample), 4, num_steps=9))
    requests, in_place = map(np.array, zip(*step_requests(steps, shard_map), strict=True))
    assert (requests.sum(axis=2) + in_place).tolist() == [[ids.size for ids, _ in step] for step in steps]
    everywhere = shard_map.num_copies == 3
    assert in_place.tolist() == [[int(everywhere[ids].sum()) for ids, _ in step] for step in steps]
    remote = requests * ~np.eye(4, dtype=bool)
    assert remote.sum(axis=1).tolist() == replay(steps, [shard_map], 4).remote[:, 0].tolist()
    table = SlotTable.of(shard_map)
    for step, asked in zip(steps, remote.sum(axis=2).tolist(), strict=True):
        assert asked == [int((choose_slots(ids, rank, table) != rank).sum()) for rank, (ids, _) in enumerate(step)]
    raw, raw_in_place = map(np.array, zip(*step_requests(steps, shard_map, distinct=False), strict=True))
    assert (raw.sum(axis=2) + raw_in_place).tolist() == [[64] * 4] * 9
    assert list(step_requests([], shard_map)) == []


def test_a_copy_costs_two_rows_however_it_is_spread(text: Profile) -> None:
    shard_map = partition(text, 4, extra_rows="20%")
    every = shard_map.num_copies == 3
    assert every.any()
    assert (shard_map.num_copies[~every] > 0).any()
    assert exchanged_rows(shard_map).sum() == 2 * shard_map.num_copies[~every].sum()
    made = plan(text, num_shards=4, hidden=1, bytes_per_element=1000, extra_rows="20%", lookups_per_update=10**6)
    busiest = int(exchanged_rows(shard_map).max())
    # Ids on every shard: 2 (3/4) rows each, sent by every rank; over 4 ranks that is 2 rows for each of 3 copies.
    assert _layout(made, "balanced with copies").gradient_sync_bytes == 1000 * busiest + 1500 * int(every.sum())


def test_copies_are_as_many_as_can_pay(text: Profile) -> None:
    sizes: dict[str, Any] = {"num_shards": 4, "hidden": 64, "bytes_per_element": 2, "extra_rows": "20%"}
    once, often, never = (plan(text, **sizes, lookups_per_update=number) for number in (1, 8, None))
    assert 0 < once.ids_whose_copies_pay < often.ids_whose_copies_pay < never.ids_whose_copies_pay == text.num_distinct
    assert _layout(once, "balanced with copies").extra_rows_per_shard == -(-once.ids_whose_copies_pay * 3 // 4)
    assert _layout(never, "balanced with copies").extra_rows_per_shard == 20
    assert never.best == "balanced with copies"
    assert _says(never, "Without optimizer updates every copy", "pay: they save")


def test_where_no_copy_pays_none_is_planned(profile_of: ProfileOf) -> None:
    tokens = np.arange(640) % 320  # every id is in a fifth of the windows
    made = plan(profile_of(tokens, 320), num_shards=4, hidden=64, bytes_per_element=2, lookups_per_update=1)
    assert made.ids_whose_copies_pay == 0
    assert "balanced with copies" not in [each.layout for each in made.layouts]
    assert _says(made, "With 1 lookup per update", "No copies are planned: none can pay")


def test_memory_decides_what_fits_and_how_many_copies(text: Profile) -> None:
    sizes: dict[str, Any] = {"num_shards": 4, "hidden": 64, "bytes_per_element": 2, "extra_rows": "20%"}
    balanced = _layout(plan(text, **sizes), "balanced routed")
    needed = balanced.weight_bytes + balanced.temporary_bytes
    made = plan(text, **sizes, memory_per_shard=needed + 7 * 128 + 127)
    assert _layout(made, "balanced with copies").extra_rows_per_shard == 7
    for each in made.layouts:
        assert each.fits == (each.weight_bytes + each.temporary_bytes <= needed + 7 * 128 + 127)
    assert not _layout(made, "contiguous all-reduce").fits
    assert _says(made, "least of those that fit in")
    assert _says(made, "map never matters", "needs more memory per shard than allowed")
    exact = plan(text, **sizes, memory_per_shard=needed)
    assert _layout(exact, "balanced routed").fits
    assert _says(exact, "no extra rows are allowed, or memory has no room for them")


def test_when_nothing_fits_it_says_what_is_needed(tiny: Profile) -> None:
    made = plan(tiny, **TWO_SHARDS, memory_per_shard=10)
    assert made.best is None
    assert not any(each.fits for each in made.layouts)
    assert "No layout fits in 10 bytes per shard; hidden distinct needs the least, 192 bytes" in made.advice[0]
    assert json.loads(json.dumps(made.to_json()))["best"] is None


def test_one_shard_needs_no_map(text: Profile) -> None:
    made = plan(text, num_shards=1, hidden=64, bytes_per_element=2, lookups_per_update=2)
    assert {each.busiest_bytes_per_update for each in made.layouts} == {0}
    assert made.best == "contiguous all-reduce"
    assert "contiguous with all-reduce is fine for you" in made.advice[0]


def test_copies_of_everything_leave_counts_to_send(tiny: Profile) -> None:
    made = plan(tiny, **TWO_SHARDS, extra_rows=2)
    assert (made.best, _layout(made, "balanced with copies").busiest_bytes_per_update) == ("balanced with copies", 32)
    assert made.advice[0] == (
        "Take balanced with copies: its busiest rank moves 32 bytes per lookup step, the least of all; contiguous routed "
        "moves 2.25 times as much."
    )
    assert _says(made, "pay: they save 55.6%")


def test_rows_smaller_than_ids_are_not_worth_routing(tiny: Profile) -> None:
    made = plan(tiny, num_shards=2, hidden=1, bytes_per_element=1, lookups_per_update=1)
    assert made.best == "contiguous all-reduce"
    assert made.advice[0].startswith("contiguous with all-reduce is fine for you: it moves 8 bytes per update of 1 lookup;")


def test_every_plan_says_where_the_map_does_not_matter(text: Profile) -> None:
    for number_of_shards in (1, 4):
        made = plan(text, num_shards=number_of_shards, hidden=64, bytes_per_element=2)
        assert _says(made, "eplicated", "map never matters")
        assert _says(made, "LM head", "equal rows per shard")
    assert _says(made, "contiguous with all-reduce is fine for you")


def test_keys_that_scripts_depend_on(text: Profile) -> None:
    made = plan(text, num_shards=4, hidden=64, bytes_per_element=2, lookups_per_update=2)
    found = json.loads(json.dumps(made.to_json()), parse_constant=_refuse)
    assert set(found) >= {
        "shards", "vocab_size", "hidden", "tokens_per_rank", "lookups_per_update", "layouts", "best", "advice",
        "copy_pays_from_presence", "ids_whose_copies_pay",
    }  # fmt: skip
    assert (found["shards"], found["vocab_size"], found["hidden"], found["tokens_per_rank"]) == (4, 400, 64, 64)
    for each in found["layouts"]:
        assert set(each) >= {
            "layout", "weight_bytes", "fits", "busiest_forward_bytes", "busiest_backward_bytes", "gradient_sync_bytes",
            "temporary_bytes", "busiest_bytes_per_update",
        }  # fmt: skip
    assert len(made.table()) == len(made.layouts)
    assert plan(text, num_shards=4, hidden=64, bytes_per_element=2, lookups_per_update=2) == made


@pytest.mark.parametrize("num_shards", [2, 7, 64, 500])
def test_any_number_of_shards(text: Profile, num_shards: int) -> None:
    made = plan(text, num_shards=num_shards, hidden=64, bytes_per_element=2, lookups_per_update=4)
    moved = {each.layout: each.busiest_bytes_per_update for each in made.layouts}
    assert made.best is not None
    assert moved[made.best] == min(moved.values()) > 0
    assert moved["balanced routed"] <= moved["contiguous routed"] < moved["contiguous all-reduce"]


def test_errors_say_what_was_expected(text: Profile, profile_of: ProfileOf) -> None:
    sizes: dict[str, Any] = {"num_shards": 2, "hidden": 8, "bytes_per_element": 2}
    with pytest.raises(MapError, match="at least the 400 ids of the profile, got 399"):
        plan(text, **sizes, vocab_size=399)
    with pytest.raises(ProfileError, match="no windows of 65 tokens"):
        plan(text, **sizes, tokens_per_rank=65)
    with pytest.raises(ProfileError, match="no sampled window of 64 tokens"):
        plan(profile_of([1, 2, 3], 4), **sizes)
    with pytest.raises(MapError, match="memory_per_shard, in bytes, must be at least 1, got 0"):
        plan(text, **sizes, memory_per_shard=0)
    with pytest.raises(MapError, match="lookups_per_update must be at least 1, got 0"):
        plan(text, **sizes, lookups_per_update=0)
    with pytest.raises(MapError, match=r"hidden must be a whole number, got 8\.5"):
        plan(text, **sizes | {"hidden": 8.5})
    with pytest.raises(MapError, match="num_shards must be at least 1, got 0"):
        plan(text, **sizes | {"num_shards": 0})
    with pytest.raises(MapError, match="extra rows must be"):
        plan(text, **sizes, extra_rows="many")
