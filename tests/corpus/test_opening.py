"""`open_corpus`: files, directories and lists of them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from skewtool.corpus import Corpus, open_corpus
from skewtool.errors import CorpusError


def names(corpus: Corpus) -> list[str]:
    return [source.name for source in corpus.sources]


@pytest.mark.parametrize("format", [None, "raw", "npy", "megatron", "llmc", "text", "jsonl"])
@pytest.mark.parametrize("name", ["a.bin", "a.npy", "a.jsonl", "a.txt"])
def test_a_file_of_zero_bytes_is_an_error(format: str | None, name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    with pytest.raises(CorpusError, match="is empty: it has 0 bytes"):
        open_corpus(tmp_path / name, format=format, dtype="uint16")


def test_empty_files_of_a_directory_are_listed(
    tmp_path: Path, write_raw: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    write_raw(tmp_path / "good.bin", [1, 2, 3])
    (tmp_path / "empty.bin").touch()
    corpus = open_corpus(tmp_path, dtype="uint16")
    assert (names(corpus), corpus.empty_files, ids_of(corpus)) == (["good.bin"], ("empty.bin",), [1, 2, 3])
    assert any("empty.bin" in note for note in corpus.notes)


def test_shards_without_tokens_count_as_empty(tmp_path: Path, write_llmc: Callable[..., Path]) -> None:
    write_llmc(tmp_path / "train_000001.bin", [7, 8])
    write_llmc(tmp_path / "train_000002.bin", [])
    corpus = open_corpus(tmp_path)
    assert (names(corpus), corpus.empty_files) == (["train_000001.bin"], ("train_000002.bin",))


@pytest.mark.parametrize("files", [[], ["a.bin"], ["a.bin", "b.bin"]])
def test_a_directory_without_tokens_is_an_error(files: list[str], tmp_path: Path) -> None:
    for name in files:
        (tmp_path / name).touch()
    with pytest.raises(CorpusError):
        open_corpus(tmp_path, dtype="uint16")


def test_only_empty_shards_are_an_error(tmp_path: Path, write_llmc: Callable[..., Path]) -> None:
    write_llmc(tmp_path / "train_000001.bin", [])
    with pytest.raises(CorpusError, match="no tokens"):
        open_corpus(tmp_path)


def test_files_are_found_below_in_order_of_names(
    tmp_path: Path, write_raw: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    for token, name in enumerate(["b/c.bin", "a.bin", "b/a/z.bin"]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write_raw(tmp_path / name, [token])
    corpus = open_corpus(tmp_path, dtype="uint16")
    assert names(corpus) == ["a.bin", "b/a/z.bin", "b/c.bin"]
    assert ids_of(corpus) == [1, 2, 0]


def test_other_files_are_ignored_and_noted(tmp_path: Path, write_llmc: Callable[..., Path]) -> None:
    write_llmc(tmp_path / "train.bin", [7, 8])
    (tmp_path / "README.md").write_text("about")
    (tmp_path / "meta.pkl").write_bytes(b"\x80\x04\x95" + (9).to_bytes(8, "little") + b"\x8c")
    (tmp_path / ".hidden").write_bytes(b"\0\1")
    corpus = open_corpus(tmp_path)
    assert (names(corpus), corpus.ignored_files) == (["train.bin"], ("README.md", "meta.pkl"))
    assert any("not read as tokens (2 files)" in note for note in corpus.notes)


def test_mixed_formats_need_a_choice(
    tmp_path: Path, write_llmc: Callable[..., Path], write_megatron: Callable[..., Path]
) -> None:
    write_llmc(tmp_path / "a.bin", [1])
    write_megatron(tmp_path / "b", [[2, 3]])
    np.save(tmp_path / "c.npy", np.array([4, 5, 6], np.uint16))
    with pytest.raises(CorpusError, match=r"1 llmc, 1 megatron, 1 npy.*--format"):
        open_corpus(tmp_path)
    for format, num_tokens in (("llmc", 1), ("megatron", 2), ("npy", 3)):
        assert open_corpus(tmp_path, format=format).num_tokens == num_tokens


def test_a_format_that_is_not_there(tmp_path: Path, write_llmc: Callable[..., Path]) -> None:
    write_llmc(tmp_path / "a.bin", [1])
    with pytest.raises(CorpusError, match="holds no npy file; found 1 llmc"):
        open_corpus(tmp_path, format="npy")


def test_a_directory_of_text_needs_a_tokenizer(tmp_path: Path, make_tokenizer: Callable[..., Path]) -> None:
    tokenizer = make_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("the cat")
    with pytest.raises(CorpusError, match="found 1 text"):
        open_corpus(tmp_path / "text")
    assert open_corpus(tmp_path / "text", tokenizer=tokenizer).format == "text"


def test_raw_shards_of_a_directory_need_a_dtype(tmp_path: Path, write_raw: Callable[..., Path]) -> None:
    write_raw(tmp_path / "a.bin", [1, 2])
    with pytest.raises(CorpusError, match="--dtype"):
        open_corpus(tmp_path)
    assert open_corpus(tmp_path, dtype="uint16", format="raw").num_tokens == 2


def test_several_paths_are_one_corpus_in_any_order(
    tmp_path: Path, write_raw: Callable[..., Path], write_llmc: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    raw, shard = write_raw(tmp_path / "b.bin", [1]), write_llmc(tmp_path / "a.bin", [2, 3])
    orders: list[list[Path | str]] = [[raw, shard], [shard, raw], [str(raw), shard]]
    for paths in orders:
        corpus = open_corpus(paths, dtype="uint16")
        assert (ids_of(corpus), corpus.format) == ([2, 3, 1], "llmc+raw")


def test_missing_path_names_it(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"no file or directory .*nowhere"):
        open_corpus(tmp_path / "nowhere")


def test_no_path_at_all() -> None:
    with pytest.raises(CorpusError, match="no corpus"):
        open_corpus([])


@pytest.mark.parametrize("dtype", ["garbage", "u3", "", "(", ",", "uint16 "])
def test_a_dtype_that_is_none(dtype: str, tmp_path: Path, write_raw: Callable[..., Path]) -> None:
    with pytest.raises(CorpusError, match="--dtype"):
        open_corpus(write_raw(tmp_path / "a.bin", [1, 2]), dtype=dtype)


def test_unknown_format(tmp_path: Path, write_raw: Callable[..., Path]) -> None:
    with pytest.raises(CorpusError, match="unknown format 'orc'; known are megatron"):
        open_corpus(write_raw(tmp_path / "a.bin", [1]), format="orc")


def test_dtype_of_a_corpus_is_what_all_its_sources_share(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1], np.uint16))
    assert open_corpus(tmp_path).dtype == np.uint16
    np.save(tmp_path / "b.npy", np.array([1], np.int32))
    assert open_corpus(tmp_path).dtype is None
