"""`skewtool cost`: the keys of --json, the tables, links and calibrations, and its errors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner, Result

from skewtool import Profile, partition
from skewtool.cli import main

SIZES = ("--tokens", 256, "--vocab", 400, "--hidden", 64, "--shards", 4)


def _refuse(value: str) -> float:
    raise AssertionError(f"{value} is no JSON")


def _invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["cost", *(str(argument) for argument in arguments)])


def _json(*arguments: object) -> dict[str, Any]:
    result = _invoke(*SIZES, *arguments, "--json")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(result.stdout, parse_constant=_refuse)
    return found


@pytest.fixture(scope="module")
def files(
    tmp_path_factory: pytest.TempPathFactory,
    profile_of: Callable[..., Profile],
    zipf_tokens: Callable[..., npt.NDArray[np.int64]],
) -> Path:
    """p, a profile with windows of 64; m, a map made from it; c, a calibration."""
    folder = tmp_path_factory.mktemp("cost")
    profile = profile_of(zipf_tokens(4096, 400), 400, windows=(64,), sample_size=32)
    profile.save(folder / "p")
    partition(profile, 4, extra_rows=10).save(folder / "m")
    calibration = {"backend": "gloo", "latency_seconds": 0.001, "bandwidth_bytes_per_second": 1000}
    (folder / "c").write_text(json.dumps(calibration), encoding="utf-8")
    return folder


def test_keys_that_scripts_depend_on(files: Path) -> None:
    found = _json("--profile", files / "p", "--raw")
    assert {key: found[key] for key in ("shards", "vocab_size", "hidden", "dtype", "tokens", "backend", "link")} == {
        "shards": 4, "vocab_size": 400, "hidden": 64, "dtype": "bf16", "tokens": 256, "backend": "nccl", "link": None,
    }  # fmt: skip
    names = [each["layout"] for each in found["layouts"] if each["kind"] == "embedding"]
    assert names[:10] == [
        "vocab all-reduce", "vocab reduce-scatter", "contiguous routed raw", "contiguous routed", "strided routed raw",
        "strided routed", "balanced routed raw", "balanced routed", "balanced with copies routed raw",
        "balanced with copies routed",
    ]  # fmt: skip
    assert names[10].startswith("balanced with copies routed, capacity ")
    assert names[11:] == ["hidden tokens", "hidden tokens distinct", "hidden replicated", "hidden kept"]
    assert [each["layout"] for each in found["layouts"] if each["kind"] == "decoding"] == [
        "top-50", "sampling", "argmax", "full gather",
    ]  # fmt: skip


@pytest.mark.parametrize(("dtype", "size"), [("fp8", 1), ("bf16", 2), ("fp16", 2), ("fp32", 4)])
def test_the_type_decides_the_size_of_rows(dtype: str, size: int) -> None:
    layout = _json("--dtype", dtype)["layouts"][0]
    assert layout["weight_bytes"] == 100 * 64 * size
    assert layout["forward"]["sent_max"] == 2 * 3 * 64 * 64 * size


def test_time_needs_a_link(files: Path) -> None:
    layout = _json("--latency", 5, "--bandwidth", 8)["layouts"][0]
    assert layout["step_seconds"] == pytest.approx(5e-6 + layout["forward"]["busiest_bytes"] / 1e9)
    found = _json("--calibration", files / "c")
    assert found["backend"] == "gloo"
    assert found["layouts"][0]["step_seconds"] == pytest.approx(0.001 + layout["forward"]["busiest_bytes"] / 1000)
    assert _json()["layouts"][0]["step_seconds"] is None


def test_what_people_read(files: Path) -> None:
    even = _invoke(*SIZES, "--latency", 5, "--bandwidth", 100, "--optimizer-bytes", 8)
    assert even.exit_code == 0, even.output
    for part in ("assumed: every rank asks", "LM head with loss", "step ms", "optimizer", "top-50", "hidden kept", "MiB"):
        assert part in even.stdout
    measured = _invoke(*SIZES, "--profile", files / "p", "--map", files / "m", "--top-k", 7)
    assert measured.exit_code == 0, measured.output
    for part in ("m routed", "contiguous routed", "averages over 200 steps", "moved update", "top-7"):
        assert part in measured.stdout
    for part in ("assumed", "step ms", "optimizer"):
        assert part not in measured.stdout


def test_a_map_alone_has_even_loads(files: Path) -> None:
    found = {each["layout"]: each for each in _json("--map", files / "m")["layouts"]}
    assert found["m routed"]["extra_rows_per_shard"] == 10
    assert found["m routed"]["update"]["sent_max"] > 0
    assert found["m routed"]["forward"] == found["routed"]["forward"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--tokens", 0], 2, "--tokens"),
        (["--bandwidth", 0], 2, "--bandwidth"),
        (["--latency", 5], 2, "needs both --latency and --bandwidth"),
        (["--raw"], 2, "--raw needs a --profile"),
        (["--calibration", "c", "--latency", 5], 2, "either --calibration or"),
        (["--calibration", "c", "--backend", "nccl"], 2, "calibration is of gloo, not of nccl"),
        (["--calibration", "m"], 1, "is no calibration"),
        (["--profile", "p", "--tokens", 255], 1, "255 tokens are not the same number on each of 4 ranks"),
        (["--profile", "p", "--tokens", 260], 1, "no windows of 65 tokens"),
        (["--profile", "p", "--vocab", 399], 1, "at least the 400 ids"),
        (["--map", "m", "--shards", 3], 1, "map m has 4 shards of 400 ids"),
    ],
)
def test_errors_are_one_line(files: Path, arguments: list[object], code: int, message: str) -> None:
    here = [files / str(each) if each in ("p", "m", "c") else each for each in arguments]
    result = _invoke(*SIZES, *here)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in " ".join(result.stderr.split())
    if code == 1:
        assert result.stderr.startswith("skewtool: error: ")
        assert result.stderr.count("\n") == 1
