"""Megatron-LM's indexed dataset: PREFIX.idx describes the sequences, PREFIX.bin holds the bare tokens.

Layout of the index (megatron/core/datasets/indexed_dataset.py): magic ``MMIDIDX\\0\\0``; u64 version 1; u8 type code;
u64 S sequences; u64 D document indices; i32 lengths[S]; i64 byte offsets[S]; i64 document_indices[D]; and, only if
multimodal, i8 modes[S]. Whether modes are there shows in the file size alone. Stored offsets can be wrong (an int32
overflow in old merges); tokens are contiguous, so only lengths and type count.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.corpus.checks import IMAGES, stop_unless_allowed
from skewtool.corpus.extent import extent_of
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.source import BLOCK_TOKENS, ArraySource, Ids, Progress, Source, StreamSource
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
    modes: npt.NDArray[np.int8] | None


@dataclass(frozen=True)
class TextOfMultimodal(StreamSource):
    """The text sequences of a multimodal pair. `begins` and `lengths` are int64, in tokens of the file `data`."""

    data: ArraySource
    begins: npt.NDArray[np.int64]
    lengths: npt.NDArray[np.int64]

    def pieces(self, start: int, progress: Progress | None) -> Iterator[tuple[int, Ids]]:
        ends = np.cumsum(self.lengths)
        for number in range(int(np.searchsorted(ends, start, side="right")), ends.size):
            position, begin = int(ends[number] - self.lengths[number]), int(self.begins[number])
            for block in self.data.stored(begin, begin + int(self.lengths[number]), BLOCK_TOKENS, progress):
                yield position, block
                position += block.size


def open_megatron(path: Path, name: str, options: ReadOptions) -> list[Source]:
    """Opens a pair by its index file.

    Errors: CorpusError when the .bin is missing or not as long as the index says, for float types, and for multimodal
    pairs (they hold the bytes of images as ids) unless "images" is allowed: then only their text is read.
    """
    index = _read_index(path)
    data = path.with_suffix(".bin")
    if data == path:
        raise CorpusError(f"{path} is a Megatron index by its content; call it .idx and put its data beside it as .bin")
    if not data.is_file():
        raise CorpusError(f"{path} is a Megatron index, but its data {data} is not there")
    options.check_dtype(path, index.dtype, "its Megatron index")
    extent = extent_of(data, int(index.lengths.sum()), index.dtype, path.name, options.allow)
    notes, num_documents = _judge(index, name)
    source = ArraySource(
        data, Path(name).with_suffix(".bin").as_posix(), "megatron", index.dtype, extent.num_tokens, num_documents,
        extent.num_tokens * index.dtype.itemsize, notes + extent.notes, dropped=extent.dropped,
    )  # fmt: skip
    return [source if index.modes is None else _text_of(source, index, options)]


def _text_of(source: ArraySource, index: _Index, options: ReadOptions) -> Source:
    assert index.modes is not None
    images = index.modes != 0
    num_in_images = int(index.lengths[images].sum())
    stop_unless_allowed(
        IMAGES,
        f"{source.path} is multimodal: {num_in_images} of its {source.num_tokens} ids are the bytes of "
        f"{int(images.sum())} images; profile a text-only pair",
        options.allow,
    )
    begins = np.cumsum(index.lengths) - index.lengths
    num_tokens = source.num_tokens - num_in_images
    if source.dropped or num_tokens < 0:
        raise CorpusError(f"{source.path} is multimodal and not as long as its index says; write it again")
    return TextOfMultimodal(
        source.path, source.name, "megatron", index.dtype, num_tokens, source.num_documents,
        num_tokens * index.dtype.itemsize, (*source.notes, f"{source.name}: {num_in_images} ids of images were left out"),
        source, begins[~images], index.lengths[~images], dropped=((IMAGES, num_in_images),),
    )  # fmt: skip


def _read_index(path: Path) -> _Index:
    content = path.read_bytes()
    if len(content) < _HEADER.size:
        raise CorpusError(f"{path} is cut off: {len(content)} bytes, but a Megatron index header has {_HEADER.size}")
    _, version, code, num_sequences, num_documents = _HEADER.unpack_from(content)
    if version != 1:
        raise CorpusError(f"{path} has index version {version}; known is 1")
    expected = _HEADER.size + 12 * num_sequences + 8 * num_documents
    if len(content) not in (expected, expected + num_sequences):
        raise CorpusError(f"{path} has {len(content)} bytes, but its counts need {expected}; it is cut off or damaged")
    if code in _FLOATS or code not in _DTYPES:
        raise CorpusError(f"{path} has type code {code} ({_FLOATS.get(code, 'unknown')}); token ids must be integers")
    lengths, offsets, documents, modes = np.split(
        np.frombuffer(content, np.uint8, offset=_HEADER.size),
        [4 * num_sequences, 12 * num_sequences, 12 * num_sequences + 8 * num_documents],
    )
    return _Index(
        dtype=np.dtype(_DTYPES[code]),
        lengths=_checked_lengths(path, lengths.view("<i4").astype(np.int64)),
        offsets=offsets.view("<i8").astype(np.int64),
        document_indices=documents.view("<i8").astype(np.int64),
        modes=modes.view(np.int8) if modes.size else None,
    )


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
