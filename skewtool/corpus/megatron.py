"""Megatron-LM's indexed dataset: PREFIX.idx describes the sequences, PREFIX.bin holds the bare tokens.

Layout of the index (megatron/core/datasets/indexed_dataset.py): magic ``MMIDIDX\\0\\0``; u64 version 1; u8 type code;
u64 S sequences; u64 D document indices; i32 lengths[S]; i64 byte offsets[S]; i64 document_indices[D]; and, only if
multimodal, i8 modes[S]. Whether modes are there shows in the file size alone. Stored offsets can be wrong (an int32
overflow in old merges); tokens are contiguous, so only lengths and type count.
"""

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.corpus.options import ReadOptions
from skewtool.corpus.source import ArraySource
from skewtool.errors import CorpusError

__all__ = ["open_megatron"]

_HEADER = struct.Struct("<9sQBQQ")
_DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_FLOATS = {6: "float64", 7: "float32"}


@dataclass(frozen=True)
class _Index:
    dtype: np.dtype[Any]
    lengths: npt.NDArray[np.int64]
    offsets: npt.NDArray[np.int64]
    document_indices: npt.NDArray[np.int64]


def open_megatron(path: Path, name: str, options: ReadOptions) -> ArraySource:
    """Opens a pair by its index file.

    Errors: CorpusError when the .bin is missing or not as long as the index says, for float types, for multimodal pairs
    (they hold the bytes of images as ids) and for fairseq's index of the same magic.
    """
    index = _read_index(path)
    data = path.with_suffix(".bin")
    if data == path:
        raise CorpusError(f"{path} is a Megatron index by its content; call it .idx and put its data beside it as .bin")
    if not data.is_file():
        raise CorpusError(f"{path} is a Megatron index, but its data {data} is not there")
    if options.dtype is not None and options.dtype != index.dtype:
        raise CorpusError(f"{path} says {index.dtype.name}, but --dtype says {options.dtype}")
    num_tokens = int(index.lengths.sum())
    num_bytes = data.stat().st_size
    if num_bytes != num_tokens * index.dtype.itemsize:
        raise CorpusError(
            f"{data} has {num_bytes} bytes, but {path.name} promises {num_tokens} {index.dtype.name} tokens "
            f"({num_tokens * index.dtype.itemsize} bytes); the two files do not belong together or one is cut off"
        )
    notes, num_documents = _judge(index, name)
    return ArraySource(
        data, Path(name).with_suffix(".bin").as_posix(), "megatron", index.dtype, num_tokens, num_documents,
        num_bytes, notes,
    )  # fmt: skip


def _read_index(path: Path) -> _Index:
    content = path.read_bytes()
    if len(content) < _HEADER.size:
        raise CorpusError(f"{path} is cut off: {len(content)} bytes, but a Megatron index header has {_HEADER.size}")
    _, version, code, num_sequences, num_documents = _HEADER.unpack_from(content)
    if version != 1:
        raise CorpusError(f"{path} has index version {version}; known is 1")
    expected = _HEADER.size + 12 * num_sequences + 8 * num_documents
    if len(content) != expected:
        raise CorpusError(f"{path} {_wrong_size(len(content), expected, num_sequences)}")
    if code in _FLOATS or code not in _DTYPES:
        raise CorpusError(f"{path} has type code {code} ({_FLOATS.get(code, 'unknown')}); token ids must be integers")
    lengths, offsets, documents = np.split(
        np.frombuffer(content, np.uint8, offset=_HEADER.size), [4 * num_sequences, 12 * num_sequences]
    )
    return _Index(
        dtype=np.dtype(_DTYPES[code]),
        lengths=_checked_lengths(path, lengths.view("<i4").astype(np.int64)),
        offsets=offsets.view("<i8").astype(np.int64),
        document_indices=documents.view("<i8").astype(np.int64),
    )


def _wrong_size(found: int, expected: int, num_sequences: int) -> str:
    if found == expected + num_sequences:
        return "is multimodal: its .bin holds the bytes of images among the tokens; profile a text-only pair"
    if found >= 26 and (found - 26) % 12 == 0:
        return "looks like fairseq's index of the same magic, which has no documents; convert it to Megatron's"
    return f"has {found} bytes, but its counts need {expected}; it is cut off or damaged"


def _checked_lengths(path: Path, lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if (lengths < 0).any():
        first = int(np.argmax(lengths < 0))
        raise CorpusError(f"{path} is damaged: sequence {first} has the negative length {lengths[first]}")
    return lengths


def _judge(index: _Index, name: str) -> tuple[tuple[str, ...], int]:
    """Notes on what is odd but does not touch the tokens, and the number of documents."""
    notes = []
    starts = (np.cumsum(index.lengths) - index.lengths) * index.dtype.itemsize
    if (starts != index.offsets).any():
        notes.append(f"{name}: stored offsets disagree with the lengths (a known merge fault); lengths are used")
    documents = index.document_indices
    if documents.size > 1 and documents[0] == 0 and documents[-1] == index.lengths.size:
        return tuple(notes), int(documents.size - 1)
    notes.append(f"{name}: the document index does not cover the sequences; each sequence is taken as a document")
    return tuple(notes), int(index.lengths.size)
