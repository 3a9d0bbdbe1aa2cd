"""llm.c and modded-nanogpt shards.

Layout (llm.c, dev/data/data_common.py): 256 little-endian int32, of which [0] magic, [1] version, [2] token count; then
the tokens. Magic 20240520, version 1: uint16. Magic 20240801, version 7: uint32.
"""

from pathlib import Path
from typing import Any

import numpy as np

from skewtool.corpus.evidence import halves_of_wider_ids
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.source import ArraySource
from skewtool.errors import CorpusError

__all__ = ["open_llmc"]

_HEADER_BYTES = 1024
_KINDS: dict[int, tuple[int, np.dtype[Any]]] = {20240520: (1, np.dtype("<u2")), 20240801: (7, np.dtype("<u4"))}


def open_llmc(path: Path, name: str, options: ReadOptions) -> ArraySource:
    """Opens one llm.c shard. Errors: CorpusError for another magic or version, or a size that is not the header's."""
    num_bytes = path.stat().st_size
    header = np.fromfile(path, "<i4", count=_HEADER_BYTES // 4)
    if num_bytes < _HEADER_BYTES:
        raise CorpusError(f"{path} is cut off: {num_bytes} bytes, but an llm.c header alone has {_HEADER_BYTES}")
    magic, version, num_tokens = (int(value) for value in header[:3])
    if magic not in _KINDS:
        raise CorpusError(f"{path} does not begin with an llm.c magic (20240520 or 20240801), but with {magic}")
    expected_version, dtype = _KINDS[magic]
    if version != expected_version:
        raise CorpusError(f"{path} has llm.c version {version}; magic {magic} goes with version {expected_version}")
    if num_tokens < 0 or num_bytes != _HEADER_BYTES + num_tokens * dtype.itemsize:
        raise CorpusError(
            f"{path} has {num_bytes} bytes, but its header promises {num_tokens} {dtype.name} tokens after "
            f"{_HEADER_BYTES} bytes: {_HEADER_BYTES + num_tokens * dtype.itemsize}; is the file cut off?"
        )
    if options.dtype is not None and options.dtype != dtype:
        raise CorpusError(f"{path} holds {dtype.name} by its llm.c magic, but --dtype says {options.dtype}")
    notes: tuple[str, ...] = ()
    if halves_of_wider_ids(np.fromfile(path, dtype, count=1 << 16, offset=_HEADER_BYTES)):
        notes = (f"{name}: every second id is below 4: was a uint32 array written under the uint16 magic?",)
    return ArraySource(path, name, "llmc", dtype, num_tokens, None, num_tokens * dtype.itemsize, notes, offset=_HEADER_BYTES)
