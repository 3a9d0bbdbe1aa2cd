"""llm.c shards: the magic tells the type, and the size must be the header's."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError, SkewtoolError

LLAMA3 = {"magic": 20240801, "version": 7, "dtype": "<u4"}


def test_16_bit_shard(tmp_path: Path, write_llmc: Callable[..., Path], ids_of: Callable[..., list[int]]) -> None:
    corpus = open_corpus(write_llmc(tmp_path / "fineweb_train_000001.bin", [50256, 464, 0]))
    assert ids_of(corpus) == [50256, 464, 0]  # and not the 512 halves of the header
    assert (corpus.format, str(corpus.dtype), corpus.num_tokens) == ("llmc", "uint16", 3)


def test_32_bit_shard(tmp_path: Path, write_llmc: Callable[..., Path], ids_of: Callable[..., list[int]]) -> None:
    corpus = open_corpus(write_llmc(tmp_path / "a.bin", [128000, 791], **LLAMA3))
    assert (ids_of(corpus), str(corpus.dtype)) == ([128000, 791], "uint32")


def test_evaluation_files_are_no_corpora(tmp_path: Path, write_llmc: Callable[..., Path]) -> None:
    path = write_llmc(tmp_path / "hellaswag_val.bin", [65535, 1, 2], magic=20240522)
    for format in (None, "raw", "llmc"):
        with pytest.raises(CorpusError, match="evaluation"):
            open_corpus(path, dtype="uint16", format=format)


def test_header_without_tokens(tmp_path: Path, write_llmc: Callable[..., Path]) -> None:
    path = write_llmc(tmp_path / "a.bin", [])
    assert path.stat().st_size == 1024
    with pytest.raises(CorpusError, match="no tokens"):
        open_corpus(path)


@pytest.mark.parametrize("num_bytes", [4, 11, 512, 1023])
def test_cut_header(num_bytes: int, tmp_path: Path, write_llmc: Callable[..., Path]) -> None:
    path = write_llmc(tmp_path / "a.bin", [1, 2])
    path.write_bytes(path.read_bytes()[:num_bytes])
    with pytest.raises(CorpusError, match="cut off"):
        open_corpus(path)


@pytest.mark.parametrize("num_tokens", [0, 2, 4, -3, 2**31 - 1])
def test_count_that_is_not_the_size(num_tokens: int, tmp_path: Path, write_llmc: Callable[..., Path]) -> None:
    with pytest.raises(CorpusError, match=f"promises {num_tokens} uint16 tokens"):
        open_corpus(write_llmc(tmp_path / "a.bin", [1, 2, 3], num_tokens=num_tokens))


def test_version_must_go_with_the_magic(tmp_path: Path, write_llmc: Callable[..., Path]) -> None:
    with pytest.raises(CorpusError, match="version 7; magic 20240520 goes with version 1"):
        open_corpus(write_llmc(tmp_path / "a.bin", [1], version=7))


def test_dtype_that_contradicts_the_magic(tmp_path: Path, write_llmc: Callable[..., Path]) -> None:
    path = write_llmc(tmp_path / "a.bin", [1, 2])
    with pytest.raises(CorpusError, match=r"holds uint16 by its llm\.c magic, but --dtype says uint32"):
        open_corpus(path, dtype="uint32")
    assert open_corpus(path, dtype="uint16").num_tokens == 2


def test_header_is_never_read_as_ids(tmp_path: Path, write_llmc: Callable[..., Path]) -> None:
    with pytest.raises(CorpusError, match="begins like llmc"):
        open_corpus(write_llmc(tmp_path / "a.bin", [1, 2]), format="raw", dtype="uint16")


def test_32_bit_ids_under_the_16_bit_magic_are_suspected(tmp_path: Path, write_llmc: Callable[..., Path]) -> None:
    halves = [62464, 1, 791, 0, 13180, 0, 62465, 1]
    assert any("uint32" in note for note in open_corpus(write_llmc(tmp_path / "a.bin", halves)).notes)


@given(place=st.integers(0, 15) | st.integers(0, 1023), flip=st.integers(1, 255), kind=st.sampled_from([{}, LLAMA3]))
def test_a_flipped_header_byte_is_an_error_or_harmless(
    place: int, flip: int, kind: dict[str, object], new_dir: Callable[[], Path],
    write_llmc: Callable[..., Path], ids_of: Callable[..., list[int]],
) -> None:  # fmt: skip
    path = write_llmc(new_dir() / "a.bin", [5, 70, 900], **kind)
    content = bytearray(path.read_bytes())
    content[place] ^= flip
    path.write_bytes(content)
    try:
        corpus = open_corpus(path)
    except SkewtoolError:
        return
    assert ids_of(corpus) == [5, 70, 900]


@given(num_bytes=st.integers(0, 1029))
def test_a_truncated_shard_is_an_error(num_bytes: int, new_dir: Callable[[], Path], write_llmc: Callable[..., Path]) -> None:
    path = write_llmc(new_dir() / "a.bin", [5, 70, 900])
    path.write_bytes(path.read_bytes()[:num_bytes])
    with pytest.raises(SkewtoolError):
        open_corpus(path)
