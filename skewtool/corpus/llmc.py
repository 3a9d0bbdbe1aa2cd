"""llm.c and modded-nanogpt shards.

Layout (llm.c, dev/data/data_common.py): 256 little-endian int32, of which [0] magic, [1] version, [2] token count; then
the tokens. Magic 20240520, version 1: uint16. Magic 20240801, version 7: uint32.
"""

from pathlib import Path
from typing import Any

import numpy as np

from skewtool.corpus.extent import extent_of
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.source import ArraySource
from skewtool.errors import CorpusError

__all__ = ["open_llmc"]

_HEADER_BYTES = 1024
_KINDS: dict[int, tuple[int, np.dtype[Any]]] = {20240520: (1, np.dtype("<u2")), 20240801: (7, np.dtype("<u4"))}


def open_llmc(path: Path, name: str, options: ReadOptions) -> list[ArraySource]:
    """Opens one llm.c shard. Errors: CorpusError for another magic or version, or a size that is not the header's."""
    num_bytes = path.stat().st_size
    if num_bytes < _HEADER_BYTES:
        raise CorpusError(f"{path} is cut off: {num_bytes} bytes, but an llm.c header alone has {_HEADER_BYTES}")
    with path.open("rb") as file:
        header = np.frombuffer(file.read(_HEADER_BYTES), "<i4")
    magic, version, num_tokens = (int(value) for value in header[:3])
    if magic not in _KINDS:
        raise CorpusError(f"{path} does not begin with an llm.c magic (20240520 or 20240801), but with {magic}")
    expected_version, dtype = _KINDS[magic]
    if version != expected_version:
        raise CorpusError(f"{path} has llm.c version {version}; magic {magic} goes with version {expected_version}")
    if num_tokens < 0:
        raise CorpusError(f"{path} is damaged: its header promises {num_tokens} {dtype.name} tokens")
    options.check_dtype(path, dtype, "its llm.c magic")
    extent = extent_of(path, num_tokens, dtype, "its header", options.allow, _HEADER_BYTES)
    return [ArraySource(
        path, name, "llmc", dtype, extent.num_tokens, None, extent.num_tokens * dtype.itemsize, extent.notes,
        offset=_HEADER_BYTES, dropped=extent.dropped,
    )]  # fmt: skip
