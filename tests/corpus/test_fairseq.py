"""fairseq's indexes: which of the layouts with the same magic, ids stored plus one, and what contradicts itself."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError
from skewtool.profiling import profile

DOCUMENTS = [[5, 6], [], [70_000]]


@pytest.mark.parametrize("layout", ["fairseq", "fairseq cached", "neox cached"])
def test_index_data_and_directory_name_the_same_corpus(
    layout: str, tmp_path: Path, write_as: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    index = write_as(layout, tmp_path, DOCUMENTS)
    for path in (index, index.with_suffix(".bin"), tmp_path, tmp_path / "train"):
        corpus = open_corpus(path)
        assert (corpus.format, corpus.num_documents, ids_of(corpus)) == ("fairseq", 3, [5, 6, 70_000])


def test_ids_of_the_legacy_index_lose_the_one_that_was_added(tmp_path: Path, write_as: Callable[..., Path]) -> None:
    index = write_as("fairseq cached", tmp_path, [[0, 6]])
    corpus = open_corpus(index)
    assert np.fromfile(index.with_suffix(".bin"), "<i4").tolist() == [1, 7]
    assert profile(corpus, vocab_size=10, windows=()).counts.tolist() == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0]
    assert any("stored plus one" in note for note in corpus.notes)


def test_a_stored_zero_of_the_legacy_index_is_a_bad_id(tmp_path: Path, write_as: Callable[..., Path]) -> None:
    index = write_as("fairseq cached", tmp_path, [[3, -1]])
    with pytest.raises(CorpusError, match="first -1 at token 1"):
        profile(open_corpus(index), vocab_size=10)


@pytest.mark.parametrize("layout", ["fairseq", "fairseq cached", "neox cached"])
@pytest.mark.parametrize(("place", "value", "match"), [(8, 2, "version"), (16, 7, "type code 7")])
def test_versions_and_types_that_are_not_known(
    layout: str, place: int, value: int, match: str, tmp_path: Path, write_as: Callable[..., Path]
) -> None:
    index = write_as(layout, tmp_path, DOCUMENTS)
    content = bytearray(index.read_bytes())
    content[place + (layout == "fairseq")] = value  # its magic is a byte longer
    index.write_bytes(bytes(content))
    with pytest.raises(CorpusError, match=match):
        open_corpus(index)


@pytest.mark.parametrize("layout", ["fairseq", "fairseq cached"])
def test_offsets_must_agree_with_lengths(layout: str, tmp_path: Path, write_as: Callable[..., Path]) -> None:
    index = write_as(layout, tmp_path, DOCUMENTS)
    index.write_bytes(index.read_bytes()[:-1] + b"\1")
    with pytest.raises(CorpusError, match="damaged"):
        open_corpus(index)


def test_data_of_another_length_and_what_can_be_read_of_it(
    tmp_path: Path, write_as: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    index = write_as("fairseq", tmp_path, DOCUMENTS)
    data = index.with_suffix(".bin")
    data.write_bytes(data.read_bytes()[:-3])
    with pytest.raises(CorpusError, match=r"has 9 bytes, but train.idx promises 3 uint32 tokens.*--allow size"):
        open_corpus(index)
    corpus = open_corpus(index, allow=["size"])
    assert (ids_of(corpus), corpus.dropped) == ([5, 6], {"size": 1})
    data.unlink()
    with pytest.raises(CorpusError, match="is not there"):
        open_corpus(index)


def test_huffman_codes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.idx").write_bytes(b"HUFFIDX\0\0" + struct.pack("<QQQ", 1, 4, 1))
    (tmp_path / "train.bin").write_bytes(b"\1\2\3\4")
    for path in (tmp_path, tmp_path / "train.idx", tmp_path / "train.bin"):
        with pytest.raises(CorpusError, match="Huffman"):
            open_corpus(path, dtype="uint16")
