"""Formats are told by content: the names of the files here say nothing."""

import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool.corpus import open_corpus
from skewtool.corpus.detection import UNREADABLE, detect_format, head_of
from skewtool.errors import CorpusError

KNOWN = {
    b"MMIDIDX\0\0": "megatron",
    b"TNTIDX\0\0": "fairseq",
    b"HUFFIDX\0\0": "fairseq Huffman index",
    b"LITPKDS": "packed",
    b"\x93NUMPY\x01\0": "npy",
    struct.pack("<i", 20240520): "llmc",
    struct.pack("<i", 20240801): "llmc",
    struct.pack("<i", 20240522): "llm.c evaluation",
    b"\xff\xff\xff\xff\x08\x01\0\0": "arrow",
    b"ARROW1\0\0": "arrow",
    b"PAR1": "parquet",
    b"PK\x03\x04": "npz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x1f\x8b\x08": "gzip",
    b"\x80\x04\x95" + (50).to_bytes(8, "little"): "pickle",
    b"\x80\x02\x8a\x0a": "pickle",
}

COMPRESSED = ("gzip", "zstd")  # what is inside decides


@pytest.mark.parametrize(("magic", "name"), KNOWN.items())
def test_magic(magic: bytes, name: str) -> None:
    assert detect_format(magic + b"\0\x10\xfe\0" * 8) == name


@pytest.mark.parametrize("magic", KNOWN)
def test_a_file_with_a_known_beginning_is_never_read_raw(magic: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokens.bin").write_bytes(magic + b"\0" * (64 - len(magic)))
    with pytest.raises(CorpusError):
        open_corpus(tmp_path / "tokens.bin", format="raw", dtype="uint16")


@pytest.mark.parametrize("magic", [each for each, name in KNOWN.items() if name in UNREADABLE and name not in COMPRESSED])
def test_what_cannot_be_read_is_named_with_the_way_out(magic: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokens.npy").write_bytes(magic + b"\0" * (64 - len(magic)))
    with pytest.raises(CorpusError) as caught:
        open_corpus(tmp_path / "tokens.npy")
    assert UNREADABLE[KNOWN[magic]] in str(caught.value)


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"", "empty"),
        (b'{"text": "a"}\n', "jsonl"),
        (b' \r\n\t{"text": 1}', "jsonl"),
        (b'\xef\xbb\xbf{"text": 1}', "jsonl"),
        (b"Call me Ishmael.\n", "text"),
        (b"[1, 2]", "text"),
        ("Ελλάδα 中文 🙂".encode(), "text"),
        (b"\x1b[31mred\f\n", "text"),
        (b"latin \xe9t\xe9", "unknown"),
        (b"nul \0 byte", "unknown"),
        ("the cat".encode("utf-16"), "unknown"),
        (b"a" + "中".encode()[:2], "unknown"),
    ],
)
def test_text_and_what_is_not(head: bytes, name: str) -> None:
    assert detect_format(head) == name


def test_a_character_cut_by_the_end_of_the_head_is_still_text(tmp_path: Path) -> None:
    for shift in range(4):
        path = tmp_path / f"{shift}.txt"
        path.write_bytes(b"a" * shift + "🙂".encode() * 20_000)
        assert len(head_of(path)) == 1 << 16
        assert detect_format(head_of(path)) == "text"


@given(ids=st.lists(st.integers(0, 255), min_size=1), dtype=st.sampled_from(["<u2", "<u4", "<i8", ">u2"]))
def test_small_ids_look_like_nothing_known(ids: list[int], dtype: str) -> None:
    assert detect_format(np.array(ids, dtype).tobytes()) == "unknown"


@given(ids=st.lists(st.integers(0, 65535), min_size=2))
def test_wide_ids_are_never_text(ids: list[int]) -> None:
    assert detect_format(np.array(ids, "<u4").tobytes()) not in ("text", "jsonl")


@pytest.mark.parametrize("head", [b"\x80\x02\x07\0", b"\x80\x04\x95\0" + b"\xff" * 12])
def test_ids_that_begin_like_a_pickle_are_not_one(head: bytes) -> None:
    assert detect_format(head + b"\xc3\x10" * 20) == "unknown"


def test_raw_ids_of_minus_one_are_no_arrow_stream() -> None:
    assert detect_format(np.array([-1, 3, 5, 7], "<i4").tobytes()) == "unknown"
