"""What some ids of a file say about their type and about what was never written.

A wrong type is silent half of the time: every even number of 16-bit ids is also a number of 32-bit ids.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.corpus.source import ArraySource, Ids

__all__ = ["booleans", "dtype_evidence", "first_ids", "halves_of_wider_ids", "pairs_of_narrower_ids", "run_at_end"]

_LOOKED_AT = 1 << 16
_FEW = 32  # fewer ids than this show nothing


def first_ids(source: ArraySource) -> Ids:
    """Up to 65,536 ids from the beginning of a source, in the stored byte order."""
    return _stored(source.path, source.dtype, min(_LOOKED_AT, source.num_tokens), source.offset)


def _stored(path: Path, dtype: np.dtype[Any], count: int, offset: int) -> Ids:
    """So many values from byte `offset` on, or those that are there."""
    with path.open("rb") as file:
        file.seek(offset)
        content = file.read(count * dtype.itemsize)
    return np.frombuffer(content, dtype, len(content) // dtype.itemsize)


def halves_of_wider_ids(ids: Ids) -> bool:
    """Values that look like the halves of ids twice as wide: every second one is tiny, the others are not.

    The high half of an id below 262,144 is 0 to 3 in 16 bits and 0 in 32. Looks at the first 65,536 values.
    """
    if ids.dtype.itemsize not in (2, 4) or ids.size < 8:
        return False
    pairs = ids[: min(ids.size, _LOOKED_AT) // 2 * 2].reshape(-1, 2)
    most = 3 if ids.dtype.itemsize == 2 else 0
    return bool(((pairs[:, 1] >= 0) & (pairs[:, 1] <= most)).all() and (pairs[:, 0] > 3).any())


def pairs_of_narrower_ids(ids: Ids, vocab_size: int) -> bool:
    """32-bit values that look like two 16-bit ids each: too large as they are, and no half of any is out of range.

    With a vocabulary of more than 65,536 any half is in range; then it takes most of the values to be too large.
    """
    if ids.dtype.itemsize != 4 or not ids.size:
        return False
    unsigned = ids.view(np.uint32)
    if vocab_size <= 1 << 16:
        return bool(ids.view(np.uint16).max() < vocab_size)
    return bool(unsigned.min() >= 1 << 16 or np.count_nonzero(unsigned >= vocab_size) > ids.size // 2)


def booleans(ids: Ids) -> bool:
    """Values all of whose bytes are 0 or 1, not all alike: a mask, not ids."""
    stored = ids.view(np.uint8)
    return bool(ids.dtype.itemsize > 1 and ids.size >= _FEW and stored.max() == 1 and (ids >= 1 << 8).any())


def run_at_end(source: ArraySource) -> tuple[int, int]:
    """The last id of a source and how often it stands there in a row."""
    last, length = 0, 0
    for end in range(source.num_tokens, 0, -_LOOKED_AT):
        begin = max(0, end - _LOOKED_AT)
        ids = _stored(source.path, source.dtype, end - begin, source.offset + begin * source.dtype.itemsize)
        if not ids.size:
            break
        last = int(ids[-1]) if not length else last
        others = np.flatnonzero(ids != last)
        if others.size:
            return last, length + ids.size - 1 - int(others[-1])
        length += ids.size
    return last, length


def dtype_evidence(path: Path, num_bytes: int) -> str:
    """One line on what the ids of a header-less file would be as uint16, uint32 and uint64."""
    head = _stored(path, np.dtype(np.uint8), min(num_bytes, _LOOKED_AT * 4), 0)
    lines = [_as_type(head, num_bytes, np.dtype(name)) for name in ("uint16", "uint32", "uint64")]
    return "; ".join(lines)


def _as_type(head: npt.NDArray[Any], num_bytes: int, dtype: np.dtype[Any]) -> str:
    if num_bytes % dtype.itemsize:
        return f"not {dtype}: {num_bytes} bytes are no multiple of {dtype.itemsize}"
    ids = head[: head.size // dtype.itemsize * dtype.itemsize].view(dtype)
    told = f"as {dtype}: {num_bytes // dtype.itemsize} ids, the first up to {ids.max()}"
    if halves_of_wider_ids(ids):
        told += " and every second one below 4, so rather 32-bit"
    elif dtype.itemsize == 4 and ids.size >= _FEW and ids.max() >= 1 << 24:
        told += ", too large for token ids"
    return told
