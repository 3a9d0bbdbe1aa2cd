"""MosaicML's streaming data sets (MDS): index.json and shards, plain or compressed with zstd or gzip.

Layout of a shard (streaming/base/format/mds): u32 n; u32 offsets[n + 1]; a JSON object with the columns; the samples. A
sample is a u32 size for each column of variable size, then the columns, in the order of their names. Token columns are
``ndarray`` (a type code, then as the next), ``ndarray:int32`` (a byte with dimensions and width of the shape, the shape,
the ids), ``ndarray:int32:2048`` (the ids alone) or ``bytes`` (the ids, of a type that nothing records).
"""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from skewtool.corpus.options import ReadOptions
from skewtool.corpus.shards import read_index, read_shard, sample_offsets, shard_path
from skewtool.corpus.source import Ids, Progress, Source, StreamSource
from skewtool.errors import CorpusError

__all__ = ["files_of_mds", "open_mds"]

_CODES = {8: "<u1", 9: "<i1", 16: "<u2", 17: "<i2", 32: "<u4", 33: "<i4", 64: "<u8", 65: "<i8"}
_COMPRESSIONS = ("zstd", "gz")


@dataclass(frozen=True)
class Columns:
    """The columns of a shard, by ascending name: `sizes` are bytes, None where each sample says."""

    names: tuple[str, ...]
    encodings: tuple[str, ...]
    sizes: tuple[int | None, ...]

    @classmethod
    def of(cls, described: dict[str, Any], path: Path) -> "Columns":
        """From an object of the index. Errors: CorpusError when it is none."""
        parts = [described.get(f"column_{part}") for part in ("names", "encodings", "sizes")]
        if not all(isinstance(part, list) for part in parts) or len({len(part or ()) for part in parts}) != 1:
            raise CorpusError(f"{path} is damaged: column names, encodings and sizes must be lists of one length")
        names, encodings, sizes = (tuple(part or ()) for part in parts)
        if not all(isinstance(each, str) for each in names + encodings):
            raise CorpusError(f"{path} is damaged: column names and encodings must be strings")
        if not all(size is None or (type(size) is int and size >= 0) for size in sizes):
            raise CorpusError(f"{path} is damaged: column sizes must be whole numbers or null")
        return cls(names, encodings, sizes)


@dataclass(frozen=True)
class MdsSource(StreamSource):
    """One shard, held whole in memory while it is read (64 MiB by default, below 4 GiB always)."""

    columns: Columns
    column: int
    num_samples: int
    raw_bytes: int
    hashes: tuple[tuple[str, str], ...]

    def pieces(self, start: int, progress: Progress | None) -> Iterator[tuple[int, Ids]]:
        content = read_shard(self.path, self.raw_bytes)
        _check_hashes(self.path, content, self.hashes)
        offsets = sample_offsets(self.path, content, self.num_samples, self.raw_bytes, gap=self.raw_bytes)
        _check_config(self.path, content[4 * (self.num_samples + 2) : int(offsets[0])], self.columns)
        if progress is not None:
            progress(self.num_bytes)
        position = 0
        for number in range(self.num_samples):
            ids = self._ids_of(memoryview(content)[int(offsets[number]) : int(offsets[number + 1])], number)
            yield position, ids
            position += ids.size

    def _ids_of(self, sample: memoryview, number: int) -> Ids:
        variable = [i for i, size in enumerate(self.columns.sizes) if size is None]
        if len(sample) < 4 * len(variable):
            raise CorpusError(f"{self.path} is damaged: sample {number} is shorter than the sizes of its columns")
        told = iter(np.frombuffer(sample, "<u4", len(variable)).tolist())
        sizes = [next(told) if size is None else size for size in self.columns.sizes]
        if 4 * len(variable) + sum(sizes) != len(sample):
            raise CorpusError(f"{self.path} is damaged: sample {number} has {len(sample)} bytes, its columns need "
                              f"{4 * len(variable) + sum(sizes)}")  # fmt: skip
        begin = 4 * len(variable) + sum(sizes[: self.column])
        return self._decode(sample[begin : begin + sizes[self.column]], number)

    def _decode(self, body: memoryview, number: int) -> Ids:
        """The ids of one token column, copied, since samples lie anywhere."""
        encoding = self.columns.encodings[self.column]
        dtype, size = self.dtype, None
        if encoding == "ndarray":
            dtype = np.dtype(_CODES[body[0]]) if len(body) and body[0] in _CODES else None
            body = body[1:]
        if encoding.startswith("ndarray") and encoding.count(":") < 2:
            body, size = _without_shape(body)
        if dtype is None or len(body) % dtype.itemsize or size not in (None, len(body) // dtype.itemsize):
            raise CorpusError(f"{self.path} is damaged: the ids of sample {number} do not have the shape they tell")
        return np.frombuffer(body, dtype).astype(dtype.newbyteorder("="))


def _without_shape(body: memoryview) -> tuple[memoryview, int]:
    """What follows the shape, and how many values it promises: -1 for a shape that is not whole."""
    if not len(body):
        return body, -1
    dimensions, width = body[0] >> 2, 1 << (body[0] & 3)
    shape = body[1 : 1 + dimensions * width]
    if len(shape) != dimensions * width:
        return body, -1
    size = 1
    for place in range(dimensions):
        size *= int.from_bytes(shape[place * width : (place + 1) * width], "little")
    return body[1 + dimensions * width :], size


def _check_hashes(path: Path, content: bytes, hashes: tuple[tuple[str, str], ...]) -> None:
    for algorithm, digest in hashes:
        if algorithm in hashlib.algorithms_available and not algorithm.startswith("shake"):
            found = hashlib.new(algorithm, content, usedforsecurity=False).hexdigest()
            if found != digest:
                raise CorpusError(f"{path} is damaged: its {algorithm} is {found[:12]}…, the index says {digest[:12]}…")


def _check_config(path: Path, config: bytes, columns: Columns) -> None:
    try:
        described = json.loads(config)
    except (ValueError, RecursionError):
        described = None
    if not isinstance(described, dict) or Columns.of(described, path) != columns:
        raise CorpusError(f"{path} describes other columns than its index; do they belong together?")


def files_of_mds(path: Path) -> list[Path]:
    """The files that an index describes: shards, compressed or not, and the indexes that it was merged from."""
    files = []
    for shard in read_index(path, "shards")["shards"]:
        for part in ("raw_data", "zip_data"):
            described = shard.get(part)
            if isinstance(described, dict) and isinstance(described.get("basename"), str):
                files.append(shard_path(path, described["basename"]))
    return files + [folder / path.name for folder in {file.parent for file in files} if folder != path.parent]


def open_mds(path: Path, name: str, options: ReadOptions) -> list[Source]:
    """Opens the shards of an index.json.

    Errors: CorpusError for a damaged index, missing or incomplete shards, and columns that hold no ids. Pickled columns
    are refused.
    """
    folder = name.rpartition("/")[0]
    return [
        _open_shard(path, f"{folder}/" if folder else "", shard, options)
        for shard in read_index(path, "shards")["shards"]
    ]  # fmt: skip


def _open_shard(index: Path, folder: str, shard: dict[str, Any], options: ReadOptions) -> Source:
    if shard.get("format") != "mds" or shard.get("version") != 2:
        raise CorpusError(f"{index} lists a shard of format {shard.get('format')!r}, version {shard.get('version')!r}; "
                          "known is 'mds', version 2")  # fmt: skip
    columns = Columns.of(shard, index)
    column = columns.names.index(options.column_among(index, columns.names))
    dtype = _dtype_of(columns.encodings[column], columns.names[column], index, options)
    path, raw_bytes, hashes = _file_of(index, shard)
    num_samples = shard.get("samples")
    if type(num_samples) is not int or num_samples < 0:
        raise CorpusError(f"{index} is damaged: {path.name} has {num_samples!r} samples")
    fixed = columns.sizes[column]
    num_tokens = None if fixed is None or dtype is None else num_samples * fixed // dtype.itemsize
    return MdsSource(
        path, f"{folder}{path.relative_to(index.parent).as_posix()}", "mds", dtype, num_tokens, num_samples,
        path.stat().st_size, (), columns, column, num_samples, raw_bytes, hashes, grain=num_tokens or 1,
    )  # fmt: skip


def _dtype_of(encoding: str, column: str, index: Path, options: ReadOptions) -> np.dtype[Any] | None:
    """The type of the ids; None where each sample tells its own."""
    if encoding == "ndarray":
        return None
    if encoding == "bytes":
        if options.dtype is None:
            raise CorpusError(f"{index}: column '{column}' is bytes, whose type is not recorded; pass --dtype "
                              "(MosaicML's own loaders take int64)")  # fmt: skip
        return options.dtype
    kind, _, rest = encoding.partition(":")
    try:
        dtype = np.dtype(rest.partition(":")[0]) if kind == "ndarray" else np.dtype(np.void)
    except (TypeError, ValueError, SyntaxError):
        dtype = np.dtype(np.void)
    if dtype.kind not in "iu":
        raise CorpusError(f"{index}: column '{column}' is encoded as {encoding}, which holds no token ids "
                          "(pickles are never loaded); pass --column for another")  # fmt: skip
    options.check_dtype(index, dtype, f"column '{column}'")
    return dtype.newbyteorder("<")


def _file_of(index: Path, shard: dict[str, Any]) -> tuple[Path, int, tuple[tuple[str, str], ...]]:
    """The file to read of a shard, its size when decompressed, and hashes of its content."""
    raw, compressed = shard.get("raw_data"), shard.get("zip_data")
    if not isinstance(raw, dict) or type(raw.get("bytes")) is not int or not 0 <= raw["bytes"] < 1 << 32:
        raise CorpusError(f"{index} is damaged: a shard without the size of its data")
    path = shard_path(index, raw.get("basename"))
    hashes = raw.get("hashes")
    listed = tuple((str(key), str(value)) for key, value in hashes.items()) if isinstance(hashes, dict) else ()
    if path.is_file() or not isinstance(compressed, dict):
        if not path.is_file():
            raise CorpusError(f"{index} lists {path}, which is not there")
        return path, raw["bytes"], listed
    algorithm = str(shard.get("compression")).partition(":")[0]
    path = shard_path(index, compressed.get("basename"))
    if algorithm not in _COMPRESSIONS:
        raise CorpusError(f"{path} is compressed with {algorithm}; known are zstd and gz: decompress it first")
    if not path.is_file():
        raise CorpusError(f"{index} lists {path}, which is not there")
    return path, raw["bytes"], listed
