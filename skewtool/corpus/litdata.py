"""litdata's token chunks, as LitGPT trains on them: index.json and chunk files, plain or compressed with zstd.

Layout of a chunk (litdata/streaming/{writer,item_loader}.py): u32 n; u32 offsets[n + 1]; the tokens of n items, bare, one
array as a whole. `data_format` in the index names the type by its place in one of two tables.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from skewtool.corpus.options import ReadOptions
from skewtool.corpus.shards import read_index, read_shard, sample_offsets, shard_path
from skewtool.corpus.source import ArraySource, Ids, Progress, Source, StreamSource
from skewtool.errors import CorpusError

__all__ = ["files_of_litdata", "open_litdata"]

_TYPES = {
    "no_header_tensor": {11: "<u1", 12: "<i1", 13: "<i2", 14: "<i2", 15: "<i4", 16: "<i4", 17: "<i8", 18: "<i8",
                         20: "<u2"},
    "no_header_numpy": {0: "<i1", 1: "<i2", 2: "<i4", 3: "<i8", 4: "<u1", 5: "<u2", 6: "<u4", 7: "<u8"},
}  # fmt: skip


@dataclass(frozen=True)
class CompressedChunk(StreamSource):
    """A chunk that is decompressed as a whole."""

    dtype: np.dtype[Any]
    num_items: int
    raw_bytes: int

    def pieces(self, start: int, progress: Progress | None) -> Iterator[tuple[int, Ids]]:
        content = read_shard(self.path, self.raw_bytes)
        sample_offsets(self.path, content, self.num_items, self.raw_bytes)
        if progress is not None:
            progress(self.num_bytes)
        ids = np.frombuffer(content, self.dtype, offset=4 * (self.num_items + 2))
        yield 0, ids.astype(self.dtype.newbyteorder("="))


def files_of_litdata(path: Path) -> list[Path]:
    """The chunks that an index describes."""
    return [shard_path(path, chunk.get("filename")) for chunk in read_index(path, "chunks")["chunks"]]


def open_litdata(path: Path, name: str, options: ReadOptions) -> list[Source]:
    """Opens the chunks of an index.json.

    Errors: CorpusError for a damaged index, encryption, items that are not bare tokens, and chunks that are missing or of
    another size than the index says.
    """
    index = read_index(path, "chunks")
    config = index.get("config")
    if not isinstance(config, dict):
        raise CorpusError(f"{path} is damaged: it has no 'config'")
    if config.get("encryption"):
        raise CorpusError(f"{path} describes encrypted chunks; decrypt them first")
    compression, level = config.get("compression"), config.get("compression_level")
    if (compression is not None and str(compression).partition(":")[0] != "zstd") or level not in (None, "", "chunk"):
        raise CorpusError(f"{path} describes chunks compressed with {compression!r} by {level!r}; known is 'zstd' by chunk")
    dtype = _dtype_of(config.get("data_format"), path)
    options.check_dtype(path, dtype, "its data_format")
    folder = name.rpartition("/")[0]
    return [
        _open_chunk(path, f"{folder}/" if folder else "", chunk, dtype, bool(config.get("compression")))
        for chunk in index["chunks"]
    ]


def _dtype_of(data_format: object, path: Path) -> np.dtype[Any]:
    if isinstance(data_format, list) and len(data_format) == 1:
        table, _, code = str(data_format[0]).partition(":")
        if table in _TYPES and code.isdecimal() and int(code) in _TYPES[table]:
            return np.dtype(_TYPES[table][int(code)])
    raise CorpusError(
        f"{path} has items of format {data_format!r}; only bare token ids are read (one no_header_tensor or "
        "no_header_numpy of integers)"
    )


def _open_chunk(index: Path, folder: str, chunk: dict[str, Any], dtype: np.dtype[Any], compressed: bool) -> Source:
    path = shard_path(index, chunk.get("filename"))
    num_items, num_tokens, chunk_bytes = (chunk.get(key) for key in ("chunk_size", "dim", "chunk_bytes"))
    if type(num_items) is not int or num_items < 0 or type(num_tokens) is not int or num_tokens < 0:
        raise CorpusError(f"{index}: {path.name} has {num_items!r} items of {num_tokens!r} tokens in all; only chunks for "
                          "the TokensLoader record both")  # fmt: skip
    if not path.is_file():
        raise CorpusError(f"{index} lists {path}, which is not there")
    header = 4 * (num_items + 2)
    raw_bytes = header + num_tokens * dtype.itemsize
    name = f"{folder}{path.relative_to(index.parent).as_posix()}"
    size = path.stat().st_size
    if compressed:
        return CompressedChunk(
            path, name, "litdata", dtype, num_tokens, num_items, size, (), num_items, raw_bytes, grain=max(num_tokens, 1)
        )
    if size != raw_bytes or chunk_bytes not in (None, raw_bytes, num_tokens * dtype.itemsize):
        raise CorpusError(
            f"{path} has {size} bytes, but {index.name} promises {num_tokens} {dtype.name} tokens in {num_items} items "
            f"({raw_bytes} bytes, {chunk_bytes} by its own count); is it cut off, or is the type another?"
        )
    with path.open("rb") as file:
        sample_offsets(path, file.read(header), num_items, raw_bytes)
    return ArraySource(path, name, "litdata", dtype, num_tokens, num_items, num_tokens * dtype.itemsize, (), offset=header)
