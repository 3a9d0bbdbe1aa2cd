"""NumPy's .npz archives: each array of integers, or the one that --column names. Arrays of objects are refused."""

import math
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from skewtool.corpus.npy import NpyHeader, read_npy_header, stream_npy
from skewtool.corpus.options import ID_COLUMNS, ReadOptions
from skewtool.corpus.source import Ids, Progress, StreamSource
from skewtool.errors import CorpusError

__all__ = ["open_npz"]


@dataclass(frozen=True)
class NpzSource(StreamSource):
    """One array of an archive. It is read from its beginning to its end, where zipfile compares the checksum."""

    dtype: np.dtype[Any]
    member: str
    header: NpyHeader

    def pieces(self, start: int, progress: Progress | None) -> Iterator[tuple[int, Ids]]:
        where = f"{self.path}, {self.member}"
        with _archive(self.path) as archive, archive.open(self.member) as file:
            file.read(self.header.offset)
            position = 0
            for ids in stream_npy(file, self.header, where):  # type: ignore[arg-type]
                if progress is not None:
                    progress(ids.nbytes)
                yield position, ids
                position += ids.size


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    """Opened for reading; what is found to be wrong with it, also while the caller reads, is a CorpusError."""
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError, KeyError) as error:
        raise CorpusError(f"{path} cannot be read as a zip archive: {error}") from None


def open_npz(path: Path, name: str, options: ReadOptions) -> list[StreamSource]:
    """Opens the array named by --column, else by one of the usual names, else the only one.

    Errors: CorpusError for archives without arrays (as torch's .pt, which are pickles), for several arrays of other names,
    and for arrays that are damaged or no integers.
    """
    with _archive(path) as archive:
        arrays = {info.filename.removesuffix(".npy"): info for info in archive.infolist() if info.filename.endswith(".npy")}
        if not arrays:
            inside = ", ".join(info.filename for info in archive.infolist()[:3])
            raise CorpusError(f"{path} is a zip archive without .npy arrays (it holds {inside or 'nothing'}); torch's .pt "
                              "files are pickles, which are never loaded: save the ids as .npy")  # fmt: skip
        array = _chosen(path, list(arrays), options)
        with archive.open(arrays[array]) as file:
            header = read_npy_header(file, f"{path}, {array}")  # type: ignore[arg-type]
        promised = header.offset + math.prod(header.shape) * header.dtype.itemsize
        if arrays[array].file_size != promised:
            raise CorpusError(f"{path}, {array} has {arrays[array].file_size} bytes, but its header promises {promised}")
    options.check_dtype(path, header.dtype, f"the header of {array}")
    num_tokens = math.prod(header.shape)
    return [NpzSource(
        path, f"{name}/{array}", "npz", header.dtype, num_tokens, None, num_tokens * header.dtype.itemsize, (),
        arrays[array].filename, header, grain=max(num_tokens, 1),
    )]  # fmt: skip


def _chosen(path: Path, arrays: list[str], options: ReadOptions) -> str:
    if options.column is None and len(arrays) == 1 and not set(arrays) & set(ID_COLUMNS):
        return arrays[0]
    return options.column_among(path, arrays)
