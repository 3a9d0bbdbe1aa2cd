"""NumPy's .npy files: integers of one or more dimensions, flattened row by row. Object arrays are never unpickled."""

import math
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy_format

from skewtool.corpus.extent import extent_of
from skewtool.corpus.locations import is_remote
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.source import BLOCK_TOKENS, ArraySource, Ids, Progress, Source, StreamSource
from skewtool.errors import CorpusError

__all__ = ["NpyHeader", "open_npy", "read_npy_header", "stream_npy"]


@dataclass(frozen=True)
class FortranSource(StreamSource):
    """Ids stored column by column: rows are gathered through a memory map, some at a time; those of a remote file in
    memory, all at once."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    def pieces(self, start: int, progress: Progress | None) -> Iterator[tuple[int, Ids]]:
        if is_remote(self.path):
            with self.path.open("rb") as file:
                yield 0, next(stream_npy(file, read_npy_header(file, str(self.path)), str(self.path)))
            return
        try:
            array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError) as error:
            raise CorpusError(f"{self.path} changed after it was opened: {error}") from None
        per_row = math.prod(self.shape[1:])
        rows_at_once = max(1, BLOCK_TOKENS // per_row)
        for first in range(start // per_row, self.shape[0], rows_at_once):
            block = np.ascontiguousarray(array[first : first + rows_at_once], self.dtype.newbyteorder("=")).reshape(-1)
            if progress is not None:
                progress(block.nbytes)
            yield first * per_row, block


def open_npy(path: Path, name: str, options: ReadOptions) -> list[Source]:
    """Opens a .npy file with its header. Errors: CorpusError for other than integers, or a wrong file size."""
    with path.open("rb") as file:
        header = read_npy_header(file, str(path))
    shape, dtype, offset = header.shape, header.dtype, header.offset
    options.check_dtype(path, dtype, "its header")
    extent = extent_of(path, math.prod(shape), dtype, f"its header (shape {shape})", options.allow, offset)
    num_bytes = extent.num_tokens * dtype.itemsize
    if header.fortran_order and len(shape) > 1 and extent.num_tokens:
        if extent.dropped:
            raise CorpusError(f"{path} is stored column by column and not whole; write it again")
        grain = extent.num_tokens if is_remote(path) else 1
        return [FortranSource(path, name, "npy", dtype, extent.num_tokens, None, num_bytes, (), shape, grain=grain)]
    return [ArraySource(
        path, name, "npy", dtype, extent.num_tokens, None, num_bytes, extent.notes, offset=offset, dropped=extent.dropped
    )]  # fmt: skip


@dataclass(frozen=True)
class NpyHeader:
    """What the header of an array says, and the byte at which its values begin."""

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[Any]
    offset: int


def read_npy_header(file: BinaryIO, where: str) -> NpyHeader:
    """Reads the header at the beginning of a stream.

    Errors: CorpusError, beginning with `where`, for a damaged header and for values that are no integers; arrays of
    objects, which are pickles, among them.
    """
    readers = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of headers that Python 2 wrote, and reads them
        try:
            version = npy_format.read_magic(file)
            # Version 3 differs from 2 only in the encoding of field names, and token arrays have none.
            reader = readers.get((2, 0) if version == (3, 0) else version)
            if reader is None:
                raise CorpusError(f"{where} has .npy version {version}; known are 1.0, 2.0 and 3.0")
            shape, fortran_order, dtype = reader(file)
        except CorpusError:
            raise
        except (ValueError, OverflowError, SyntaxError, TypeError, tokenize.TokenError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise CorpusError(f"{where} has a damaged .npy header: {reason}") from None
    if dtype.kind not in "iu":
        raise CorpusError(f"{where} holds {dtype} values; token ids must be integers (arrays of objects are pickles)")
    return NpyHeader(shape, fortran_order, dtype, file.tell())


def stream_npy(file: BinaryIO, header: NpyHeader, where: str) -> Iterator[Ids]:
    """The ids that follow the header in a stream, some at a time; stored column by column, all at once.

    Errors: CorpusError, beginning with `where`, when the stream ends before the array or goes on after it.
    """
    num_tokens = math.prod(header.shape)
    by_columns = header.fortran_order and len(header.shape) > 1
    at_once = num_tokens if by_columns else BLOCK_TOKENS
    done = 0
    while done < num_tokens:
        wanted = min(at_once, num_tokens - done) * header.dtype.itemsize
        content = file.read(wanted)
        if len(content) != wanted:
            raise CorpusError(f"{where} is cut off: it ends after token {done + len(content) // header.dtype.itemsize} of "
                              f"{num_tokens}")  # fmt: skip
        ids = np.frombuffer(content, header.dtype).astype(header.dtype.newbyteorder("="))
        yield ids.reshape(header.shape, order="F").reshape(-1) if by_columns else ids
        done += ids.size
    if file.read(1):
        raise CorpusError(f"{where} goes on after the {num_tokens} values that its header promises")
