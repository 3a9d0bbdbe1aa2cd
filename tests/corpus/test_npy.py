"""Real .npy files: the header is believed, checked against the size, and never unpickled."""

import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from skewtool.corpus import Corpus, open_corpus
from skewtool.errors import CorpusError, SkewtoolError

DTYPES = ["uint8", "uint16", "uint32", "uint64", "int16", "int32", "int64", ">u2", ">i8"]


@given(
    array=st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=1, max_dims=3, max_side=5), elements=st.integers(0, 99))
    ),
    order=st.sampled_from(["C", "F"]),
)
def test_any_shape_and_order_is_read_row_by_row(
    array: "np.ndarray[tuple[int, ...], np.dtype[np.int64]]", order: str, new_dir: Callable[[], Path],
    ids_of: Callable[..., list[int]],
) -> None:  # fmt: skip
    path = new_dir() / "a.npy"
    np.save(path, array if order == "C" else np.asfortranarray(array))
    corpus = open_corpus(path)
    assert ids_of(corpus) == array.reshape(-1).tolist()
    assert (corpus.format, corpus.num_tokens) == ("npy", array.size)


@pytest.mark.parametrize("order", ["C", "F"])
def test_blocks_are_no_larger_than_asked_for(order: str, tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    array = np.arange(15, dtype=np.uint16).reshape(3, 5)
    np.save(tmp_path / "a.npy", array if order == "C" else np.asfortranarray(array))
    assert ids_of(open_corpus(tmp_path / "a.npy"), block_tokens=2) == list(range(15))


@pytest.mark.parametrize("dtype", ["float64", "float16", "complex64", "bool", "U3", "S2", "datetime64[s]"])
def test_other_than_integers(dtype: str, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(4, dtype))
    with pytest.raises(CorpusError, match="must be integers"):
        open_corpus(tmp_path / "a.npy")


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str, ...]]:
            return (pytest.fail, ("unpickled",))

    np.save(tmp_path / "a.npy", np.array([Trap()], object), allow_pickle=True)
    with pytest.raises(CorpusError, match="must be integers"):
        open_corpus(tmp_path / "a.npy")


def test_structured_arrays_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(4, [("x", "u2")]))
    with pytest.raises(CorpusError, match="must be integers"):
        open_corpus(tmp_path / "a.npy")


@pytest.mark.parametrize("shape", [(0,), (0, 8), (8, 0)])
def test_no_elements(shape: tuple[int, ...], tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(shape, np.uint16, order="F"))
    with pytest.raises(CorpusError, match="no tokens"):
        open_corpus(tmp_path / "a.npy")


@pytest.mark.parametrize("change", [-1, -2, 1, 2])
def test_size_that_is_not_the_headers(change: int, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(9, dtype=np.uint16))
    content = path.read_bytes()
    path.write_bytes(content[:change] if change < 0 else content + b"\0" * change)
    with pytest.raises(CorpusError, match=rf"has {18 + change} bytes of data.* promises 9 uint16 tokens \(18 bytes\)"):
        open_corpus(path)


def test_header_is_never_read_as_ids(tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"  # the name says nothing
    with path.open("wb") as file:
        np.save(file, np.array([1, 2, 3, 4], np.uint16))
    with pytest.raises(CorpusError, match="begins like npy"):
        open_corpus(path, format="raw", dtype="uint16")
    assert open_corpus(path).num_tokens == 4


def test_format_npy_does_not_read_raw_ids(tmp_path: Path, write_raw: Callable[..., Path]) -> None:
    with pytest.raises(CorpusError, match="does not begin like npy"):
        open_corpus(write_raw(tmp_path / "a.npy", [1, 2, 3, 4]), format="npy", dtype="uint16")


def test_dtype_that_contradicts_the_header(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([1, 2], ">u2"))
    with pytest.raises(CorpusError, match="but --dtype says uint32"):
        open_corpus(tmp_path / "a.npy", dtype="uint32")
    assert open_corpus(tmp_path / "a.npy", dtype="uint16").num_tokens == 2


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_header_version(version: tuple[int, int], tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, np.array([5, 6], np.uint32), version=version)
    assert ids_of(open_corpus(tmp_path / "a.npy")) == [5, 6]


def test_columns_are_cut_like_rows(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    np.save(tmp_path / "a.npy", np.asfortranarray(np.arange(12, dtype=np.uint16).reshape(4, 3)))
    corpus = open_corpus(tmp_path / "a.npy")
    assert [ids_of(corpus.part(*part)) for part in ((0, 0.5), (0.5, 1))] == [[*range(6)], [*range(6, 12)]]



@pytest.mark.parametrize("order", ["C", "F"])
def test_a_file_that_shrinks_after_it_was_opened_is_an_error(order: str, tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    array = np.ones((40, 40), np.uint16)
    np.save(path, array if order == "C" else np.asfortranarray(array))
    corpus = open_corpus(path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CorpusError):
        list(corpus.blocks())


def _reads_as_ten_ids_or_error(content: bytes, path: Path) -> None:
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of headers in the style of Python 2
        try:
            corpus: Corpus = open_corpus(path)
        except SkewtoolError:
            return
    assert corpus.num_tokens == 10


@settings(max_examples=300)
@given(place=st.integers(0, 127), byte=st.integers(0, 255))
@example(place=8, byte=1)  # tokenize.TokenError
@example(place=10, byte=10)  # tokenize.TokenError
@example(place=21, byte=ord(","))  # SyntaxError
@example(place=22, byte=ord("0"))  # SyntaxError
@example(place=26, byte=ord("B"))  # TypeError
@example(place=62, byte=ord("L"))  # a warning
def test_a_changed_header_byte_is_an_error_or_harmless(place: int, byte: int, new_dir: Callable[[], Path]) -> None:
    path = new_dir() / "a.npy"
    np.save(path, np.arange(10, dtype=np.uint16))
    content = bytearray(path.read_bytes())
    content[place] = byte
    _reads_as_ten_ids_or_error(bytes(content), path)


@given(num_bytes=st.integers(0, 147))
def test_a_truncated_file_is_an_error(num_bytes: int, new_dir: Callable[[], Path]) -> None:
    path = new_dir() / "a.npy"
    np.save(path, np.arange(10, dtype=np.uint16))
    path.write_bytes(path.read_bytes()[:num_bytes])
    with pytest.raises(SkewtoolError):
        open_corpus(path)
