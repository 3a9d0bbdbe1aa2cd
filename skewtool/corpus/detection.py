"""What a file is, told by its content and never by its name.

`.npy` may be raw (OLMo, Dolma), `.bin` may be anything. The first bytes decide; a file with a known beginning is never
read as raw ids, because its header would be counted as tokens.
"""

import struct
from pathlib import Path

__all__ = ["READABLE", "UNREADABLE", "detect_format", "head_of"]

_HEAD_BYTES = 1 << 16

_MAGIC = (
    (b"MMIDIDX\0\0", "megatron"),
    (b"\x93NUMPY", "npy"),
    (struct.pack("<i", 20240520), "llmc"),
    (struct.pack("<i", 20240801), "llmc"),
    (struct.pack("<i", 20240522), "llm.c evaluation"),
    (b"TNTIDX\0\0", "fairseq legacy index"),
    (b"HUFFIDX\0\0", "fairseq Huffman index"),
    (b"LITPKDS", "lit-gpt packed"),
    (b"\xff\xff\xff\xff", "Arrow stream"),
    (b"ARROW1", "Arrow file"),
    (b"PAR1", "Parquet"),
    (b"PK\x03\x04", "zip (.npz, .pt)"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x80\x02", "pickle"),
    (b"\x80\x04\x95", "pickle"),
)

READABLE = ("megatron", "npy", "llmc", "jsonl", "text")
"""Formats that are recognised by content and can be read. Beside them there is "raw", which nothing marks."""

UNREADABLE = {
    "llm.c evaluation": "it holds questions with delimiters, not running text; give the training shards",
    "fairseq legacy index": "convert it to Megatron's MMIDIDX pair",
    "fairseq Huffman index": "its tokens are Huffman-coded; decode it first",
    "lit-gpt packed": "write it out as flat ids first",
    "Arrow stream": "write the ids out as .npy or flat ids first",
    "Arrow file": "write the ids out as .npy or flat ids first",
    "Parquet": "write the ids out as .npy or flat ids first",
    "zip (.npz, .pt)": "unpack the array to a .npy file first",
    "zstd": "decompress it first",
    "gzip": "decompress it first",
    "pickle": "pickles can run code and are never loaded; save the ids as .npy",
}
"""Known formats that are not token corpora or cannot be read yet, and the way out."""


def head_of(path: Path) -> bytes:
    """The first 64 KiB of the file."""
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)


def detect_format(head: bytes) -> str:
    """Names the format that begins with `head`: one of READABLE, a key of UNREADABLE, "empty" or "unknown".

    "unknown" is what raw ids look like: nothing marks them.
    """
    if not head:
        return "empty"
    for magic, name in _MAGIC:
        # Raw ids may begin with the few bytes of some magics, as -1 in 32 bits with Arrow's; these are looked at closer.
        if head.startswith(magic) and _CONFIRM.get(name, _no_doubt)(head):
            return name
    if _is_text(head):
        return "jsonl" if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else "text"
    return "unknown"


def _is_pickle(head: bytes) -> bool:
    """Protocol 4 and later begin with a frame; protocol 2 (old torch files) with a long integer or a container."""
    if head.startswith(b"\x80\x04\x95"):
        return int.from_bytes(head[3:11], "little") < 1 << 40
    return head[2:3] in (b"\x8a", b"c", b"]", b"}")


def _is_arrow_stream(head: bytes) -> bool:
    """The length of the first message follows: positive, a multiple of 8, and not large for a schema."""
    length = int.from_bytes(head[4:8], "little", signed=True)
    return 0 < length < 1 << 24 and length % 8 == 0


def _no_doubt(head: bytes) -> bool:
    return True


_CONFIRM = {"pickle": _is_pickle, "Arrow stream": _is_arrow_stream}


def _is_text(head: bytes) -> bool:
    """UTF-8 without control characters. Ids below 65,536 in 32 bits always hold zero bytes, so they never pass."""
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3 or len(head) < _HEAD_BYTES:  # a character cut by the end of the head is fine
            return False
    return not any(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in set(head))
