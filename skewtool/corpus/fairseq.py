"""fairseq's indexed datasets, and the "cached" ones of GPT-NeoX and old Megatron.

Layouts (fairseq/data/indexed_dataset.py, gpt-neox megatron/data/indexed_dataset.py), little-endian:
- mmap: Megatron's magic ``MMIDIDX\\0\\0`` without document index: u64 version 1; u8 type code; u64 S; i32 lengths[S];
  i64 byte offsets[S]. Only its size, 26 + 12 S, tells it from Megatron's.
- cached: ``TNTIDX\\0\\0``; u64 version 1, type code, element size, N, s; NeoX only: u64 D; i64 dim_offsets[N + 1],
  data_offsets[N + 1] (in elements), sizes[s]; NeoX only: i64 documents[D]. fairseq stores each id plus one here ("Lua
  compatibility"), NeoX does not; the size of the index tells the two apart.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.corpus.extent import extent_of
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.source import BLOCK_TOKENS, ArraySource, Ids, Progress
from skewtool.errors import CorpusError

__all__ = ["is_fairseq_index", "open_fairseq"]

_MMAP_HEADER = struct.Struct("<9sQBQ")
_CACHED_HEADER = struct.Struct("<8sQQQQQ")
_DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2", 9: "<u4", 10: "<u8"}


@dataclass(frozen=True)
class _Index:
    dtype: np.dtype[Any]
    num_tokens: int
    num_documents: int
    plus_one: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlusOneSource(ArraySource):
    """Ids that are stored plus one."""

    def blocks(
        self,
        start: int = 0,
        stop: int | None = None,
        block_tokens: int = BLOCK_TOKENS,
        progress: Progress | None = None,
    ) -> Iterator[Ids]:
        for block in super().blocks(start, stop, block_tokens, progress):
            yield block.astype(np.int64) - 1  # a stored 0 becomes -1, a bad id


def is_fairseq_index(path: Path) -> bool:
    """Whether an index with Megatron's magic has the size that fairseq's would have."""
    with path.open("rb") as file:
        head = file.read(_MMAP_HEADER.size)
    size = path.stat().st_size
    return len(head) == _MMAP_HEADER.size and size == _MMAP_HEADER.size + 12 * _MMAP_HEADER.unpack(head)[3]


def open_fairseq(path: Path, name: str, options: ReadOptions) -> list[ArraySource]:
    """Opens a pair by its index file.

    Errors: CorpusError for a damaged index, a type that is no integer, and data that are missing or of another length.
    """
    content = path.read_bytes()
    index = _read_cached(path, content) if content.startswith(b"TNTIDX") else _read_mmap(path, content)
    data = path.with_suffix(".bin")
    if data == path or not data.is_file():
        raise CorpusError(f"{path} is a fairseq index, but its data {data} is not there")
    options.check_dtype(path, index.dtype, "its fairseq index")
    extent = extent_of(data, index.num_tokens, index.dtype, path.name, options.allow)
    kind = PlusOneSource if index.plus_one else ArraySource
    return [kind(
        data, Path(name).with_suffix(".bin").as_posix(), "fairseq", index.dtype, extent.num_tokens, index.num_documents,
        extent.num_tokens * index.dtype.itemsize, index.notes + extent.notes, dropped=extent.dropped,
    )]  # fmt: skip


def _read_mmap(path: Path, content: bytes) -> _Index:
    _, version, code, num_sequences = _MMAP_HEADER.unpack_from(content)
    dtype = _checked(path, version, code)
    body = np.frombuffer(content, np.uint8, offset=_MMAP_HEADER.size)
    lengths = body[: 4 * num_sequences].view("<i4").astype(np.int64)
    starts = (np.cumsum(lengths) - lengths) * dtype.itemsize
    if (lengths < 0).any() or (starts != body[4 * num_sequences :].view("<i8")).any():
        raise CorpusError(f"{path} is damaged: its lengths and offsets contradict each other")
    return _Index(dtype, int(lengths.sum()), num_sequences)


def _read_cached(path: Path, content: bytes) -> _Index:
    if len(content) < _CACHED_HEADER.size + 8:
        raise CorpusError(f"{path} is cut off: {len(content)} bytes, but its header has {_CACHED_HEADER.size}")
    _, version, code, element_size, num_items, num_sizes = _CACHED_HEADER.unpack_from(content)
    dtype = _checked(path, version, code)
    if element_size != dtype.itemsize:
        raise CorpusError(f"{path} is damaged: {dtype.name} has {dtype.itemsize} bytes, not {element_size}")
    numbers = np.frombuffer(content[_CACHED_HEADER.size : len(content) // 8 * 8], "<i8")
    common = 2 * num_items + 2 + num_sizes
    is_neox = len(content) == _CACHED_HEADER.size + 8 * (1 + common + int(numbers[0]))
    if not is_neox and len(content) != _CACHED_HEADER.size + 8 * common:
        raise CorpusError(f"{path} has {len(content)} bytes, but its counts need {_CACHED_HEADER.size + 8 * common}")
    arrays = numbers[1:] if is_neox else numbers
    num_tokens = _checked_offsets(path, arrays, num_items, num_sizes)
    if is_neox:
        return _Index(dtype, num_tokens, max(int(numbers[0]) - 1, 0) or num_items)
    note = f"{path.name}: fairseq's legacy index, whose ids are stored plus one; one was taken off each"
    return _Index(dtype, num_tokens, num_items, plus_one=True, notes=(note,))


def _checked(path: Path, version: int, code: int) -> np.dtype[Any]:
    if version != 1:
        raise CorpusError(f"{path} has index version {version}; known is 1")
    if code not in _DTYPES:
        raise CorpusError(f"{path} has type code {code}; token ids must be integers ({sorted(_DTYPES)})")
    return np.dtype(_DTYPES[code])


def _checked_offsets(path: Path, arrays: npt.NDArray[np.int64], num_items: int, num_sizes: int) -> int:
    """The number of elements, after comparing the offsets with the sizes (one per item where items are sequences)."""
    data_offsets = arrays[num_items + 1 : 2 * num_items + 2]
    sizes = arrays[2 * num_items + 2 : 2 * num_items + 2 + num_sizes]
    if data_offsets[0] != 0 or (num_sizes == num_items and (np.diff(data_offsets) != sizes).any()):
        raise CorpusError(f"{path} is damaged: its offsets contradict its sizes")
    if (np.diff(data_offsets) < 0).any():
        raise CorpusError(f"{path} is damaged: its offsets do not ascend")
    return int(data_offsets[-1])
