"""What a file is, told by its content and never by its name.

`.npy` may be raw (OLMo, Dolma), `.bin` may be anything. The first bytes decide; a file with a known beginning is never
read as raw ids, because its header would be counted as tokens.
"""

import re
import struct
from pathlib import Path

from skewtool.corpus.compressed import decompressed
from skewtool.corpus.fairseq import is_fairseq_index

__all__ = ["READABLE", "UNREADABLE", "detect_format", "format_of", "head_of"]

_HEAD_BYTES = 1 << 16

_MAGIC = (
    (b"MMIDIDX\0\0", "megatron"),
    (b"TNTIDX\0\0", "fairseq"),
    (b"\x93NUMPY", "npy"),
    (struct.pack("<i", 20240520), "llmc"),
    (struct.pack("<i", 20240801), "llmc"),
    (struct.pack("<i", 20240522), "llm.c evaluation"),
    (b"HUFFIDX\0\0", "fairseq Huffman index"),
    (b"LITPKDS", "packed"),
    (b"\xff\xff\xff\xff", "arrow"),
    (b"ARROW1", "arrow"),
    (b"PAR1", "parquet"),
    (b"PK\x03\x04", "npz"),
    (b"PK\x05\x06", "npz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x1f\x8b\x08", "gzip"),
    (b"\x80\x02", "pickle"),
    (b"\x80\x04\x95", "pickle"),
)

_DESCRIPTIONS = (
    ("mds", (rb'"shards"\s*:\s*\[', rb'"column_encodings"\s*:')),
    ("litdata", (rb'"chunks"\s*:\s*\[', rb'"chunk_bytes"\s*:')),
    ("hf", (rb'"_data_files"\s*:\s*\[',)),
    ("hf", (rb'\A\s*\{\s*"splits"\s*:\s*\[[^\[\]{}]*\]\s*\}\s*\Z',)),
    ("mixture", (rb'\A\s*\{\s*"(mixture|tokens)"\s*:', rb'"mixture"\s*:\s*\[')),
)
"""JSON files that describe a corpus, and what all is found in them: an index, the state of a saved data set, …"""

_DATATROVE = re.compile(rb"\A[^\n]*\|[1248]\n\d+\n[^\n]*\n?\Z")

READABLE = (
    "megatron", "fairseq", "npy", "npz", "llmc", "packed", "litdata", "mds", "datatrove", "hf", "arrow", "parquet", "tar",
    "jsonl", "text",
)  # fmt: skip
"""Formats that are recognised by content and can be read. Beside them there is "raw", which nothing marks."""

UNREADABLE = {
    "llm.c evaluation": "it holds questions with delimiters, not running text; give the training shards",
    "fairseq Huffman index": "its tokens are Huffman-coded; decode it first",
    "zstd": "neither JSON lines, text nor a tar archive is inside; decompress it first",
    "gzip": "neither JSON lines, text nor a tar archive is inside; decompress it first",
    "pickle": "pickles can run code and are never loaded; save the ids as .npy",
    "mixture": "it is a mixture file, which must be given itself, not its directory",
}
"""Known formats that are not token corpora or cannot be read, and the way out."""

_INSIDE_COMPRESSED = ("jsonl", "text", "tar")
_TAR_MAGIC = slice(257, 262)


def head_of(path: Path) -> bytes:
    """The first 64 KiB of the file."""
    with path.open("rb") as file:
        return file.read(_HEAD_BYTES)


def format_of(path: Path) -> str:
    """As `detect_format`, also where the file's size or the content of a compressed file must be looked at.

    Errors: CorpusError when a compressed file is damaged, or its package is not installed.
    """
    found = detect_format(head_of(path))
    if found == "megatron" and is_fairseq_index(path):
        return "fairseq"
    if found in ("gzip", "zstd"):
        inside = detect_format(decompressed(path, _HEAD_BYTES))
        return inside if inside in _INSIDE_COMPRESSED else "empty" if inside == "empty" else found
    return found


def detect_format(head: bytes) -> str:
    """Names the format that begins with `head`: one of READABLE, a key of UNREADABLE, "empty" or "unknown".

    "unknown" is what raw ids look like: nothing marks them.
    """
    if not head:
        return "empty"
    for magic, name in _MAGIC:
        # Raw ids may begin with the few bytes of some magics, as -1 in 32 bits with Arrow's; these are looked at closer.
        if head.startswith(magic) and (magic not in _CONFIRM or _CONFIRM[magic](head)):
            return name
    if head[_TAR_MAGIC] == b"ustar":
        return "tar"
    return _kind_of_text(head) if _is_text(head) else "unknown"


def _kind_of_text(head: bytes) -> str:
    if not head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{"):
        return "datatrove" if _DATATROVE.search(head) else "text"
    for name, patterns in _DESCRIPTIONS:
        if all(re.search(rb"(?<!\\)" + pattern, head) for pattern in patterns):  # not a quote inside a string
            return name
    return "jsonl"


def _is_frame_of_pickle(head: bytes) -> bool:
    """Protocol 4 and later begin with a frame."""
    return int.from_bytes(head[3:11], "little") < 1 << 40


def _is_old_pickle(head: bytes) -> bool:
    """Protocol 2 (old torch files) begins with a long integer or a container."""
    return head[2:3] in (b"\x8a", b"c", b"]", b"}")


def _is_arrow_stream(head: bytes) -> bool:
    """The length of the first message follows: positive, a multiple of 8, and not large for a schema."""
    length = int.from_bytes(head[4:8], "little", signed=True)
    return 0 < length < 1 << 24 and length % 8 == 0


_CONFIRM = {b"\x80\x02": _is_old_pickle, b"\x80\x04\x95": _is_frame_of_pickle, b"\xff\xff\xff\xff": _is_arrow_stream}


def _is_text(head: bytes) -> bool:
    """UTF-8 without control characters. Ids below 65,536 in 32 bits always hold zero bytes, so they never pass."""
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3 or len(head) < _HEAD_BYTES:  # a character cut by the end of the head is fine
            return False
    return not any(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in set(head))
