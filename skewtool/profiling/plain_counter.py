"""`PlainCounter`: counts alone, without windows, for when only average load matters; about twice as fast."""

from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.compiled import compiled
from skewtool.corpus import Ids

__all__ = ["PlainCounter"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@compiled
def _count(ids: Any, table: Any) -> None:
    for i in range(ids.size):
        table[ids[i]] += 1


@compiled
def _count_and_hash(ids: Any, table: Any) -> Any:
    total = np.uint64(0)
    for i in range(ids.size):
        table[ids[i]] += 1
        mixed = (np.uint64(ids[i]) + np.uint64(1)) * _GOLDEN
        total += mixed ^ (mixed >> np.uint64(32))
    return total


@compiled
def _digest(table: Any) -> Any:
    total = np.uint64(0)
    for token in range(table.size):
        mixed = (np.uint64(token) + np.uint64(1)) * _GOLDEN
        total += np.uint64(table[token]) * (mixed ^ (mixed >> np.uint64(32)))
    return total


class PlainCounter:
    """Counts of ids below `table_size`; the same calls as a WindowCounter's: `begin`, `add`, `end`, `grow`."""

    def __init__(self, table_size: int) -> None:
        self._counts = np.zeros(table_size, np.int64)
        self._recent = np.zeros(table_size, np.uint32)  # half the cache of 64-bit counts; emptied before it can overflow
        self._tokens_in_recent = 0
        self._digest = 0

    @property
    def table_size(self) -> int:
        """Rows of the table."""
        return self._counts.size

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Occurrences so far: int64 [table_size]."""
        self._empty_recent()
        return self._counts

    def _empty_recent(self) -> None:
        if not self._tokens_in_recent:
            return
        self._digest += int(_digest(self._recent))
        self._counts += self._recent
        self._recent[:] = 0
        self._tokens_in_recent = 0

    def grow(self, table_size: int) -> None:
        """Makes room for ids below `table_size`."""
        more = table_size - self.table_size
        self._counts, self._recent = np.pad(self._counts, (0, more)), np.pad(self._recent, (0, more))

    def begin(self, source_key: int, position: int) -> None:
        """Starts a stretch of a source at token `position`."""
        self._digest = 0

    def add(self, ids: Ids) -> None:
        """Counts ids: uint16, uint32 or uint64 [n], all below the table size (the caller has checked)."""
        if self._tokens_in_recent + ids.size >= 1 << 32:
            self._empty_recent()
        if 8 * ids.size < self.table_size:  # a scan of the table would cost more than the ids
            self._digest += int(_count_and_hash(ids, self._counts))
            return
        self._tokens_in_recent += ids.size
        _count(ids, self._recent)

    def end(self) -> int:
        """Closes the stretch; returns a 64-bit hash of its counts, which adds up over stretches."""
        self._empty_recent()
        return self._digest % 2**64
