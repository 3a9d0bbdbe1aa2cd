"""NumPy archives: which array, and what is no array of ids."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError


def test_the_only_array_a_usual_name_or_the_one_asked_for(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, whatever=np.array([[1, 2], [3, 4]], np.uint16))
    corpus = open_corpus(path)
    assert (ids_of(corpus), corpus.sources[0].name, str(corpus.dtype)) == ([1, 2, 3, 4], "a.npz/whatever", "uint16")
    np.savez(path, tokens=np.array([5, 6]), lengths=np.array([2]))
    assert ids_of(open_corpus(path)) == [5, 6]
    assert ids_of(open_corpus(path, column="lengths")) == [2]
    np.savez(path, a=np.array([5, 6]), b=np.array([2]))
    with pytest.raises(CorpusError, match=r"found: a, b\); pass --column"):
        open_corpus(path)


def test_arrays_stored_column_by_column(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    np.savez(tmp_path / "a.npz", tokens=np.asfortranarray(np.arange(6, dtype=">u2").reshape(2, 3)))
    assert ids_of(open_corpus(tmp_path / "a.npz"), block_tokens=4) == [0, 1, 2, 3, 4, 5]


def test_objects_and_floats_are_refused(tmp_path: Path) -> None:
    for array in (np.array([{"run": "me"}], object), np.array([1.0])):
        np.savez(tmp_path / "a.npz", tokens=array)
        with pytest.raises(CorpusError, match="must be integers"):
            open_corpus(tmp_path / "a.npz")


def test_torch_files_are_zips_of_pickles(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive:
        archive.writestr("a/data.pkl", b"\x80\x02]q\x00.")
        archive.writestr("a/data/0", b"\0" * 64)
    with pytest.raises(CorpusError, match=r"never loaded: save the ids as \.npy"):
        open_corpus(tmp_path / "a.pt")


def test_a_wrong_checksum_is_found(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, tokens=np.arange(100))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(CorpusError, match="cannot be read as a zip archive"):
        ids_of(open_corpus(path))


def test_an_array_shorter_than_its_header_says(tmp_path: Path) -> None:
    stored = io.BytesIO()
    np.save(stored, np.arange(9))
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("tokens.npy", stored.getvalue()[:-8])
    with pytest.raises(CorpusError, match=r"has 192 bytes, but its header promises 200"):
        open_corpus(tmp_path / "a.npz")
