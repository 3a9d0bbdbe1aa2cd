"""Tar archives: which members, pickles, and archives that stop at a member's end."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError


def npy(*ids: int) -> bytes:
    content = io.BytesIO()
    np.save(content, np.array(ids))
    return content.getvalue()


def write(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def test_arrays_are_read_beside_other_members(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    members = {"0.json": b'{"url": "x"}', "0.npy": npy(5, 6), "1.json": b"{}", "1.npy": npy(7)}
    corpus = open_corpus(write(tmp_path / "a.tar", members))
    assert (corpus.format, ids_of(corpus), corpus.num_tokens) == ("tar", [5, 6, 7], None)
    with pytest.raises(CorpusError, match=r"a\.tar, 0\.json: no field 'input_ids' or"):
        ids_of(open_corpus(tmp_path / "a.tar", column="json"))


def test_json_members_hold_a_document_each_and_jsonl_members_several(
    tmp_path: Path, ids_of: Callable[..., list[int]]
) -> None:
    path = write(tmp_path / "a.tar", {"d/0.json": b'{"mine": [5]}', "d/1.json": b'{"mine": [6, 7]}'})
    assert ids_of(open_corpus(path, column="mine")) == [5, 6, 7]
    path = write(tmp_path / "b.tar", {"x.jsonl": b'{"tokens": [5]}\n\n{"tokens": [6]}\n'})
    assert ids_of(open_corpus(path)) == [5, 6]


def test_one_of_several_arrays_must_be_chosen(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    members = {"0.tokens.npy": npy(5), "0.labels.npy": npy(-100), "1.tokens.npy": npy(6), "1.labels.npy": npy(3)}
    path = write(tmp_path / "a.tar", members)
    with pytest.raises(CorpusError, match=r"tokens\.npy and labels\.npy; pass --column"):
        open_corpus(path)
    assert ids_of(open_corpus(path, column="tokens.npy")) == [5, 6]


@pytest.mark.parametrize("ending", ["pyd", "pickle", "pt"])
def test_pickles_are_never_loaded(ending: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=rf"holds {ending}, no ids .*never loaded"):
        open_corpus(write(tmp_path / "a.tar", {f"0.{ending}": b"\x80\x04\x95"}))
    objects = io.BytesIO()
    np.save(objects, np.array([{}], object))
    with pytest.raises(CorpusError, match=r"0\.npy holds object values"):
        list(open_corpus(write(tmp_path / "b.tar", {"0.npy": objects.getvalue()})).blocks())


@pytest.mark.parametrize("num_bytes", [1024, 1536, 2048, 2049, 3000])
def test_an_archive_that_is_cut_off(num_bytes: int, tmp_path: Path) -> None:
    """Each member here takes 1,024 bytes, so some of these cuts lie between two of them."""
    path = write(tmp_path / "a.tar", {f"{number}.npy": npy(number) for number in range(5)})
    path.write_bytes(path.read_bytes()[:num_bytes])
    with pytest.raises(CorpusError, match=r"cut off|is damaged|cannot be read as a tar archive"):
        list(open_corpus(path).blocks())


def test_an_array_that_is_not_as_its_header_says(tmp_path: Path) -> None:
    for content in (npy(1, 2)[:-1], npy(1, 2) + b"\0"):
        with pytest.raises(CorpusError, match=r"0\.npy (is cut off|goes on)"):
            list(open_corpus(write(tmp_path / "a.tar", {"0.npy": content})).blocks())
