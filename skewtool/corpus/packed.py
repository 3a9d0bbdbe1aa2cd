"""lit-gpt's and TinyLlama's packed datasets.

Layout (lit_gpt/packed_dataset.py): ``LITPKDS``; u64 version 1; u8 type code; u64 tokens in the file; then the tokens. The
last file of a dataset is usually filled up with a separator.
"""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np

from skewtool.corpus.evidence import run_at_end
from skewtool.corpus.extent import extent_of
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.source import ArraySource
from skewtool.errors import CorpusError

__all__ = ["open_packed"]

_HEADER = struct.Struct("<7sQBQ")
_DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2"}
_FILLED = 64  # so many equal ids at the end are no text


def open_packed(path: Path, name: str, options: ReadOptions) -> list[ArraySource]:
    """Opens one packed file. Errors: CorpusError for another version, no integer type, or a size that the header denies."""
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
    if len(head) < _HEADER.size:
        raise CorpusError(f"{path} is cut off: {len(head)} bytes, but the header of a packed dataset has {_HEADER.size}")
    _, version, code, num_tokens = _HEADER.unpack(head)
    if version != 1:
        raise CorpusError(f"{path} has version {version} of the packed format; known is 1")
    if code not in _DTYPES:
        raise CorpusError(f"{path} has type code {code}; token ids must be integers ({sorted(_DTYPES)})")
    dtype = np.dtype(_DTYPES[code])
    options.check_dtype(path, dtype, "its header")
    extent = extent_of(path, num_tokens, dtype, "its header", options.allow, _HEADER.size)
    source = ArraySource(
        path, name, "packed", dtype, extent.num_tokens, None, extent.num_tokens * dtype.itemsize, extent.notes,
        offset=_HEADER.size, dropped=extent.dropped,
    )  # fmt: skip
    token, length = run_at_end(source)
    if length < _FILLED or token == 0:  # zeros are a check of their own
        return [source]
    note = f"{name}: ends with {length} times id {token}, with which the last file is filled up; they are counted"
    return [replace(source, notes=(*source.notes, note))]
