"""Header-less ids: the type must be said, and a wrong one must show."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int32", "int64", ">u2", ">i4"])
def test_ids_come_back_in_native_order(
    dtype: str, tmp_path: Path, write_raw: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    corpus = open_corpus(write_raw(tmp_path / "train.bin", [0, 3, 200, 1], dtype), dtype=dtype)
    assert ids_of(corpus) == [0, 3, 200, 1]
    assert (corpus.format, corpus.num_tokens, corpus.num_documents) == ("raw", 4, None)


def test_without_dtype_is_an_error_with_the_evidence(tmp_path: Path, write_raw: Callable[..., Path]) -> None:
    path = write_raw(tmp_path / "train.bin", [0, 50256, 7, 9, 1])
    with pytest.raises(CorpusError, match=r"--dtype .*uint16: 5 ids, the first up to 50256; not uint32: 10 bytes"):
        open_corpus(path)


def test_evidence_names_the_halves_of_wider_ids(tmp_path: Path, write_raw: Callable[..., Path]) -> None:
    path = write_raw(tmp_path / "train.bin", [128000, 791, 13180, 128001], "uint32")
    with pytest.raises(CorpusError, match="every second one below 4, so rather 32-bit"):
        open_corpus(path)


@pytest.mark.parametrize(("num_bytes", "dtype", "trailing"), [(10, "uint32", 2), (7, "uint16", 1), (12, "uint64", 4)])
def test_trailing_bytes_are_named_never_dropped(num_bytes: int, dtype: str, trailing: int, tmp_path: Path) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(bytes(range(num_bytes)))
    with pytest.raises(CorpusError, match=rf"{num_bytes} bytes.*{trailing} trailing bytes at offset"):
        open_corpus(path, dtype=dtype)


def test_32_bit_ids_read_as_16_bit_are_suspected(tmp_path: Path, write_raw: Callable[..., Path]) -> None:
    path = write_raw(tmp_path / "train.bin", [128000, 791, 13180, 128001], "uint32")
    assert any("is it uint32?" in note for note in open_corpus(path, dtype="uint16").notes)
    assert open_corpus(path, dtype="uint32").notes == ()


@pytest.mark.parametrize("ids", [[0] * 64, [7, 9] * 20, [1, 2, 3, 0] * 8])
def test_ordinary_16_bit_ids_are_not_suspected(ids: list[int], tmp_path: Path, write_raw: Callable[..., Path]) -> None:
    assert open_corpus(write_raw(tmp_path / "train.bin", ids), dtype="uint16").notes == ()


def test_raw_ids_called_npy_are_read_with_a_dtype_and_a_note(
    tmp_path: Path, write_raw: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    path = write_raw(tmp_path / "part-0-00000.npy", [1, 2, 3, 4])
    with pytest.raises(CorpusError, match="--dtype"):
        open_corpus(path)
    corpus = open_corpus(path, dtype="uint16")
    assert ids_of(corpus) == [1, 2, 3, 4]
    assert any("no NumPy header" in note for note in corpus.notes)


@pytest.mark.parametrize("dtype", ["float16", "float64", "bool", "S2", "uint16,uint16"])
def test_ids_must_be_integers(dtype: str, tmp_path: Path, write_raw: Callable[..., Path]) -> None:
    with pytest.raises(CorpusError, match="integer"):
        open_corpus(write_raw(tmp_path / "train.bin", [1, 2, 3, 4]), dtype=dtype)


@given(ids=st.lists(st.integers(0, 255), min_size=1), block_tokens=st.integers(1, 9), data=st.data())
def test_any_stretch_reads_as_a_slice(
    ids: list[int], block_tokens: int, data: st.DataObject, new_dir: Callable[[], Path],
    write_raw: Callable[..., Path], ids_of: Callable[..., list[int]],
) -> None:  # fmt: skip
    corpus = open_corpus(write_raw(new_dir() / "train.bin", ids), dtype="uint16")
    start = data.draw(st.integers(0, len(ids)))
    stop = data.draw(st.integers(start, len(ids)))
    blocks = corpus.sources[0].blocks(start, stop, block_tokens)
    assert [int(token) for block in blocks for token in block] == ids[start:stop]
    assert ids_of(corpus, block_tokens) == ids


def test_progress_adds_up_to_the_bytes_of_the_file(tmp_path: Path, write_raw: Callable[..., Path]) -> None:
    corpus = open_corpus(write_raw(tmp_path / "train.bin", range(100), "uint32"), dtype="uint32")
    told: list[int] = []
    assert len(list(corpus.sources[0].blocks(block_tokens=7, progress=told.append))) == len(told) == 15
    assert sum(told) == corpus.num_bytes == 400


def test_a_file_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path, write_raw: Callable[..., Path]) -> None:
    path = write_raw(tmp_path / "train.bin", range(100))
    blocks = open_corpus(path, dtype="uint16").sources[0].blocks(block_tokens=10)
    assert next(blocks).size == 10
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(CorpusError, match="became shorter"):
        list(blocks)


@given(
    files=st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=30), min_size=1, max_size=3),
    cut=st.floats(0.05, 0.95),
)
def test_two_parts_hold_every_token_once(
    files: list[list[int]], cut: float, new_dir: Callable[[], Path], write_raw: Callable[..., Path],
    ids_of: Callable[..., list[int]],
) -> None:  # fmt: skip
    folder = new_dir()
    for number, ids in enumerate(files):
        write_raw(folder / f"{number}.bin", ids)
    corpus = open_corpus(folder, dtype="uint16")
    first = round(cut * sum(map(len, files)))
    whole = [token for ids in files for token in ids]
    if 0 < first < len(whole):
        assert ids_of(corpus.part(0, cut)) == whole[:first]
        assert ids_of(corpus.part(cut, 1)) == whole[first:]


@pytest.mark.parametrize(("start", "stop"), [(0.5, 0.5), (0.8, 0.2), (-0.1, 1), (0, 1.5), (0.01, 0.02)])
def test_a_part_must_be_in_order_and_not_empty(
    start: float, stop: float, tmp_path: Path, write_raw: Callable[..., Path]
) -> None:
    with pytest.raises(CorpusError):
        open_corpus(write_raw(tmp_path / "a.bin", [1, 2, 3]), dtype="uint16").part(start, stop)
