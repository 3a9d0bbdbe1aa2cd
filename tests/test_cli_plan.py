"""`skewtool plan`: the keys of --json, the table and the advice, sizes of memory, and its errors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner, Result

from skewtool.cli import main

KEYS = {
    "shards", "vocab_size", "hidden", "dtype", "tokens_per_rank", "lookups_per_update", "layouts", "best", "advice",
    "copy_pays_from_presence", "ids_whose_copies_pay",
}  # fmt: skip
LAYOUT_KEYS = {
    "layout", "weight_bytes", "fits", "busiest_forward_bytes", "busiest_backward_bytes", "gradient_sync_bytes",
    "temporary_bytes", "busiest_bytes_per_update",
}  # fmt: skip


def _refuse(value: str) -> float:
    raise AssertionError(f"{value} is no JSON")


def _invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def _json(*arguments: object) -> dict[str, Any]:
    result = _invoke("plan", *arguments, "--json")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(result.stdout, parse_constant=_refuse)
    return found


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory, zipf_tokens: Callable[..., npt.NDArray[np.int64]]) -> Path:
    """4,000 ids below 100, with windows of 64 and 128."""
    folder = tmp_path_factory.mktemp("plan")
    np.save(folder / "corpus.npy", zipf_tokens(4000, 100).astype(np.uint16))
    result = _invoke("profile", folder / "corpus.npy", "-o", folder / "p", "--vocab-size", 100, "--window", "64,128")
    assert result.exit_code == 0, result.output
    return folder / "p"


def test_keys_that_scripts_depend_on(profile: Path) -> None:
    found = _json(profile, "--hidden", 64, "--shards", 4)
    assert set(found) >= KEYS
    assert (found["shards"], found["vocab_size"], found["hidden"], found["dtype"]) == (4, 100, 64, "bf16")
    assert (found["tokens_per_rank"], found["lookups_per_update"], found["copy_pays_from_presence"]) == (128, None, 0.0)
    names = [layout["layout"] for layout in found["layouts"]]
    assert names == [
        "contiguous all-reduce", "contiguous reduce-scatter", "contiguous routed", "strided routed", "balanced routed",
        "balanced with copies", "hidden", "hidden distinct",
    ]  # fmt: skip
    assert found["best"] in names
    for layout in found["layouts"]:
        assert set(layout) >= LAYOUT_KEYS
        assert layout["fits"] is True
        assert all(type(layout[key]) is int for key in LAYOUT_KEYS - {"layout", "fits"})


@pytest.mark.parametrize(("dtype", "size"), [("fp8", 1), ("bf16", 2), ("fp16", 2), ("fp32", 4)])
def test_the_type_decides_the_size_of_rows(profile: Path, dtype: str, size: int) -> None:
    found = _json(profile, "--hidden", 64, "--shards", 4, "--dtype", dtype, "--tokens-per-rank", 64, "--vocab", 120)
    assert found["layouts"][0]["weight_bytes"] == 30 * 64 * size
    assert found["layouts"][0]["busiest_forward_bytes"] == 2 * 3 * 64 * 64 * size
    assert found["dtype"] == dtype


def test_training(profile: Path) -> None:
    found = _json(profile, "--hidden", 64, "--shards", 4, "--lookups-per-update", 2, "--extra-rows", 5)
    assert found["lookups_per_update"] == 2
    assert found["copy_pays_from_presence"] == pytest.approx(256 / (2 * 264))
    for layout in found["layouts"]:
        step = layout["busiest_forward_bytes"] + layout["busiest_backward_bytes"]
        assert layout["busiest_bytes_per_update"] == 2 * step + layout["gradient_sync_bytes"]


@pytest.mark.parametrize(
    ("text", "size"),
    [("20000", 20000), ("20kb", 20000), ("20KiB", 20480), ("2GiB", 2**31), ("1.5 GB", 1_500_000_000), ("1Ti", 2**40)],
)
def test_sizes_of_memory(profile: Path, text: str, size: int) -> None:
    found = _json(profile, "--hidden", 64, "--shards", 4, "--memory-per-shard", text)
    assert found["memory_per_shard"] == size
    assert all(each["fits"] == (each["weight_bytes"] + each["temporary_bytes"] <= size) for each in found["layouts"])


@pytest.mark.parametrize("text", ["", "much", "2GiBs", "-1", "0", "0.1", "i", "2ib", "nan"])
def test_sizes_that_are_none_are_refused(profile: Path, text: str) -> None:
    result = _invoke("plan", profile, "--hidden", 64, "--shards", 4, "--memory-per-shard", text)
    assert result.exit_code == 2
    assert "no size such as 2GiB" in " ".join(result.stderr.split())


def test_what_people_read(profile: Path) -> None:
    result = _invoke(
        "plan", profile, "--hidden", 64, "--shards", 4, "--lookups-per-update", 2, "--memory-per-shard", "40KiB"
    )
    assert result.exit_code == 0, result.output
    for part in ("MiB", "weight", "buffers", "per update", "balanced routed", "yes", " no\n", "Take ", "LM head"):
        assert part in result.stdout
    assert "nan" not in result.stdout.lower()
    alone = _invoke("plan", profile, "--hidden", 64, "--shards", 1)
    assert "contiguous with all-reduce is fine for you" in alone.stdout


def test_help() -> None:
    assert "plan" in _invoke("--help").stdout
    own = _invoke("plan", "--help")
    for option in ("--hidden", "--shards", "--vocab", "--tokens-per-rank", "--dtype", "--memory-per-shard", "--extra-rows",
                   "--lookups-per-update", "--json"):  # fmt: skip
        assert option in own.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--vocab", 99], 1, "at least the 100 ids of the profile, got 99"),
        (["--tokens-per-rank", 65], 1, "no windows of 65 tokens"),
        (["--extra-rows", "some"], 1, "extra rows must be"),
        (["--hidden", 0], 2, "--hidden"),
        (["--dtype", "int4"], 2, "--dtype"),
        (["--lookups-per-update", 0], 2, "--lookups-per-update"),
    ],
)
def test_errors_are_one_line(profile: Path, arguments: list[object], code: int, message: str) -> None:
    result = _invoke("plan", profile, "--hidden", 64, "--shards", 4, *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    if code == 1:
        assert result.stderr.startswith("skewtool: error: ")
        assert result.stderr.count("\n") == 1
