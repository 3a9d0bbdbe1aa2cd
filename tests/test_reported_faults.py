"""Faults that people met in other tools, from files to printed lines: corrupt or odd corpora, and sizes of vocabularies."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from skewtool import Profile, ShardMap
from skewtool.cli import main


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def _error(*arguments: object) -> str:
    """The one line of a refused command."""
    result = _run(*arguments)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1), result.output
    return result.stderr


@pytest.fixture
def tokenizer(tmp_path: Path) -> Callable[[int, int], Path]:
    """tokenizer(base, added): a tokenizer.json of `base` words, and added tokens after them."""

    def write(base: int, added: int = 0) -> Path:
        flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        content = {
            "version": "1.0",
            "added_tokens": [{"id": base + i, "content": f"<{i}>", "special": True, **flags} for i in range(added)],
            "pre_tokenizer": {"type": "WhitespaceSplit"},
            "model": {"type": "WordLevel", "vocab": {f"w{i}": i for i in range(base)}, "unk_token": "w0"},
        }
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        return tmp_path / "tokenizer.json"

    return write


def test_ids_wrapped_to_16_bits(tmp_path: Path, tokenizer: Callable[..., Path]) -> None:
    """1.1: nothing in the file shows it, but the tokenizer does."""
    np.array([5, 65535, 65536, 119546, 151643]).astype(np.uint16).tofile(tmp_path / "tok.bin")
    corpus = (tmp_path / "tok.bin", "--dtype", "uint16", "-o", tmp_path / "p")
    error = _error("profile", *corpus, "--tokenizer", tokenizer(119_547))
    assert "at most 65535, but the vocabulary has 119547 ids: 54011 of them (45%) can never appear" in error
    assert _run("profile", *corpus, "--tokenizer", tokenizer(119_547), "--allow", "narrow-dtype").exit_code == 0
    assert any("cannot contain ids >= 65536" in note for note in Profile.load(tmp_path / "p").notes)
    assert _run("profile", *corpus, "--vocab-size", 65_536).exit_code == 0
    assert _run("profile", *corpus, "--vocab-size", 65_537).exit_code == 1


def test_a_declared_type_that_is_not_the_stored_one(tmp_path: Path) -> None:
    """1.3: A shows in the size, B in the ids, C in every second id."""
    corpus, out = tmp_path / "a.bin", tmp_path / "p"
    np.array([5, 7, 9, 11, 13], "<u2").tofile(corpus)
    assert "10 bytes, no multiple of the 4 bytes of uint32: 2 trailing bytes" in _error(
        "profile", corpus, "--dtype", "uint32", "-o", out
    )
    np.array([5, 7, 9, 11], "<u2").tofile(corpus)
    error = _error("profile", corpus, "--dtype", "uint32", "--vocab-size", 128_256, "-o", out)
    assert "up to 720905" in error
    assert "look like uint16" in error
    np.array([128000, 791, 13180, 128001], "<u4").tofile(corpus)
    assert "is it uint32?" in _run("profile", corpus, "--dtype", "uint16", "-o", out).stderr
    assert "can never appear" in _error("profile", corpus, "--dtype", "uint16", "--vocab-size", 128_256, "-o", out)
    corpus.write_bytes(bytes(7))
    assert "1 trailing bytes at offset 6" in _error("profile", corpus, "--dtype", "uint16", "-o", out)
    assert not out.with_name("m").exists()


def _llmc(num_bytes: int) -> bytes:
    return np.array([20240520, 1, 0], "<i4").tobytes().ljust(num_bytes, b"\0")


def _no_rows(path: Path) -> None:
    pq.write_table(pa.table({"input_ids": pa.array([], pa.list_(pa.int32()))}), path)


def _no_ids(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.empty(0, np.uint16))


@pytest.mark.parametrize("write", [
    lambda path: path.write_bytes(b""), lambda path: path.write_bytes(_llmc(1024)),
    lambda path: path.write_bytes(_llmc(512)), _no_rows, _no_ids, lambda path: path.write_bytes(b"\n\n"),
])  # fmt: skip
def test_files_without_tokens(write: Callable[[Path], object], tmp_path: Path) -> None:
    """1.5: one error, and nothing is written."""
    write(tmp_path / "corpus")
    error = _error("profile", tmp_path / "corpus", "--dtype", "uint16", "-o", tmp_path / "p")
    assert "tokens" in error or "cut off" in error or "is text" in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus"]


def test_a_directory_with_good_and_empty_shards(tmp_path: Path) -> None:
    """1.5: the rest is counted, the empty ones are listed, and no JSON holds NaN."""
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "b.bin").write_bytes(b"")
    (tmp_path / "c" / "a.bin").write_bytes(_llmc(1024)[:8] + np.array([3], "<i4").tobytes() + bytes(1012) + b"\1\0\2\0\1\0")
    (tmp_path / "c" / "c.bin").write_bytes(_llmc(1024))
    result = _run("profile", tmp_path / "c", "-o", tmp_path / "p", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert (found["num_tokens"], [file["name"] for file in found["files"]]) == (3, ["a.bin"])
    assert {note for note in found["notes"] if "empty" in note} == {
        "empty file, nothing counted: b.bin", "empty file, nothing counted: c.bin",
    }  # fmt: skip
    assert "NaN" not in result.stdout


@pytest.mark.parametrize("array", [np.zeros((2, 3)), np.asfortranarray(np.ones((2, 3))), np.array([{"a": 1}], object)])
def test_arrays_of_anything_but_integers(array: Any, tmp_path: Path) -> None:
    """1.7: floats and objects, whatever they are called."""
    np.save(tmp_path / "a.npy", array)
    assert "must be integers" in _error("profile", tmp_path / "a.npy", "-o", tmp_path / "p")


def test_raw_ids_called_npy_and_the_reverse(tmp_path: Path) -> None:
    """1.7: content decides, and a header is never counted."""
    np.array([1, 2, 3, 4], "<u2").tofile(tmp_path / "a.npy")
    assert "--dtype" in _error("profile", tmp_path / "a.npy", "-o", tmp_path / "p")
    assert "no NumPy header" in _run("profile", tmp_path / "a.npy", "--dtype", "uint16", "-o", tmp_path / "p").stderr
    np.save(tmp_path / "b.npy", np.array([1, 2, 3, 4], np.uint16))
    options = ("--format", "raw", "--dtype", "uint16")
    assert "begins like npy" in _error("profile", tmp_path / "b.npy", *options, "-o", tmp_path / "p")


def test_parquet_files_of_unlike_types(tmp_path: Path) -> None:
    """1.9: p1 to p4 and p6 are one corpus; nulls are told; p7 must be asked for; p8 is refused."""
    kinds = {
        "p1": ([[1, 2], [3]], pa.list_(pa.int32())), "p2": ([[4], None, []], pa.large_list(pa.int64())),
        "p3": ([[5, 6]], pa.list_(pa.uint16())), "p4": ([[1, 2, 3, 4]], pa.list_(pa.int64(), 4)), "p6": ([7, 8], pa.int64()),
    }  # fmt: skip
    (tmp_path / "c").mkdir()
    for name, (rows, kind) in kinds.items():
        pq.write_table(pa.table({"input_ids": pa.array(rows, kind)}), tmp_path / "c" / f"{name}.parquet")
    result = _run("profile", tmp_path / "c", "--vocab-size", 9, "-o", tmp_path / "p")
    assert result.exit_code == 0, result.output
    assert "p2.parquet: 1 rows are null" in result.stderr
    assert Profile.load(tmp_path / "p").counts.tolist() == [0, 2, 2, 2, 2, 1, 1, 1, 1]
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"input_ids": pa.array([[5, None, 6]], pa.list_(pa.int64()))}), path)
    assert "first -1 at token 1" in _error("profile", path, "--vocab-size", 9, "-o", tmp_path / "p")
    pq.write_table(pa.table({"input_ids": pa.array([[[1], [2]]], pa.list_(pa.list_(pa.int32())))}), path)
    assert "--allow nested-lists" in _error("profile", path, "-o", tmp_path / "p")
    assert _run("profile", path, "--allow", "nested-lists", "-o", tmp_path / "p").exit_code == 0
    pq.write_table(pa.table({"input_ids": pa.array([["a"]], pa.list_(pa.string()))}), path)
    error = _error("profile", path, "-o", tmp_path / "p")
    assert "x.parquet: column 'input_ids' is of type list<" in error
    assert "string" in error


def test_three_sizes_of_one_vocabulary(tmp_path: Path, tokenizer: Callable[..., Path]) -> None:
    """2.1: the tokenizer's own, with added tokens, and the model's rows; all rows are placed, unseen ones evenly."""
    np.save(tmp_path / "a.npy", np.arange(146).repeat(3))
    options = ("--tokenizer", tokenizer(143, 3), "--vocab-size", 160)
    result = _run("profile", tmp_path / "a.npy", *options, "-o", tmp_path / "p")
    assert "143 tokens of the model, 146 with added ones (ids below 146), 160 rows of the table" in result.stdout
    found = json.loads(_run("inspect", tmp_path / "a.npy", *options, "--json").stdout)
    assert found["vocabulary"] == {"tokenizer": 143, "with_added": 146, "tokenizer_ids": 146, "rows": 160}
    assert found["first_ids"]["num_outside"] == 0
    assert _run("partition", tmp_path / "p", "--shards", 8, "--load", "raw", "-o", tmp_path / "m").exit_code == 0
    made = ShardMap.load(tmp_path / "m")
    assert (made.vocab_size, made.real_vocab, made.home_rows.tolist()) == (160, 146, [20] * 8)
    assert sorted(np.bincount(made.shard_of[146:], minlength=8).tolist()) == [1, 1, 2, 2, 2, 2, 2, 2]
    assert "--vocab-size 145 is below the 146 ids" in _error(
        "profile", tmp_path / "a.npy", "--tokenizer", tokenizer(143, 3), "--vocab-size", 145, "-o", tmp_path / "p"
    )


@pytest.mark.parametrize(("rows", "shards", "pad_to", "per_shard"), [
    (10, 4, 1, [3, 3, 2, 2]), (129_280, 24, 1, None), (3, 8, 1, [1, 1, 1, 0, 0, 0, 0, 0]), (1, 1, 1, [1]),
])  # fmt: skip
def test_tables_that_shards_do_not_divide(
    rows: int, shards: int, pad_to: int, per_shard: list[int] | None, tmp_path: Path
) -> None:
    """2.3: sizes differ by at most one row, the same in the map and in what is printed."""
    np.save(tmp_path / "a.npy", np.array([0, 0, rows - 1]))
    assert _run("profile", tmp_path / "a.npy", "--vocab-size", rows, "-o", tmp_path / "p").exit_code == 0
    options = ("--shards", shards, "--load", "raw", "--pad-to", pad_to)
    found = json.loads(_run("partition", tmp_path / "p", *options, "-o", tmp_path / "m", "--json").stdout)
    made = ShardMap.load(tmp_path / "m")
    sizes = sorted(made.home_rows.tolist(), reverse=True)
    assert (sum(sizes), found["rows_per_shard"]) == (rows, [sizes[-1], sizes[0]])
    assert sizes[0] - sizes[-1] <= 1
    assert per_shard is None or sizes == per_shard
    if rows == 129_280:
        verified = json.loads(_run("verify", tmp_path / "m", "--json").stdout)
        assert (made.home_slots, verified["padding_slots"]) == (5387, 24 * 5387 - 129_280)
