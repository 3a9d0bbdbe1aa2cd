"""`cost`: the worked example by hand, measured loads against sums of their own, links, and what is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from skewtool import Profile, ShardMap, partition
from skewtool.errors import FileFormatError, MapError, ProfileError, SkewtoolError
from skewtool.skew import Cost, LayoutCost, Link, TableSizes, cost, read_calibration
from skewtool.skew.replay import replay
from skewtool.skew.steps import drawn_steps, sample_windows

ProfileOf = Callable[..., Profile]

EXAMPLE = TableSizes(8, 128_256, 4096, 2)


def _refuse(value: str) -> float:
    raise AssertionError(f"{value} is no JSON")


def _layout(made: Cost, name: str) -> LayoutCost:
    (found,) = [each for each in made.layouts if each.layout == name]
    return found


def _figures(made: Cost, name: str) -> tuple[float, ...]:
    """Weight; bytes forward and backward of the busiest rank; calls."""
    found = _layout(made, name)
    assert found.forward.sent_mean == found.forward.sent_max == found.forward.busiest_bytes, "loads are even"
    return found.weight_bytes, found.forward.busiest_bytes, found.backward.busiest_bytes, found.collectives


@pytest.fixture(scope="module")
def example() -> Cost:
    """V = 128,256, H = 4096, P = 8, 64k tokens, bf16."""
    return cost(EXAMPLE, 65_536, link=Link(20e-6, 50e9))


def test_embeddings_of_the_worked_example_by_hand(example: Cost) -> None:
    # 128,256 / 8 = 16,032 rows a shard; a row is 4096 x 2 = 8,192 bytes; 16,032 x 8,192 = 131,334,144 bytes, 125.25 MiB.
    # Hidden: 128,256 rows of 4096 / 8 = 512 columns of 2 bytes, 1,024 bytes each: 131,334,144 as well.
    weight = 131_334_144
    # All rows of all tokens: 65,536 x 8,192 = 536,870,912 bytes. All-reduce sends 2 x 7/8 of it; bf16 travels as bf16,
    # because one shard has each row.
    assert _figures(example, "vocab all-reduce") == (weight, 939_524_096, 0, 1)
    # Reduce-scatter sends 7/8 of it, and so does the all-gather of gradients backward.
    assert _figures(example, "vocab reduce-scatter") == (weight, 469_762_048, 469_762_048, 2)
    # A rank has 8,192 tokens and asks each of 8 shards for 1,024 rows, so 7,168 of others.
    #   counts      8 + 2 integers of 8 bytes to 7 ranks    10 x 8 x 7     =        560
    #   ids         7,168 of 8 bytes                        7,168 x 8      =     57,344
    #   rows        7,168 served to others                  7,168 x 8,192  = 58,720,256
    #   gradients   7,168 of rows asked of others                            58,720,256
    assert _figures(example, "routed") == (weight, 560 + 57_344 + 58_720_256, 58_720_256, 4)
    # Fixed capacity of 1,024: the same, but counts are 3 integers, 3 x 8 x 7 = 168.
    assert _figures(example, "routed, capacity 1,024") == (weight, 168 + 57_344 + 58_720_256, 58_720_256, 4)
    # Hidden, tokens wanted: 168 for counts; 8,192 ids of 8 bytes to each of 7 ranks, 458,752; and 1,024 bytes for each of
    # the 57,344 tokens of others, 58,720,256.
    assert _figures(example, "hidden tokens") == (weight, 168 + 458_752 + 58_720_256, 58_720_256, 4)
    # Replicated: 65,536 tokens x 1,024 bytes to 7 others.
    assert _figures(example, "hidden replicated") == (weight, 469_762_048, 0, 1)
    assert _figures(example, "hidden kept") == (weight, 0, 0, 0)


def test_heads_of_the_worked_example_by_hand(example: Cost) -> None:
    weight = 131_334_144
    # Statistics are float32: a maximum and two sums a token. All-reduce sends 2 x 7/8 of 12 bytes: 21 a token, 1,376,256.
    # Gradients of hidden states are float32 sums: 2 x 7/8 x 4096 x 4 = 28,672 a token, 1,879,048,192.
    # Labels are checked by 2 integers to 7 ranks: 112.
    # Chunks of 2^24 / 16,032 = 1,046 tokens: 62 whole ones and one of 684. Calls: 1 + 63 x 3.
    assert _figures(example, "vocab") == (weight, 112 + 1_376_256 + 1_879_048_192, 0, 190)
    # Partitioned: counts 1 integer to 7, 56; labels 8,192 x 8 x 7 = 458,752; hidden states 8,192 x 8,192 x 7 = 469,762,048;
    # gradients are reduce-scattered, half of an all-reduce: 939,524,096. A chunk has 130 tokens of each rank: 3 + 64 x 4.
    forward = 112 + 56 + 458_752 + 469_762_048 + 1_376_256 + 939_524_096
    assert _figures(example, "vocab partitioned") == (weight, forward, 0, 259)
    assert _figures(example, "vocab logits") == (weight, 112 + 1_376_256, 1_879_048_192, 4)
    # Partitioned: a count, hidden states gathered, gradients reduce-scattered.
    forward = 56 + 469_762_048 + 112 + 1_376_256
    assert _figures(example, "vocab logits partitioned") == (weight, forward, 939_524_096, 6)
    # Partial logits are summed in float32: 65,536 x 128,256 x 4 = 33,621,540,864 bytes, of which 2 x 7/8, or 7/8.
    assert _figures(example, "hidden all-reduce") == (weight, 58_837_696_512, 0, 1)
    assert _figures(example, "hidden reduce-scatter") == (weight, 29_418_848_256 + 112 + 1_376_256, 29_418_848_256, 5)
    logits = {each.layout: each.logits_bytes for each in example.layouts if each.kind == "head"}
    # A chunk in float32: 1,046 x 16,032 x 4. A shard's in bf16: 65,536 x 16,032 x 2.
    assert logits["vocab"] == 67_077_888
    assert logits["vocab logits"] == 2_101_346_304
    assert logits["hidden all-reduce"] == logits["hidden reduce-scatter"] == 33_621_540_864


def test_choices_of_the_worked_example_by_hand(example: Cost) -> None:
    # 16 bytes a candidate to 7 ranks: 65,536 x 16 x 7 = 7,340,032; 50 of them; or 65,536 x 16,032 x 2 x 7 for all logits.
    assert _layout(example, "sampling").forward.busiest_bytes == 7_340_032
    assert _layout(example, "argmax").forward.busiest_bytes == 7_340_032
    assert _layout(example, "top-50").forward.busiest_bytes == 367_001_600
    assert _layout(example, "full gather").forward.busiest_bytes == 14_709_424_128


def test_buffers_of_the_worked_example_by_hand(example: Cost) -> None:
    mib = 2**20
    # 8,192 rows are 64 MiB. Routed: those read, those that came, the output. Backward: the output's gradient, that of the
    # rows read, the same in float32, 128 MiB, and the weight's in float32 and bf16, 250.5 + 125.25 MiB.
    found = _layout(example, "routed")
    assert (found.forward_buffer_bytes, found.backward_buffer_bytes) == (3 * 64 * mib, (64 + 64 + 128 + 375.75) * mib)
    # 512 MiB of all rows, and a copy that is reduced. Backward: 512 + 512, 1,024 in float32, the weight's.
    found = _layout(example, "vocab all-reduce")
    assert (found.forward_buffer_bytes, found.backward_buffer_bytes) == (1024 * mib, (2048 + 375.75) * mib)
    # Its columns of all tokens.
    assert _layout(example, "hidden kept").forward_buffer_bytes == 64 * mib
    # Partial logits and a copy that is reduced, float32.
    assert _layout(example, "hidden all-reduce").forward_buffer_bytes == 2 * 33_621_540_864


def test_time_is_latency_and_the_busiest_rank(example: Cost) -> None:
    # 4 calls of 20 us, and 58,778,160 + 58,720,256 bytes at 50 GB/s.
    assert _layout(example, "routed").step_seconds == pytest.approx(4 * 20e-6 + 117_498_416 / 50e9)
    assert _layout(example, "hidden kept").step_seconds == 0
    assert _layout(cost(EXAMPLE, 65_536), "routed").step_seconds is None


def test_gloo_scatters_by_all_reduce(example: Cost) -> None:
    made = cost(EXAMPLE, 65_536, backend="gloo")
    assert _figures(made, "vocab reduce-scatter")[1:3] == (939_524_096, 469_762_048)
    assert _figures(made, "hidden reduce-scatter")[1] == 58_837_696_512 + 112 + 1_376_256
    assert _figures(made, "routed") == _figures(example, "routed")


def test_float32_sums_are_no_wider(example: Cost) -> None:
    made = cost(TableSizes(8, 128_256, 4096, 4), 65_536)
    assert _figures(made, "hidden all-reduce")[1] == _figures(example, "hidden all-reduce")[1]
    assert _figures(made, "vocab all-reduce")[1] == 2 * _figures(example, "vocab all-reduce")[1]


def test_numbers_that_divide_by_nothing() -> None:
    made = cost(TableSizes(3, 61, 7, 4), 17)  # tokens 6, 6, 5; columns 3, 2, 2; rows 21
    routed = _layout(made, "routed")
    # Each rank asks two of each shard; rank 2 two of itself and of shard 0, and one of shard 1.
    assert routed.forward.sent_max == 2 * 5 * 8 + 4 * 8 + 4 * 28
    assert routed.forward.sent_mean == pytest.approx(2 * 5 * 8 + (4 + 4 + 3) / 3 * (8 + 28))
    assert _layout(made, "vocab reduce-scatter").forward.sent_max == 2 * 6 * 28
    assert _layout(made, "hidden replicated").forward.sent_max == 2 * 17 * 3 * 4
    assert _layout(made, "hidden tokens").weight_bytes == 61 * 3 * 4


def test_one_shard_moves_nothing() -> None:
    made = cost(TableSizes(1, 100, 8, 2), 50, link=Link(1e-6, 1e9))
    assert {each.collectives for each in made.layouts} == {0}
    assert {each.step_seconds for each in made.layouts} == {0}


@pytest.fixture(scope="module")
def text(profile_of: ProfileOf, zipf_tokens: Callable[..., npt.NDArray[np.int64]]) -> Profile:
    return profile_of(zipf_tokens(4096, 400), 400, windows=(64,), sample_size=32)


SMALL = TableSizes(4, 400, 64, 2)
"""Rows of 128 bytes, 100 a shard."""


def test_measured_loads_are_those_of_the_replay(text: Profile) -> None:
    made = cost(SMALL, 4 * 64, profile=text, raw=True, extra_rows="20%")
    steps = list(drawn_steps(sample_windows(text.window(64).sample), 4))
    shard_map = partition(text, 4, "contiguous")
    served = replay(steps, [shard_map], 4).remote[:, 0]
    found = _layout(made, "contiguous routed")
    # Without copies a rank asks what others serve; both are known.
    assert found.backward.busiest_bytes >= served.max(axis=1).mean() * 128
    assert found.forward.sent_mean == pytest.approx(3 * 6 * 8 + served.mean() * (128 + 8))
    raw = _layout(made, "contiguous routed raw")
    assert raw.forward.sent_mean > 1.2 * found.forward.sent_mean
    balanced, copies = _layout(made, "balanced routed"), _layout(made, "balanced with copies routed")
    assert found.forward.busiest_bytes > balanced.forward.busiest_bytes > copies.forward.busiest_bytes
    assert copies.weight_bytes == balanced.weight_bytes + copies.extra_rows_per_shard * 128
    assert copies.update.busiest_bytes > 0 == balanced.update.busiest_bytes
    tokens, distinct = _layout(made, "hidden tokens"), _layout(made, "hidden tokens distinct")
    assert tokens.forward.busiest_bytes == 3 * 24 + 3 * 64 * 8 + 3 * 64 * 32 > distinct.forward.busiest_bytes


def test_given_maps_stand_beside_the_usual_ones(text: Profile) -> None:
    shard_map = partition(text, 4, extra_rows=10)
    made = cost(SMALL, 4 * 64, profile=text, maps={"mine": shard_map})
    names = [each.layout for each in made.layouts if each.kind == "embedding"]
    assert names[:5] == [
        "vocab all-reduce", "vocab reduce-scatter", "contiguous routed", "strided routed", "mine routed",
    ]  # fmt: skip
    assert _layout(made, "mine routed").extra_rows_per_shard == 10
    alone = cost(SMALL, 4 * 64, maps={"mine": shard_map})
    assert _layout(alone, "mine routed").forward == _layout(alone, "routed").forward
    assert _layout(alone, "mine routed").update == _layout(made, "mine routed").update
    assert "assumed" in alone.notes[0]
    assert "assumed" not in made.notes[0]


def test_keys_that_scripts_depend_on(text: Profile) -> None:
    for made in (cost(SMALL, 256, profile=text), cost(SMALL, 3, link=Link(0, 1), optimizer_bytes_per_element=8)):
        found = json.loads(json.dumps(made.to_json(), allow_nan=False), parse_constant=_refuse)
        assert set(found) >= {"shards", "vocab_size", "hidden", "tokens", "backend", "link", "layouts", "notes"}
        for each in found["layouts"]:
            assert set(each) >= {"kind", "layout", "weight_bytes", "forward", "backward", "update", "collectives"}
            assert set(each["forward"]) >= {"busiest_bytes", "sent_max", "sent_mean", "collectives", "seconds"}
    assert found["layouts"][0]["optimizer_bytes"] == 100 * 64 * 8


def test_errors_say_what_was_expected(text: Profile) -> None:
    wrong: list[tuple[type[SkewtoolError], str, dict[str, Any]]] = [
        (MapError, "num_tokens must be at least 1, got 0", {"num_tokens": 0}),
        (MapError, "top_k must be at least 1, got 0", {"top_k": 0}),
        (MapError, "257 tokens are not the same number on each of 4 ranks", {"num_tokens": 257, "profile": text}),
        (ProfileError, "no windows of 65 tokens", {"num_tokens": 260, "profile": text}),
        (MapError, "map a has 2 shards of 400 ids", {"maps": {"a": ShardMap.contiguous(400, 2)}}),
        (MapError, "map a has 4 shards of 401 ids", {"maps": {"a": ShardMap.contiguous(401, 4)}}),
        (MapError, "called 'strided'", {"profile": text, "maps": {"strided": ShardMap.contiguous(400, 4)}}),
    ]
    for error, message, arguments in wrong:
        with pytest.raises(error, match=message):
            cost(SMALL, **{"num_tokens": 256} | arguments)
    with pytest.raises(MapError, match="too many"):
        cost(TableSizes(8, 2**31, 2**24, 4), 2**31)
    with pytest.raises(MapError, match="bytes of rows on each of 8 ranks are too many to count"):
        cost(TableSizes(8, 2**31, 2**31, 4), 2**31)


def test_a_calibration(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    good = {"backend": "gloo", "latency_seconds": 1e-4, "bandwidth_bytes_per_second": 1e9, "more": None}
    file.write_text(json.dumps(good), encoding="utf-8")
    assert read_calibration(file) == ("gloo", Link(1e-4, 1e9))
    for wrong in (
        "", "[]", "{}", json.dumps(good | {"latency_seconds": None}), json.dumps(good | {"latency_seconds": -1}),
        json.dumps(good | {"bandwidth_bytes_per_second": 0}), '{"latency_seconds": NaN}',
    ):  # fmt: skip
        file.write_text(wrong, encoding="utf-8")
        with pytest.raises(FileFormatError, match="is no calibration"):
            read_calibration(file)
    file.write_text(json.dumps(good | {"backend": "mpi"}), encoding="utf-8")
    with pytest.raises(FileFormatError, match="backend 'mpi'; known are gloo, nccl"):
        read_calibration(file)
