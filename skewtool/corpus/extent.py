"""`Extent`: how many tokens a file holds, by what describes it and by its own size, which must agree."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from skewtool.corpus.checks import SIZE, stop_unless_allowed

__all__ = ["Extent", "extent_of"]


@dataclass(frozen=True)
class Extent:
    """Tokens that can be read; notes on, and the number of, those that are promised and missing or there and unexplained."""

    num_tokens: int
    notes: tuple[str, ...] = ()
    dropped: tuple[tuple[str, int], ...] = ()


def extent_of(path: Path, promised: int, dtype: np.dtype[Any], by: str, allow: Collection[str], offset: int = 0) -> Extent:
    """The tokens of `dtype` from byte `offset` to the end of `path`, of which `by` promises a number.

    Errors: CorpusError when the file has another size, unless "size" is allowed: then the whole tokens that are both
    promised and there are read.
    """
    found = path.stat().st_size - offset
    if found == promised * dtype.itemsize:
        return Extent(promised)
    before = f" of data after the {offset} of its header" if offset else ""
    problem = (
        f"{path} has {found} bytes{before}, but {by} promises {promised} {dtype.name} tokens "
        f"({promised * dtype.itemsize} bytes); is the file cut off, or does it belong to something else?"
    )
    stop_unless_allowed(SIZE, problem, allow)
    there = max(found, 0) // dtype.itemsize
    read = max(0, min(there, promised))
    return Extent(read, (f"{path.name}: {by} promises {promised} tokens, {there} are there, {read} were read",),
                  ((SIZE, abs(promised - there)),))  # fmt: skip
