"""Shards of MDS and litdata: a count, offsets, then the samples; described together by an index.json.

Layout of a shard: u32 n; u32 offsets[n + 1], absolute, the first where the samples begin and the last the file's size.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.corpus.compressed import open_decompressed
from skewtool.errors import CorpusError

__all__ = ["read_index", "read_shard", "sample_offsets", "shard_path"]


def read_index(path: Path, key: str) -> dict[str, Any]:
    """The JSON object in `path`, whose `key` is a list of objects. Errors: CorpusError for anything else."""
    content = path.read_bytes()
    try:
        index = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path} is damaged: no JSON ({error})") from None
    listed = index.get(key) if isinstance(index, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise CorpusError(f"{path} is damaged: '{key}' must be a list of objects")
    assert isinstance(index, dict)
    return index


def shard_path(index: Path, name: object) -> Path:
    """The path of a file that an index names, which must lie below the index."""
    if not isinstance(name, str) or not name or name.startswith("/") or ".." in name.split("/"):
        raise CorpusError(f"{index} is damaged: it names the file {name!r}; files must lie below the index")
    return index.parent / name


def read_shard(path: Path, num_bytes: int) -> bytes:
    """The whole shard, decompressed. Errors: CorpusError when it does not have `num_bytes`."""
    with open_decompressed(path) as (stream, _):
        content = stream.read(num_bytes + 1)  # not more, whatever a damaged file may expand to
    if len(content) != num_bytes:
        more = "more than " if len(content) > num_bytes else ""
        raise CorpusError(
            f"{path} holds {more}{min(len(content), num_bytes)} bytes, but its index promises {num_bytes}; is it cut off?"
        )
    return content


def sample_offsets(path: Path, content: bytes, num_samples: int, num_bytes: int, gap: int = 0) -> npt.NDArray[np.int64]:
    """Checked offsets, int64 [samples + 1], from the beginning of a shard with `num_bytes` in all.

    Samples begin right after the offsets, or up to `gap` bytes later. Errors: CorpusError when the count is not the
    index's, or the offsets do not run from the header to the end of the file.
    """
    counted = int.from_bytes(content[:4], "little")
    if counted != num_samples:
        raise CorpusError(f"{path} holds {counted} samples, but its index promises {num_samples}")
    header = 4 * (num_samples + 2)
    if len(content) < header:
        raise CorpusError(f"{path} is cut off: {len(content)} bytes are less than its {header} bytes of offsets")
    offsets = np.frombuffer(content, "<u4", num_samples + 1, 4).astype(np.int64)
    if not header <= offsets[0] <= header + gap or offsets[-1] != num_bytes or (np.diff(offsets) < 0).any():
        raise CorpusError(
            f"{path} is damaged: its offsets must ascend from {header} to the {num_bytes} bytes of the file, but go from "
            f"{offsets[0]} to {offsets[-1]}"
        )
    return offsets
