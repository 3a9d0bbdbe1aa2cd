"""Megatron pairs: lengths and type decide, everything else is checked or noted."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError, SkewtoolError

SEQUENCES = [[5, 6], [], [7, 8, 9]]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "uint16"])
def test_every_integer_type(
    dtype: str, tmp_path: Path, write_megatron: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    corpus = open_corpus(write_megatron(tmp_path / "a_text_document", SEQUENCES, dtype))
    assert ids_of(corpus) == [5, 6, 7, 8, 9]
    assert (corpus.format, str(corpus.dtype), corpus.num_documents, corpus.notes) == ("megatron", dtype, 3, ())


def test_index_data_prefix_and_directory_name_the_same_corpus(tmp_path: Path, write_megatron: Callable[..., Path]) -> None:
    index = write_megatron(tmp_path / "my.corpus_text_document", SEQUENCES)
    corpora = [open_corpus(path) for path in (index, index.with_suffix(".bin"), index.with_suffix(""), tmp_path)]
    assert {corpus.sources for corpus in corpora} == {corpora[0].sources}
    assert corpora[0].sources[0].name == "my.corpus_text_document.bin"


def test_documents_of_several_sequences(tmp_path: Path, write_megatron: Callable[..., Path]) -> None:
    corpus = open_corpus(write_megatron(tmp_path / "a", SEQUENCES, documents=[0, 2, 3]))
    assert (corpus.num_documents, corpus.num_tokens) == (2, 5)


@pytest.mark.parametrize("documents", [[0], [], [0, 2], [1, 3]])
def test_documents_that_do_not_cover_the_sequences(
    documents: list[int], tmp_path: Path, write_megatron: Callable[..., Path]
) -> None:
    corpus = open_corpus(write_megatron(tmp_path / "a", SEQUENCES, documents=documents))
    assert (corpus.num_documents, corpus.num_tokens) == (3, 5)
    assert any("document index does not cover" in note for note in corpus.notes)


def test_overflowed_offsets_are_noted_and_not_used(
    tmp_path: Path, write_megatron: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    corpus = open_corpus(write_megatron(tmp_path / "a", SEQUENCES, offsets=[0, 4, -(2**31)]))
    assert ids_of(corpus) == [5, 6, 7, 8, 9]
    assert any("offsets disagree" in note for note in corpus.notes)


def test_multimodal_pairs_are_refused(tmp_path: Path, write_megatron: Callable[..., Path]) -> None:
    with pytest.raises(CorpusError, match=r"multimodal: 0 of its 5 ids are the bytes of 1 images.*--allow images"):
        open_corpus(write_megatron(tmp_path / "a", SEQUENCES, "int32", modes=b"\0\1\0"))


@pytest.mark.parametrize("block_tokens", [1, 2, 100])
def test_the_text_of_multimodal_pairs_is_read_when_allowed(
    block_tokens: int, tmp_path: Path, write_megatron: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    sequences = [[5, 6], [-(2**31), 2**31 - 1, 9], [], [7], [1], [8, 3]]
    path = write_megatron(tmp_path / "a", sequences, "int32", modes=b"\0\1\0\0\1\0")
    corpus = open_corpus(path, allow=["images"])
    assert (ids_of(corpus, block_tokens), corpus.dropped) == ([5, 6, 7, 8, 3], {"images": 4})
    assert any("4 ids of images were left out" in note for note in corpus.notes)
    for start in range(5):
        for stop in range(start, 6):
            blocks = corpus.sources[0].blocks(start, stop, block_tokens)
            assert [int(token) for block in blocks for token in block] == [5, 6, 7, 8, 3][start:stop]


@pytest.mark.parametrize("code", [0, 6, 7, 9, 255])
def test_types_that_are_no_token_ids(code: int, tmp_path: Path, write_megatron: Callable[..., Path]) -> None:
    with pytest.raises(CorpusError, match=f"type code {code}"):
        open_corpus(write_megatron(tmp_path / "a", SEQUENCES, code=code))


def test_missing_data_file(tmp_path: Path, write_megatron: Callable[..., Path]) -> None:
    index = write_megatron(tmp_path / "a", SEQUENCES)
    index.with_suffix(".bin").unlink()
    with pytest.raises(CorpusError, match="is not there"):
        open_corpus(index)


@pytest.mark.parametrize("num_bytes", [0, 9, 11, 20])
def test_data_of_another_length(num_bytes: int, tmp_path: Path, write_megatron: Callable[..., Path]) -> None:
    index = write_megatron(tmp_path / "a", SEQUENCES, data=b"\1" * num_bytes)
    with pytest.raises(CorpusError, match=f"has {num_bytes} bytes, but a.idx promises 5 uint16 tokens"):
        open_corpus(index)


@pytest.mark.parametrize("sequences", [[], [[]], [[], []]])
def test_pair_without_tokens(sequences: list[list[int]], tmp_path: Path, write_megatron: Callable[..., Path]) -> None:
    index = write_megatron(tmp_path / "a", sequences)
    for path in (index, index.with_suffix(".bin"), tmp_path):
        with pytest.raises(CorpusError, match="no tokens"):
            open_corpus(path)


def test_dtype_that_contradicts_the_index(tmp_path: Path, write_megatron: Callable[..., Path]) -> None:
    with pytest.raises(CorpusError, match="holds uint16 by its Megatron index, but --dtype says int32"):
        open_corpus(write_megatron(tmp_path / "a", SEQUENCES), dtype="int32")


def test_data_that_looks_like_another_format_is_known_by_its_index(
    tmp_path: Path, write_megatron: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    letters = list(b"byte-level ids of plain text")
    index = write_megatron(tmp_path / "a", [letters], "uint8")
    assert ids_of(open_corpus(index.with_suffix(".bin"))) == letters


def test_data_of_a_pair_is_not_read_raw(tmp_path: Path, write_megatron: Callable[..., Path]) -> None:
    index = write_megatron(tmp_path / "a", SEQUENCES)
    with pytest.raises(CorpusError, match="megatron"):
        open_corpus(index, format="raw", dtype="uint16")


def test_an_index_named_bin_is_an_error(tmp_path: Path, write_megatron: Callable[..., Path]) -> None:
    write_megatron(tmp_path / "a", SEQUENCES).rename(tmp_path / "b.bin")
    (tmp_path / "a.bin").unlink()
    for path in (tmp_path / "b.bin", tmp_path):
        with pytest.raises(CorpusError):
            open_corpus(path)


def _reads_right_or_error(content: bytes, index: Path, ids_of: Callable[..., list[int]]) -> None:
    index.write_bytes(content)
    for path in (index, index.with_suffix(".bin")):
        try:
            corpus = open_corpus(path)
        except SkewtoolError:
            continue
        assert corpus.num_tokens == 5
        assert ids_of(corpus) == [5, 6, 7, 8, 9]


@settings(max_examples=200)
@given(place=st.integers(0, 101), flip=st.integers(1, 255))
def test_a_flipped_index_byte_is_an_error_or_harmless(
    place: int, flip: int, new_dir: Callable[[], Path], write_megatron: Callable[..., Path],
    ids_of: Callable[..., list[int]],
) -> None:  # fmt: skip
    index = write_megatron(new_dir() / "a", SEQUENCES)
    content = bytearray(index.read_bytes())
    assert len(content) == 34 + 12 * 3 + 8 * 4
    content[place] ^= flip
    _reads_right_or_error(bytes(content), index, ids_of)


@given(num_bytes=st.integers(0, 101))
def test_a_truncated_index_is_an_error(
    num_bytes: int, new_dir: Callable[[], Path], write_megatron: Callable[..., Path]
) -> None:
    index = write_megatron(new_dir() / "a", SEQUENCES)
    index.write_bytes(index.read_bytes()[:num_bytes])
    for path in (index, index.with_suffix(".bin")):
        with pytest.raises(SkewtoolError):
            open_corpus(path)


@given(sequences=st.lists(st.lists(st.integers(0, 255), max_size=6), min_size=1, max_size=6).filter(any))
def test_any_sequences_are_read_in_order(
    sequences: list[list[int]], new_dir: Callable[[], Path], write_megatron: Callable[..., Path],
    ids_of: Callable[..., list[int]],
) -> None:  # fmt: skip
    index = write_megatron(new_dir() / "a", sequences, "int32")
    assert ids_of(open_corpus(index)) == [token for sequence in sequences for token in sequence]
