"""`skewtool rebalance`: keys of --json, the files it writes, errors of one line, and nothing left behind."""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner, Result

from skewtool import ShardMap
from skewtool.cli import main
from skewtool.sharding import apply_moves

KEYS = {
    "shards", "vocab_size", "imbalance_before", "imbalance", "lower_bound", "gap", "moved_rows", "forced_rows", "new_rows",
    "slot_changes", "curve", "fingerprint_before", "fingerprint",
}  # fmt: skip


def _invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def _json(*arguments: object) -> dict[str, Any]:
    result = _invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@dataclass(frozen=True)
class Files:
    """Profiles of 1,000 ids from two corpora, one of them also with 1,024 ids; a map of 4 shards, and one with copies."""

    folder: Path

    def __getattr__(self, name: str) -> Path:
        return self.folder / f"{name}.{'npy' if name in ('one', 'two') else 'safetensors'}"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, zipf_tokens: Callable[..., npt.NDArray[np.int64]]) -> Files:
    made = Files(tmp_path_factory.mktemp("rebalance"))
    for seed, path in enumerate((made.one, made.two)):
        np.save(path, zipf_tokens(20_000, 1000, seed).astype(np.uint16))
    for arguments in (
        ["profile", made.one, "-o", made.first, "--vocab-size", 1000, "--window", "64,128"],
        ["profile", made.two, "-o", made.second, "--vocab-size", 1000, "--window", "64,128"],
        ["profile", made.two, "-o", made.wider, "--vocab-size", 1024, "--window", "64,128"],
        ["partition", made.first, "-o", made.map, "--shards", 4],
        ["partition", made.first, "-o", made.copies, "--shards", 4, "--extra-rows", "10%"],
    ):
        result = _invoke(*arguments)
        assert result.exit_code == 0, result.output
    return made


def test_json(files: Files, tmp_path: Path) -> None:
    found = _json("rebalance", files.map, files.second, "-o", tmp_path / "m", "--load", "raw")
    assert set(found) >= KEYS
    assert found["fingerprint_before"] == ShardMap.load(files.map).fingerprint
    assert found["fingerprint"] == ShardMap.load(tmp_path / "m").fingerprint
    assert (found["shards"], found["vocab_size"], found["forced_rows"], found["new_rows"]) == (4, 1000, 0, 0)
    assert 0 < found["moved_rows"] <= 10
    assert found["imbalance_before"] > found["imbalance"] >= found["lower_bound"]
    assert found["gap"] == pytest.approx(found["imbalance"] / found["lower_bound"] - 1, abs=1e-9)
    assert found["curve"][0] == [0, found["imbalance_before"]]
    assert found["curve"][-1] == [found["moved_rows"], found["imbalance"]]


@pytest.mark.parametrize("name", ["map", "copies"])
def test_the_same_profile_moves_nothing(files: Files, tmp_path: Path, name: str) -> None:
    old = getattr(files, name)
    found = _json("rebalance", old, files.first, "-o", tmp_path / "m", "--moves", tmp_path / "moves.csv")
    assert found["fingerprint"] == found["fingerprint_before"]
    assert (found["moved_rows"], found["slot_changes"], len(found["curve"])) == (0, 0, 1)
    assert (tmp_path / "m").read_bytes() == old.read_bytes()
    assert (tmp_path / "moves.csv").read_text() == "id,from_shard,from_slot,to_shard,to_slot\n"


@pytest.mark.parametrize("options", [(), ("--shards", 8, "--max-moved", "60%"), ("--shards", 3, "--max-moved", 300)])
def test_moves_replay_to_the_same_map(files: Files, tmp_path: Path, options: tuple[object, ...]) -> None:
    for ending in ("csv", "json"):
        result = _json(
            "rebalance", files.map, files.wider, "-o", tmp_path / ending, "--moves", tmp_path / f"moves.{ending}", *options
        )
        assert result["new_rows"] == 24
    with (tmp_path / "moves.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["id", "from_shard", "from_slot", "to_shard", "to_slot"]
    listed = json.loads((tmp_path / "moves.json").read_text())
    moves = np.array(rows, np.int64)
    assert listed["columns"] == header
    assert listed["moves"] == moves.tolist()
    new = ShardMap.load(tmp_path / "csv")
    assert (listed["shards"], listed["home_slots"], listed["real_vocab"]) == (new.num_shards, new.home_slots, new.real_vocab)
    assert apply_moves(ShardMap.load(files.map), moves, new.num_shards, new.home_slots) == new
    assert sorted(path.name for path in tmp_path.iterdir()) == ["csv", "json", "moves.csv", "moves.json"]
    assert len(rows) == result["moved_rows"] + result["new_rows"] + result["slot_changes"]


def test_what_is_printed(files: Files, tmp_path: Path) -> None:
    result = _invoke("rebalance", files.map, files.second, "-o", tmp_path / "m", "--load", "raw", "--max-moved", "5%")
    assert result.exit_code == 0, result.output
    made = ShardMap.load(tmp_path / "m")
    assert "of 1,000 rows change shard (0 for equal rows, " in result.stdout
    assert "raw load: busiest / mean 1." in result.stdout
    assert 2 <= result.stdout.count(" rows moved: ") <= 8
    assert "        0 rows moved: 1." in result.stdout
    assert f"fingerprint {made.fingerprint}" in result.stdout
    assert _json("verify", tmp_path / "m")["ok"] is True


def test_twice_gives_the_same_bytes(files: Files, tmp_path: Path) -> None:
    for name in ("a", "b"):
        _json("rebalance", files.map, files.second, "-o", tmp_path / name, "--moves", tmp_path / f"{name}.csv")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


BAD_INPUT = [
    pytest.param(["{absent}", "{second}"], "there is no file", id="absent map"),
    pytest.param(["{map}", "{absent}"], "there is no file", id="absent profile"),
    pytest.param(["{second}", "{second}"], "expected a shard-map", id="a profile as map"),
    pytest.param(["{map}", "{map}"], "expected a profile", id="a map as profile"),
    pytest.param(["{map}", "{second}", "--shards", "8"], "at least 500", id="budget below equal rows"),
    pytest.param(["{copies}", "{second}", "--shards", "8"], "partition --shards 8 --extra-rows", id="copies on more shards"),
    pytest.param(["{map}", "{second}", "--max-moved", "some"], "percentage such as 10%", id="no budget"),
    pytest.param(["{map}", "{second}", "--max-moved", "-3"], "negative", id="negative budget"),
    pytest.param(["{map}", "{second}", "--real-vocab", "5"], "padding id", id="padding with load"),
    pytest.param(["{map}", "{second}", "--tokens-per-rank", "65"], "65", id="no such windows"),
    pytest.param(["{map}", "{second}", "--moves", "{folder}/absent/m.csv"], "no directory", id="moves to nowhere"),
]


@pytest.mark.parametrize(("arguments", "told"), BAD_INPUT)
def test_bad_input_is_one_line_and_leaves_nothing(files: Files, tmp_path: Path, arguments: list[str], told: str) -> None:
    names = ("absent", "first", "second", "map", "copies", "folder")
    filled = [argument.format(**{name: getattr(files, name) for name in names}) for argument in arguments]
    before = sorted(files.folder.iterdir())
    result = _invoke(
        "rebalance", *filled, "-o", tmp_path / "out", *([] if "--moves" in filled else ["--moves", tmp_path / "m.csv"])
    )
    assert isinstance(result.exception, SystemExit), result.exception
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("skewtool: error: ")
    assert told in line
    assert list(tmp_path.iterdir()) == []
    assert sorted(files.folder.iterdir()) == before


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["-o", "{out}", "--moves", "{out}.txt"],
        ["-o", "{out}.csv", "--moves", "{out}.csv"],
        ["-o", "{out}", "--shards", "0"],
        ["-o", "{out}", "--load", "bytes"],
    ],
)
def test_wrong_usage_is_exit_code_2(files: Files, tmp_path: Path, options: list[str]) -> None:
    result = _invoke("rebalance", files.map, files.second, *(option.format(out=tmp_path / "out") for option in options))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Error: " in result.stderr
    assert list(tmp_path.iterdir()) == []
