"""lit-gpt's packed files."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError


def write(path: Path, ids: list[int], code: int = 8, version: int = 1, promised: int | None = None) -> Path:
    stored = np.array(ids, {8: "<u2", 4: "<i4"}.get(code, "<u2"))
    head = struct.pack("<7sQBQ", b"LITPKDS", version, code, stored.size if promised is None else promised)
    path.write_bytes(head + stored.tobytes())
    return path


def test_the_type_is_in_the_header(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    for code, dtype in ((8, "uint16"), (4, "int32")):
        corpus = open_corpus(write(tmp_path / "a.bin", [7, 300, 2], code))
        assert (corpus.format, str(corpus.dtype), ids_of(corpus)) == ("packed", dtype, [7, 300, 2])


@pytest.mark.parametrize(("options", "match"), [
    ({"code": 6}, "type code 6"), ({"version": 2}, "version 2"), ({"promised": 4}, "promises 4 uint16 tokens"),
    ({"promised": 2**62}, "promises"),
])  # fmt: skip
def test_headers_that_cannot_be_right(options: dict[str, int], match: str, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=match):
        open_corpus(write(tmp_path / "a.bin", [7, 300, 2], **options))


def test_a_cut_header(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"LITPKDS\1")
    with pytest.raises(CorpusError, match="cut off"):
        open_corpus(tmp_path / "a.bin")


def test_separators_that_fill_the_last_file_are_noted(tmp_path: Path) -> None:
    corpus = open_corpus(write(tmp_path / "a.bin", [7, 300, *[1] * 100]))
    assert corpus.num_tokens == 102
    assert any("ends with 100 times id 1" in note for note in corpus.notes)
    assert open_corpus(write(tmp_path / "a.bin", [7, 300, 1, 1])).notes == ()
