"""NumPy's .npy files: integers of one or more dimensions, flattened row by row. Object arrays are never unpickled."""

import math
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from skewtool.corpus.options import ReadOptions
from skewtool.corpus.source import BLOCK_TOKENS, ArraySource, Ids, Progress, Source
from skewtool.errors import CorpusError

__all__ = ["open_npy"]


@dataclass(frozen=True)
class FortranSource(Source):
    """Ids stored column by column: rows are gathered through a memory map, some at a time."""

    dtype: np.dtype[Any]
    num_tokens: int
    shape: tuple[int, ...] = ()

    def blocks(
        self,
        start: int = 0,
        stop: int | None = None,
        block_tokens: int = BLOCK_TOKENS,
        progress: Progress | None = None,
    ) -> Iterator[Ids]:
        if start or stop is not None:
            raise CorpusError(f"{self.path} is stored column by column and can only be read whole")
        try:
            array = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except (ValueError, OSError) as error:
            raise CorpusError(f"{self.path} changed after it was opened: {error}") from None
        rows_at_once = max(1, block_tokens // math.prod(self.shape[1:]))
        for first in range(0, self.shape[0], rows_at_once):
            block = np.ascontiguousarray(array[first : first + rows_at_once], self.dtype.newbyteorder("=")).reshape(-1)
            if progress is not None:
                progress(block.nbytes)
            yield from (block[i : i + block_tokens] for i in range(0, block.size, block_tokens))


def open_npy(path: Path, name: str, options: ReadOptions) -> Source:
    """Opens a .npy file with its header. Errors: CorpusError for other than integers, or a wrong file size."""
    shape, fortran_order, dtype, offset = _read_header(path)
    if dtype.kind not in "iu":
        raise CorpusError(f"{path} holds {dtype} values; token ids must be integers")
    if options.dtype is not None and options.dtype.newbyteorder("=") != dtype.newbyteorder("="):
        raise CorpusError(f"{path} holds {dtype} by its header, but --dtype says {options.dtype}")
    num_tokens = math.prod(shape)
    num_bytes = num_tokens * dtype.itemsize
    found = path.stat().st_size - offset
    if found != num_bytes:
        raise CorpusError(
            f"{path} has {found} bytes of data, but its header promises {num_bytes} (shape {shape}, {dtype}); "
            "is the file cut off?"
        )
    if fortran_order and len(shape) > 1 and num_tokens:
        return FortranSource(path, name, "npy", dtype, num_tokens, None, num_bytes, (), shape=shape)
    return ArraySource(path, name, "npy", dtype, num_tokens, None, num_bytes, (), offset=offset)


def _read_header(path: Path) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    readers = {(1, 0): npy_format.read_array_header_1_0, (2, 0): npy_format.read_array_header_2_0}
    with path.open("rb") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy warns of headers that Python 2 wrote, and reads them
        try:
            version = npy_format.read_magic(file)
            # Version 3 differs from 2 only in the encoding of field names, and token arrays have none.
            reader = readers.get((2, 0) if version == (3, 0) else version)
            if reader is None:
                raise CorpusError(f"{path} has .npy version {version}; known are 1.0, 2.0 and 3.0")
            shape, fortran_order, dtype = reader(file)
        except CorpusError:
            raise
        except (ValueError, OverflowError, SyntaxError, TypeError, tokenize.TokenError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise CorpusError(f"{path} has a damaged .npy header: {reason}") from None
        return shape, fortran_order, dtype, file.tell()
