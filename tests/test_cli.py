"""The command line: keys of --json, one line per error, exit codes, and nothing left behind."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner, Result

from skewtool import Profile, ShardMap, __version__
from skewtool.cli import main

COMMANDS = ["profile", "merge", "inspect", "partition", "verify", "skew", "report"]
QUANTILES = {"p50", "p99", "max"}


def _refuse(value: str) -> float:
    raise AssertionError(f"{value} is no JSON")


def _invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def _json(*arguments: object) -> dict[str, Any]:
    """Runs a command with --json: exactly one line on stdout, one object without NaN."""
    result = _invoke(*arguments, "--json")
    assert result.exit_code == 0, result.output
    assert result.stdout.count("\n") == 1
    found: dict[str, Any] = json.loads(result.stdout, parse_constant=_refuse)
    return found


@dataclass(frozen=True)
class Files:
    """A corpus of 4,000 ids below 100 as .npy and raw, its profile with windows of 64 and 128, and a map of 4 shards."""

    folder: Path

    def __getattr__(self, name: str) -> Path:
        ending = {"corpus": "npy", "raw": "bin", "empty": "bin", "text": "txt", "tokenizer": "json"}
        return self.folder / f"{name}.{ending.get(name, 'safetensors')}"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, zipf_tokens: Callable[..., npt.NDArray[np.int64]]) -> Files:
    made = Files(tmp_path_factory.mktemp("cli"))
    tokens = zipf_tokens(4000, 100).astype(np.uint16)
    np.save(made.corpus, tokens)
    tokens.tofile(made.raw)
    made.empty.write_bytes(b"")
    made.text.write_text("not a map")
    words = {f"w{number}": number for number in range(90)}
    made.tokenizer.write_text(
        json.dumps({"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": {"type": "Whitespace"},
                    "post_processor": None, "decoder": None, "truncation": None, "padding": None,
                    "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"}})
    )  # fmt: skip
    for arguments in (
        ["profile", made.corpus, "-o", made.profile, "--vocab-size", 100, "--window", "64,128"],
        ["profile", made.corpus, "-o", made.counts, "--vocab-size", 100, "--window", "0"],
        ["profile", made.corpus, "-o", made.wider, "--vocab-size", 128, "--window", "64,128"],
        ["partition", made.profile, "-o", made.map, "--shards", 4],
        ["partition", made.profile, "-o", made.map3, "--shards", 3],
    ):
        result = _invoke(*arguments)
        assert result.exit_code == 0, result.output
    small = ShardMap.from_homes(np.arange(40) % 4, 4)
    small.save(made.small)
    damaged = bytearray(made.map.read_bytes())
    damaged[-3] ^= 1
    made.damaged.write_bytes(bytes(damaged))
    made.cut.write_bytes(made.profile.read_bytes()[:-10])
    return made


def test_help_and_version() -> None:
    result = _invoke("--help")
    assert result.exit_code == 0
    for command in COMMANDS:
        assert command in result.stdout
        own = _invoke(command, "-h")
        assert own.exit_code == 0
        assert "--json" in own.stdout
    assert __version__ in _invoke("--version").stdout


def test_profile_json(files: Files, tmp_path: Path) -> None:
    found = _json("profile", files.corpus, "-o", tmp_path / "p", "--vocab-size", 100, "--window", 64)
    assert set(found) >= {"num_tokens", "num_distinct", "vocab_size", "counts_sha256", "dropped", "files",
                          "tokens_per_second"}  # fmt: skip
    saved = Profile.load(tmp_path / "p")
    assert (found["num_tokens"], found["vocab_size"]) == (4000, 100)
    assert found["num_distinct"] == saved.num_distinct == np.unique(np.load(files.corpus)).size
    assert found["counts_sha256"] == saved.counts_sha256
    assert found["dropped"] == {}
    assert [each["name"] for each in found["files"]] == ["corpus.npy"]
    assert [path.name for path in tmp_path.iterdir()] == ["p"]


def test_profile_of_raw_ids_is_the_same(files: Files, tmp_path: Path) -> None:
    found = _json("profile", files.raw, "-o", tmp_path / "p", "--dtype", "uint16", "--vocab-size", 100)
    assert found["counts_sha256"] == Profile.load(files.profile).counts_sha256


def test_dropped_tokens_are_counted(files: Files, tmp_path: Path) -> None:
    found = _json("profile", files.corpus, "-o", tmp_path / "p", "--vocab-size", 10, "--allow", "bad-ids", "--window", "64")
    assert sum(found["dropped"].values()) == int((np.load(files.corpus) >= 10).sum())
    assert found["num_tokens"] + sum(found["dropped"].values()) == 4000


def test_merge_json(files: Files, tmp_path: Path) -> None:
    found = _json("merge", files.profile, files.profile, "-o", tmp_path / "p")
    assert set(found) >= {"num_tokens", "num_distinct", "vocab_size", "counts_sha256", "dropped", "files"}
    assert found["num_tokens"] == 8000


@pytest.mark.parametrize(
    ("name", "kind", "keys"),
    [
        ("corpus", "corpus", {"format", "dtype", "num_tokens", "notes"}),
        ("profile", "profile", {"num_tokens", "vocab_size", "counts_sha256", "files"}),
        ("counts", "profile", {"num_tokens", "vocab_size", "counts_sha256", "files"}),
        ("map", "shard-map", {"shards", "vocab_size", "real_vocab", "rows_per_shard", "fingerprint"}),
    ],
)
def test_inspect(files: Files, name: str, kind: str, keys: set[str]) -> None:
    found = _json("inspect", getattr(files, name))
    assert found["kind"] == kind
    assert set(found) >= keys
    plain = _invoke("inspect", getattr(files, name))
    assert plain.exit_code == 0
    assert kind in plain.stdout


@pytest.mark.parametrize("strategy", ["contiguous", "strided", "snake", "random", "balanced"])
@pytest.mark.parametrize("load", ["unique", "raw"])
def test_partition_json(files: Files, tmp_path: Path, strategy: str, load: str) -> None:
    found = _json("partition", files.profile, "-o", tmp_path / "m", "--shards", 8, "--strategy", strategy, "--load", load)
    assert set(found) >= {"strategy", "shards", "load", "imbalance", "lower_bound", "gap", "rows_per_shard",
                          "extra_rows_per_shard", "fingerprint", "seconds"}  # fmt: skip
    assert (found["strategy"], found["shards"], found["load"]) == (strategy, 8, load)
    assert found["fingerprint"] == ShardMap.load(tmp_path / "m").fingerprint
    assert found["rows_per_shard"] == ([9, 13] if strategy == "contiguous" else [12, 13])
    assert found["extra_rows_per_shard"] == 0
    if strategy != "contiguous":
        assert found["imbalance"] >= found["lower_bound"] >= 1.0 - 1e-12
        assert found["gap"] == pytest.approx(found["imbalance"] / found["lower_bound"] - 1, abs=1e-9)


@pytest.mark.parametrize("shards", [1, 100, 512])
def test_partition_for_any_number_of_shards(files: Files, tmp_path: Path, shards: int) -> None:
    found = _json("partition", files.profile, "-o", tmp_path / "m", "--shards", shards)
    assert found["rows_per_shard"] == {1: [100, 100], 100: [1, 1], 512: [0, 1]}[shards]
    assert _json("verify", tmp_path / "m")["ok"] is True


def test_partition_pads_and_keeps_padding_ids_even(files: Files, tmp_path: Path) -> None:
    _json("partition", files.profile, "-o", tmp_path / "m", "--shards", 8, "--pad-to", 16, "--real-vocab", 90)
    found = _json("inspect", tmp_path / "m")
    assert (found["home_slots"], found["real_vocab"], found["padding_slots"]) == (16, 90, 8 * 16 - 100)
    made = ShardMap.load(tmp_path / "m")
    padding = np.bincount(made.shard_of[90:], minlength=8)
    assert padding.max() - padding.min() <= 1


def test_partition_twice_gives_the_same_bytes(files: Files, tmp_path: Path) -> None:
    for name in ("a", "b"):
        _json("partition", files.profile, "-o", tmp_path / name, "--shards", 8)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_three_sizes_of_a_vocabulary(files: Files, tmp_path: Path) -> None:
    found = _json("profile", files.corpus, "-o", tmp_path / "p", "--tokenizer", files.tokenizer, "--vocab-size", 96)
    assert found["tokenizer"]["base_size"] == found["tokenizer"]["num_ids"] == 90
    assert found["vocab_size"] == 96
    _json("partition", tmp_path / "p", "-o", tmp_path / "m", "--shards", 8)
    assert ShardMap.load(tmp_path / "m").real_vocab == 90


def test_verify(files: Files) -> None:
    found = _json("verify", files.map)
    assert found["ok"] is True
    assert found["fingerprint"] == ShardMap.load(files.map).fingerprint
    assert "good" in _invoke("verify", files.map).stdout


def _check_skew(found: dict[str, Any], layouts: set[str], loads: set[str]) -> None:
    assert set(found) >= {"shards", "tokens_per_rank", "steps", "top1_percent_share", "layouts"}
    assert {each["layout"] for each in found["layouts"]} == layouts
    for each in found["layouts"]:
        assert set(each) >= {"layout", "load", "mean_imbalance", "lower_bound", "step_imbalance",
                             "busiest_rows_per_token", "extra_rows_per_shard"}  # fmt: skip
        assert each["load"] in loads
        for key in ("step_imbalance", "busiest_rows_per_token"):
            assert each[key] is None or set(each[key]) == QUANTILES


def test_skew_json_on_a_profile(files: Files) -> None:
    found = _json("skew", files.map, "--profile", files.profile)
    _check_skew(found, {"map", "contiguous", "strided", "hidden"}, {"raw", "unique"})
    assert (found["shards"], found["tokens_per_rank"]) == (4, 128)
    assert found["steps"] > 0


def test_skew_json_on_a_corpus(files: Files) -> None:
    found = _json("skew", files.map, "--corpus", files.corpus, "--tokens-per-rank", 64, "--part", "50%:100%")
    _check_skew(found, {"map", "contiguous", "strided", "hidden"}, {"raw", "unique"})
    assert found["steps"] == 2000 // 64 // 4


@pytest.mark.parametrize("against", ["strided", "hidden", "random,snake", "hidden,hidden"])
def test_skew_against_what_is_asked(files: Files, against: str) -> None:
    found = _json("skew", "--profile", files.profile, "--shards", 4, "--against", against)
    _check_skew(found, set(against.split(",")), {"raw", "unique"})


def test_skew_against_nothing(files: Files) -> None:
    found = _json("skew", files.map, "--profile", files.profile, "--against", "")
    _check_skew(found, {"map"}, {"raw", "unique"})


def test_skew_of_maps_with_one_name(files: Files, tmp_path: Path) -> None:
    other = tmp_path / "map.safetensors"
    _json("partition", files.profile, "-o", other, "--shards", 4, "--strategy", "snake")
    found = _json("skew", files.map, other, "--profile", files.profile, "--against", "hidden")
    assert len({each["layout"] for each in found["layouts"]}) == 3


def test_skew_of_a_corpus_shorter_than_a_window(files: Files) -> None:
    found = _json("skew", files.map, "--corpus", files.corpus, "--tokens-per-rank", 5000)
    assert found["steps"] == 0
    assert all(each["step_imbalance"] is None for each in found["layouts"])
    plain = _invoke("skew", files.map, "--corpus", files.corpus, "--tokens-per-rank", 5000)
    assert plain.exit_code == 0
    assert "nan" not in plain.output.lower()


def test_skew_on_counts_alone_is_told_or_refused(files: Files) -> None:
    result = _invoke("skew", "--profile", files.counts, "--shards", 4, "--json")
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if result.exit_code == 0:
        _check_skew(json.loads(result.stdout, parse_constant=_refuse), {"contiguous", "strided", "hidden"}, {"raw"})
    else:
        assert "--window" in result.stderr


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory, zipf_tokens: Callable[..., npt.NDArray[np.int64]]) -> Path:
    """The profile of 200,000 ids below 100, six blocks."""
    folder = tmp_path_factory.mktemp("long")
    np.save(folder / "ids.npy", zipf_tokens(200_000, 100).astype(np.uint16))
    path = folder / "long.safetensors"
    assert _invoke("profile", folder / "ids.npy", "-o", path, "--vocab-size", 100, "--window", 64).exit_code == 0
    return path


def test_skew_over_the_corpus(files: Files, long: Path) -> None:
    found = _json("skew", files.map, "--profile", long)["over_corpus"]
    assert sum(found["num_tokens"]) == 200_000
    assert _json("inspect", long)["blocks"] == 6
    assert len(found["num_tokens"]) == len(found["drift"]) == 6
    assert found["drift"][0] == 0
    assert set(found["imbalance"]) == {"unique", "raw"}
    for layouts in found["imbalance"].values():
        assert set(layouts) == {"map", "contiguous", "strided"}
        assert all(len(each) == 6 and min(each) >= 1 for each in layouts.values())
        assert max(layouts["map"]) < min(layouts["contiguous"])
    plain = _invoke("skew", files.map, "--profile", long).stdout
    assert "over the corpus, 6 blocks, estimated" in plain
    rows = [line.split() for line in plain.split("worst block")[1].splitlines()[1:7]]
    names = ("map", "contiguous", "strided")
    assert [row[:2] for row in rows] == [[name, load] for name in names for load in ("unique", "raw")]


def test_skew_over_the_corpus_of_nothing_or_of_counts_alone(files: Files) -> None:
    result = _invoke("skew", "--profile", files.profile, "--shards", 4, "--against", "hidden")
    assert result.exit_code == 0
    assert "over the corpus" not in result.stdout
    found = _json("skew", "--profile", files.counts, "--shards", 4)["over_corpus"]
    assert set(found["imbalance"]) == {"raw"}
    merged = files.folder / "merged.safetensors"
    assert _invoke("merge", files.profile, files.profile, "-o", merged).exit_code == 0
    assert _json("skew", "--profile", merged, "--shards", 4)["over_corpus"] is None
    assert _json("inspect", merged)["blocks"] == 0


def test_skew_says_where_it_does_not_matter(files: Files) -> None:
    result = _invoke("skew", files.map, "--profile", files.profile)
    assert result.exit_code == 0
    assert "does not matter" in result.stdout
    assert "map" in result.stdout


def test_report_over_the_corpus(files: Files, long: Path, tmp_path: Path) -> None:
    found = _json("report", long, files.map, "-o", tmp_path / "out")
    assert {"over_corpus.png", "over_corpus.svg"} <= set(found["files"])
    assert "<h2>Imbalance over the corpus, estimated</h2>" in (tmp_path / "out" / "index.html").read_text()


def test_report_json(files: Files, tmp_path: Path) -> None:
    found = _json("report", files.profile, files.map, "-o", tmp_path / "out", "--tokenizer", files.tokenizer)
    assert found["index"] == str(tmp_path / "out" / "index.html")
    assert set(found["files"]) == {path.name for path in (tmp_path / "out").iterdir()}
    assert {"index.html", "skew.json", "load_per_shard.png", "load_per_shard.svg"} <= set(found["files"])
    assert "<code>w0</code>" in (tmp_path / "out" / "index.html").read_text()


BAD_INPUT = [
    pytest.param(["profile", "{absent}", "-o", "{out}"], "there is no file", id="profile absent"),
    pytest.param(["profile", "{empty}", "-o", "{out}"], "empty", id="profile empty"),
    pytest.param(["profile", "{raw}", "-o", "{out}"], "dtype", id="profile without a type"),
    pytest.param(["profile", "{raw}", "-o", "{out}", "--dtype", "uint17"], "uint17", id="profile unknown type"),
    pytest.param(["profile", "{corpus}", "-o", "{out}/p"], "no directory", id="profile to nowhere"),
    pytest.param(["profile", "{corpus}", "-o", "{folder}"], "is a directory", id="profile to a directory"),
    pytest.param(["profile", "{corpus}", "-o", "{out}", "--vocab-size", "10"], "outside the vocabulary", id="bad ids"),
    pytest.param(["profile", "{corpus}", "-o", "{out}", "--allow", "all"], "unknown check", id="unknown check"),
    pytest.param(["profile", "{corpus}", "-o", "{out}", "--window", "-5"], "window", id="negative window"),
    pytest.param(["profile", "{corpus}", "-o", "{out}", "--part", "80%:20%"], "part", id="part out of order"),
    pytest.param(["profile", "{corpus}", "-o", "{out}", "--part", "nan:1"], "part", id="part nan"),
    pytest.param(["profile", "{corpus}", "-o", "{out}", "--tokenizer", "{text}"], "tokenizer", id="bad tokenizer"),
    pytest.param(["profile", "{corpus}", "-o", "{out}", "--tokenizer", "{absent}"], "no tokenizer", id="no tokenizer"),
    pytest.param(["merge", "{profile}", "{wider}", "-o", "{out}"], "vocabulary sizes", id="merge unlike"),
    pytest.param(["merge", "{profile}", "{absent}", "-o", "{out}"], "there is no file", id="merge absent"),
    pytest.param(["merge", "{profile}", "{map}", "-o", "{out}"], "expected a profile", id="merge a map"),
    pytest.param(["inspect", "{absent}"], "there is no file", id="inspect absent"),
    pytest.param(["inspect", "{empty}"], "empty", id="inspect empty"),
    pytest.param(["inspect", "{damaged}"], "damaged", id="inspect damaged"),
    pytest.param(["partition", "{absent}", "-o", "{out}", "--shards", "2"], "there is no file", id="partition absent"),
    pytest.param(["partition", "{map}", "-o", "{out}", "--shards", "2"], "expected a profile", id="partition a map"),
    pytest.param(["partition", "{corpus}", "-o", "{out}", "--shards", "2"], "safetensors", id="partition a corpus"),
    pytest.param(["partition", "{cut}", "-o", "{out}", "--shards", "2"], "cut", id="partition a cut profile"),
    pytest.param(["partition", "{folder}", "-o", "{out}", "--shards", "2"], "not a file", id="partition a directory"),
    pytest.param(["partition", "{profile}", "-o", "{out}/m", "--shards", "2"], "no directory", id="partition to nowhere"),
    pytest.param(["partition", "{profile}", "-o", "{folder}", "--shards", "2"], "a directory", id="partition to a folder"),
    pytest.param(
        ["partition", "{profile}", "-o", "{out}", "--shards", "2", "--tokens-per-rank", "65"], "65", id="no such windows"
    ),
    pytest.param(["partition", "{counts}", "-o", "{out}", "--shards", "2"], "--window", id="unique load of counts alone"),
    pytest.param(
        ["partition", "{profile}", "-o", "{out}", "--shards", "2", "--real-vocab", "5"], "padding id", id="padding with load"
    ),
    pytest.param(
        ["partition", "{profile}", "-o", "{out}", "--shards", "2", "--real-vocab", "101"], "real_vocab", id="too many real"
    ),
    pytest.param(["verify", "{absent}"], "there is no file", id="verify absent"),
    pytest.param(["verify", "{damaged}"], "damaged", id="verify damaged"),
    pytest.param(["verify", "{text}"], "safetensors", id="verify text"),
    pytest.param(["verify", "{empty}"], "safetensors", id="verify empty"),
    pytest.param(["verify", "{profile}"], "expected a shard-map", id="verify a profile"),
    pytest.param(["verify", "{folder}"], "not a file", id="verify a directory"),
    pytest.param(["skew", "--profile", "{profile}"], "number of shards", id="skew without shards"),
    pytest.param(["skew", "{map}", "{map3}", "--profile", "{profile}"], "shards", id="skew of unlike maps"),
    pytest.param(["skew", "{map}", "--profile", "{profile}", "--shards", "8"], "shards", id="skew with other shards"),
    pytest.param(["skew", "{small}", "--profile", "{profile}"], "rows for 40 ids", id="skew of a small map"),
    pytest.param(["skew", "{map}", "--profile", "{absent}"], "there is no file", id="skew on absent"),
    pytest.param(["skew", "{map}", "--profile", "{map}"], "expected a profile", id="skew on a map"),
    pytest.param(["skew", "{map}", "--corpus", "{empty}"], "empty", id="skew on an empty corpus"),
    pytest.param(["skew", "{map}", "--profile", "{profile}", "--against", "best"], "best", id="skew against unknown"),
    pytest.param(["skew", "{map}", "--profile", "{profile}", "--tokens-per-rank", "9"], "9", id="skew no such windows"),
    pytest.param(["report", "{absent}", "-o", "{out}", "--shards", "2"], "there is no file", id="report absent"),
    pytest.param(["report", "{profile}", "-o", "{out}"], "number of shards", id="report without shards"),
    pytest.param(["report", "{profile}", "{damaged}", "-o", "{out}"], "damaged", id="report a damaged map"),
    pytest.param(["report", "{profile}", "{map}", "-o", "{out}", "--tokenizer", "{text}"], "tokenizer", id="report names"),
]


def _filled(arguments: Sequence[str], files: Files, out: Path) -> list[str]:
    names = ("absent", "empty", "raw", "corpus", "text", "tokenizer", "profile", "wider", "counts", "map", "map3", "small",
             "damaged", "cut")  # fmt: skip
    paths = {name: getattr(files, name) for name in names}
    return [argument.format(out=out, folder=files.folder, **paths) for argument in arguments]


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize(("arguments", "told"), BAD_INPUT)
def test_bad_input_is_one_line_and_leaves_nothing(
    files: Files, tmp_path: Path, arguments: list[str], told: str, as_json: bool
) -> None:
    before = sorted(files.folder.iterdir())
    result = _invoke(*_filled(arguments, files, tmp_path / "out"), *(["--json"] if as_json else []))
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = [each for each in result.stderr.splitlines() if not each.startswith("note: ")]
    assert line.startswith("skewtool: error: ")
    assert told in line
    assert list(tmp_path.rglob("*")) == []
    assert sorted(files.folder.iterdir()) == before


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["profile"],
        ["profile", "{corpus}"],
        ["profile", "{corpus}", "-o", "{out}", "--window", "x"],
        ["profile", "{corpus}", "-o", "{out}", "--window", ""],
        ["profile", "{corpus}", "-o", "{out}", "--part", "x"],
        ["profile", "{corpus}", "-o", "{out}", "--part", "0:1:2"],
        ["profile", "{corpus}", "-o", "{out}", "--vocab-size", "0"],
        ["profile", "{corpus}", "-o", "{out}", "--workers", "0"],
        ["profile", "{corpus}", "-o", "{out}", "--format", "pickle"],
        ["merge", "-o", "{out}"],
        ["partition", "{profile}", "-o", "{out}"],
        ["partition", "{profile}", "--shards", "4"],
        ["partition", "{profile}", "-o", "{out}", "--shards", "0"],
        ["partition", "{profile}", "-o", "{out}", "--shards", "-1"],
        ["partition", "{profile}", "-o", "{out}", "--shards", "2.5"],
        ["partition", "{profile}", "-o", "{out}", "--shards", "2", "--load", "bytes"],
        ["partition", "{profile}", "-o", "{out}", "--shards", "2", "--pad-to", "0"],
        ["verify"],
        ["skew", "{map}"],
        ["skew", "{map}", "--profile", "{profile}", "--corpus", "{corpus}"],
        ["report", "{profile}", "--shards", "2"],
    ],
)
def test_wrong_usage_is_exit_code_2(files: Files, tmp_path: Path, arguments: list[str]) -> None:
    result = _invoke(*_filled(arguments, files, tmp_path / "out"))
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error: " in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["profile", "{corpus}", "-o", "{out}", "--window", "64", "--seed", "-1"],
        ["profile", "{corpus}", "-o", "{out}", "--window", "64", "--seed", str(2**63)],
        ["partition", "{profile}", "-o", "{out}", "--shards", "2", "--strategy", "random", "--seed", str(2**200)],
        ["partition", "{profile}", "-o", "{out}", "--shards", "2", "--strategy", "best"],
        ["skew", "--profile", "{profile}", "--shards", "2", "--seed", "-1"],
        ["skew", "--profile", "{profile}", "--shards", "2", "--against", ""],
        ["skew", "--profile", "{profile}", "--shards", "2", "--seed", str(2**200)],
        ["profile", "{corpus}", "-o", "{out}", "--window", "0,64"],
    ],
)
def test_odd_values_work_or_are_refused(files: Files, tmp_path: Path, arguments: list[str]) -> None:
    """Either is fine; a traceback is not."""
    result = _invoke(*_filled(arguments, files, tmp_path / "out"))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    if result.exit_code:
        assert "error: " in result.stderr.lower()
        assert list(tmp_path.iterdir()) == []


def test_a_failed_command_keeps_the_old_output(files: Files, tmp_path: Path) -> None:
    out = tmp_path / "m"
    out.write_bytes(b"old")
    assert _invoke("partition", files.damaged, "-o", out, "--shards", 2).exit_code == 1
    assert out.read_bytes() == b"old"


def test_a_map_of_another_kind_is_refused_by_inspect(tmp_path: Path) -> None:
    from skewtool.storage import save_tensor_file

    save_tensor_file(tmp_path / "x", "something", "1.0", {}, {"a": np.zeros(1, np.int32)})
    result = _invoke("inspect", tmp_path / "x")
    assert isinstance(result.exception, SystemExit)
    assert result.exit_code == 1
    assert "something" in result.stderr


RUN = "import sys; from skewtool.cli import main; main(prog_name='skewtool')"


def test_results_and_notes_go_to_their_own_streams(files: Files, tmp_path: Path, run_python: Callable[..., Any]) -> None:
    done = run_python(RUN, "profile", files.corpus, "-o", tmp_path / "p", "--window", "64", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout, parse_constant=_refuse)["num_tokens"] == 4000
    assert done.stderr.startswith("note: the vocabulary size was not given")
    assert "\r" not in done.stderr  # no progress bar where there is no terminal


@pytest.mark.parametrize(("arguments", "code"), [(["verify", "{damaged}"], 1), (["partition", "{profile}"], 2)])
def test_exit_codes_of_the_process(
    files: Files, tmp_path: Path, run_python: Callable[..., Any], arguments: list[str], code: int
) -> None:
    done = run_python(RUN, *_filled(arguments, files, tmp_path / "out"))
    assert (done.returncode, done.stdout) == (code, "")
    assert "Traceback" not in done.stderr
    if code == 1:
        assert done.stderr.count("\n") == 1


def test_a_closed_pipe_is_no_error_to_tell(files: Files) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-c", RUN, "inspect", str(files.map)], stdout=write, stderr=subprocess.PIPE, text=True,
            check=False, timeout=120,
        )  # fmt: skip
    finally:
        os.close(write)
    assert "Traceback" not in done.stderr
    assert "error:" not in done.stderr


def test_a_newer_minor_version_is_one_note(files: Files, tmp_path: Path, run_python: Callable[..., Any]) -> None:
    from skewtool.storage import save_tensor_file

    shard_map = ShardMap.load(files.map)
    header = {"home_slots": shard_map.home_slots, "vocab_size": 100, "real_vocab": 100, "fingerprint": shard_map.fingerprint}
    save_tensor_file(tmp_path / "m", "shard-map", "1.9", header, {"token_at": shard_map.token_at})
    done = run_python(RUN, "verify", tmp_path / "m")
    assert done.returncode == 0
    assert done.stderr.startswith("note: ")
    assert done.stderr.count("\n") == 1


def test_inspect_tells_failed_checks_and_goes_on(tmp_path: Path) -> None:
    np.concatenate([np.arange(1, 3000), np.zeros(3000)]).astype("<u4").tofile(tmp_path / "a.bin")
    found = _json("inspect", tmp_path / "a.bin", "--dtype", "uint32", "--vocab-size", 2000)
    assert "ends with 3000 zeros from token 2999" in found["failed_check"]
    assert (found["num_tokens"], found["dropped"]) == (2999, {"zero-tail": 3000})
    assert found["first_ids"] == {"num_ids": 2999, "lowest": 1, "highest": 2999, "num_distinct": 2999, "num_outside": 1000}
    plain = _invoke("inspect", tmp_path / "a.bin", "--dtype", "uint32", "--vocab-size", 2000)
    assert "zero-tail 3,000" in plain.stdout
    assert "rows 2,000" in plain.stdout
    allowed = _json("inspect", tmp_path / "a.bin", "--dtype", "uint32", "--allow", "zero-tail")
    assert (allowed["failed_check"], allowed["dropped"]) == (None, {"zero-tail": 3000})


def test_skew_judges_what_the_profile_counted(tmp_path: Path) -> None:
    np.concatenate([np.arange(1, 3001), np.zeros(3000)]).astype("<u4").tofile(tmp_path / "a.bin")
    options = ("--corpus", tmp_path / "a.bin", "--dtype", "uint32", "--shards", 2, "--tokens-per-rank", 500)
    assert "--allow zero-tail" in _invoke("skew", *options).stderr
    assert _json("skew", *options, "--allow", "zero-tail")["steps"] == 3
