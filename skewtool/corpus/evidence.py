"""What the first ids of a file say about their type, for files that do not record it.

A wrong type is silent half of the time: every even number of 16-bit ids is also a number of 32-bit ids.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.corpus.source import Ids

__all__ = ["dtype_evidence", "halves_of_wider_ids", "pairs_of_narrower_ids"]

_LOOKED_AT = 1 << 16
_FEW = 32  # fewer ids than this show nothing


def halves_of_wider_ids(ids: Ids) -> bool:
    """16-bit values that look like the halves of 32-bit ids: every second one is tiny, the others are not.

    The high half of an id below 262,144 is 0 to 3. Looks at the first 65,536 values.
    """
    if ids.dtype.itemsize != 2 or ids.size < 8:
        return False
    pairs = ids[: min(ids.size, _LOOKED_AT) // 2 * 2].reshape(-1, 2)
    return bool((pairs[:, 1] <= 3).all() and (pairs[:, 0] > 3).any())


def pairs_of_narrower_ids(ids: Ids, vocab_size: int) -> bool:
    """32-bit values that look like two 16-bit ids each: some are out of range, yet no half of any is."""
    if ids.dtype.itemsize != 4 or not ids.size or vocab_size > 1 << 16:
        # With a larger vocabulary any half is in range; then too large ids alone are the evidence.
        return bool(ids.dtype.itemsize == 4 and ids.size and ids.view(np.uint32).min() >= 1 << 16)
    return bool(ids.view(np.uint16).max() < vocab_size)


def dtype_evidence(path: Path, num_bytes: int) -> str:
    """One line on what the ids of a header-less file would be as uint16, uint32 and uint64."""
    head = np.fromfile(path, np.uint8, count=min(num_bytes, _LOOKED_AT * 4))
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
