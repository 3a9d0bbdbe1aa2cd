"""Ids without any header (nanoGPT's train.bin, OLMo's and Dolma's so-called .npy): the type must be said.

Layout: bare little-endian integers from the first byte to the last. Nothing in the file tells their width. Beside it may
lie the places of its documents: X.csv.gz with lines ``start,end,…`` in tokens (OLMo, Dolma), or X.index with the ends as
u64 (datatrove).
"""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from skewtool.corpus.checks import SIZE, stop_unless_allowed
from skewtool.corpus.compressed import open_decompressed
from skewtool.corpus.evidence import dtype_evidence
from skewtool.corpus.extent import extent_of
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.source import ArraySource
from skewtool.errors import CorpusError

__all__ = ["document_ends", "open_raw", "places_of_documents"]


def open_raw(path: Path, name: str, options: ReadOptions) -> list[ArraySource]:
    """Opens header-less ids.

    Errors: CorpusError when no dtype is given (with the evidence for each), when it is no integer type, when the file's
    size is no multiple of it, or not what the places of its documents need (unless "size" is allowed).
    """
    num_bytes = path.stat().st_size
    if options.dtype is None and options.tokenizer is not None:
        raise CorpusError(
            f"{path} is neither UTF-8 text nor of a known format; convert text to UTF-8, or pass --dtype if it holds ids"
        )
    places = places_of_documents(path)
    ends = None if places is None else document_ends(places)
    if options.dtype is None:
        raise CorpusError(
            f"{path} has no header that tells the type of its ids; pass --dtype ({dtype_evidence(path, num_bytes)}"
            f"{_width_by(places, ends, num_bytes)})"
        )
    dtype = options.dtype
    if dtype.kind not in "iu":
        raise CorpusError(f"--dtype must be an integer type such as uint16 or uint32, not {dtype}")
    notes: tuple[str, ...] = ()
    num_tokens, trailing = divmod(num_bytes, dtype.itemsize)
    if trailing:
        problem = (
            f"{path} has {num_bytes} bytes, no multiple of the {dtype.itemsize} bytes of {dtype}: {trailing} trailing "
            f"bytes at offset {num_bytes - trailing}; is the file cut off or the dtype another?"
        )
        stop_unless_allowed(SIZE, problem, options.allow)
        notes = (f"{name}: {trailing} trailing bytes were left out",)
    if path.suffix == ".npy":
        notes += (f"{name} is called .npy but has no NumPy header: read as raw {dtype}",)
    dropped: tuple[tuple[str, int], ...] = ((SIZE, 1),) if trailing else ()
    if places is not None and ends is not None and not trailing:
        extent = extent_of(path, int(ends[-1]) if ends.size else 0, dtype, places.name, options.allow)
        num_tokens, notes, dropped = extent.num_tokens, notes + extent.notes, extent.dropped
    num_documents = None if ends is None else int(ends.size)
    return [ArraySource(path, name, "raw", dtype, num_tokens, num_documents, num_tokens * dtype.itemsize, notes,
                        dropped=dropped)]  # fmt: skip


def places_of_documents(path: Path) -> Path | None:
    """The file beside `path` that tells where its documents lie, if there is one."""
    for beside in (path.with_name(f"{path.stem}.csv.gz"), path.with_name(f"{path.name}.index")):
        if beside.is_file() and beside != path:
            return beside
    return None


def document_ends(places: Path) -> npt.NDArray[np.int64]:
    """Where each document ends, in tokens: int64 [documents]. Errors: CorpusError for a damaged file."""
    if places.suffix == ".index":
        if places.stat().st_size % 8:
            raise CorpusError(f"{places} has {places.stat().st_size} bytes, no multiple of the 8 bytes of each end")
        ends = np.frombuffer(places.read_bytes(), "<i8").astype(np.int64)
    else:
        ends = _ends_in_csv(places)
    if (np.diff(ends) < 0).any() or (ends.size and ends[0] < 0):
        first = int(np.argmax(np.diff(ends, prepend=0) < 0))
        raise CorpusError(f"{places} is damaged: document {first} ends at token {ends[first]}, before the one before it")
    return ends


def _ends_in_csv(places: Path) -> npt.NDArray[np.int64]:
    ends: list[int] = []
    with open_decompressed(places) as (lines, _):
        for number, line in enumerate(lines, start=1):
            try:
                start, end = (int(field) for field in line.split(b",", 2)[:2])
            except ValueError:
                raise CorpusError(f"{places}, line {number}: no start,end of a document: {line[:40]!r}") from None
            if start != (ends[-1] if ends else 0) or not -1 < end < 1 << 62:
                raise CorpusError(f"{places}, line {number}: a document from {start} to {end} does not follow the last one")
            ends.append(end)
    return np.array(ends, np.int64)


def _width_by(places: Path | None, ends: npt.NDArray[np.int64] | None, num_bytes: int) -> str:
    if places is None or ends is None or not ends.size or not ends[-1]:
        return ""
    return f"; {places.name} says {ends[-1]} tokens, so {num_bytes / int(ends[-1]):g} bytes each"
