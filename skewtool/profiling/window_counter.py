"""`WindowCounter`: counts, window presence, digest and sample for one window length, in one compiled pass.

Each window is counted in a small table (`in_window`, 16 bits per id, so that 128k ids fit the second-level cache) while
the ids met for the first time are written down (`touched`); when the window is full only these are added to the totals
and cleared. So the work per window is proportional to its tokens, not to the vocabulary. The totals hold presence in
the upper and the count in the lower 32 bits, one memory access for both, and are emptied into 64-bit tables in time.

The sample is the k whole windows with the smallest keys (`window_keys`), which makes it independent of how the corpus was
split and who counted which part.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.compiled import compiled
from skewtool.corpus import Ids
from skewtool.profiling.profile import Window, in_sample_order
from skewtool.profiling.window_keys import GOLDEN, LARGEST_KEY, mix, window_key

__all__ = ["WindowCounter"]

_32 = np.uint64(32)
_ONE_WINDOW = np.uint64(1 << 32)
_LOW = np.uint64((1 << 32) - 1)

# Places in the state array of a counter.
_FILLED, _DISTINCT, _POSITION, _SAMPLED = 0, 1, 2, 3


@compiled
def _close(distinct: Any, in_window: Any, touched: Any, position: Any, totals: Any, digest: Any) -> None:
    """Adds a finished window to the totals and clears it. The digest sums a hash of each window's position and content."""
    content = np.uint64(0)
    for i in range(distinct):
        token = touched[i]
        count = np.uint64(in_window[token])
        in_window[token] = 0
        totals[token] += _ONE_WINDOW + count
        mixed = ((np.uint64(token) << _32) + count) * GOLDEN
        content += mixed ^ (mixed >> _32)
    digest[0] += mix(content ^ mix(np.uint64(position) + GOLDEN))


@compiled
def _empty(totals: Any, counts: Any, presence: Any) -> None:
    """Moves the two halves of `totals` to `counts` and `presence`."""
    for token in range(totals.size):
        total = totals[token]
        if total != 0:
            counts[token] += np.int64(total & _LOW)
            presence[token] += np.int64(total >> _32)
            totals[token] = 0


@compiled
def _advance(
    ids: Any, first: Any, in_window: Any, touched: Any, state: Any, window: Any,
    source_key: Any, threshold: Any, totals: Any, digest: Any, sampled: Any,
) -> Any:  # fmt: skip
    """Counts ids[first:]; returns where it stopped: at the end, or after a window whose key is at most `threshold`.

    In the second case state[_SAMPLED] is the number of distinct ids of that window; `sampled` (uint32 [2, window]) holds
    them and their counts, and state[_POSITION] is already that of the next window.
    """
    state[_SAMPLED] = 0
    while first < ids.size:
        block = ids[first : first + window - state[_FILLED]]
        distinct = np.uintp(state[_DISTINCT])
        for i in range(block.size):
            token = block[i]
            before = in_window[token]
            touched[distinct] = token
            distinct += np.uintp(before == 0)  # no branch: whether a token is new cannot be predicted
            in_window[token] = before + 1
        first += block.size
        state[_FILLED] += block.size
        state[_DISTINCT] = distinct
        if state[_FILLED] == window:
            wanted = window_key(source_key, state[_POSITION]) <= threshold
            if wanted:
                for i in range(state[_DISTINCT]):
                    sampled[0, i] = touched[i]
                    sampled[1, i] = in_window[touched[i]]
            _close(state[_DISTINCT], in_window, touched, state[_POSITION], totals, digest)
            state[_POSITION] += window
            state[_FILLED] = 0
            state[_DISTINCT] = 0
            if wanted:
                state[_SAMPLED] = np.int64(distinct)
                break
    return first


class WindowCounter:
    """Statistics of windows of `length` tokens over ids below `table_size`.

    Call `begin` for each contiguous stretch of a source, which must start at a multiple of `length`; `add` its ids in
    order; and `end`, which closes a shorter window at the end of a source. `largest_key`: windows with larger keys are
    known not to be in the sample.
    """

    def __init__(self, length: int, table_size: int, sample_size: int, largest_key: np.uint64 = LARGEST_KEY) -> None:
        self.length = length
        self.num_windows = 0
        self._counts = np.zeros(table_size, np.int64)
        self._presence = np.zeros(table_size, np.int64)
        self._totals = np.zeros(table_size, np.uint64)
        self._tokens_in_totals = 0
        self._in_window = np.zeros(table_size, np.uint16 if length < 1 << 16 else np.uint32)
        self._touched = np.empty(length + 1, np.uint32)
        self._sampled = np.empty((2, length), np.uint32)
        self._state = np.zeros(4, np.int64)
        self._digest = np.zeros(1, np.uint64)
        self._sample_size = sample_size
        self._threshold = largest_key if sample_size else np.uint64(0)
        self._source_key = np.uint64(0)
        self._kept: list[Window] = []

    @property
    def table_size(self) -> int:
        """Rows of the tables."""
        return self._counts.size

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Occurrences so far: int64 [table_size]."""
        self._empty_totals()
        return self._counts

    @property
    def presence(self) -> npt.NDArray[np.int64]:
        """Closed windows that hold the id, so far: int64 [table_size]."""
        self._empty_totals()
        return self._presence

    def _empty_totals(self) -> None:
        _empty(self._totals, self._counts, self._presence)
        self._tokens_in_totals = 0

    def grow(self, table_size: int) -> None:
        """Makes room for ids below `table_size`."""
        more = table_size - self.table_size
        self._counts, self._presence, self._totals, self._in_window = (
            np.pad(table, (0, more)) for table in (self._counts, self._presence, self._totals, self._in_window)
        )

    def begin(self, source_key: int, position: int) -> None:
        """Starts a stretch of the source whose 64-bit key is `source_key` at token `position`."""
        self._source_key = np.uint64(source_key)
        self._state[:] = 0
        self._state[_POSITION] = position
        self._digest[0] = 0

    def add(self, ids: Ids) -> None:
        """Counts ids: uint16, uint32 or uint64 [n], all below the table size (the caller has checked)."""
        self._tokens_in_totals += ids.size
        if self._tokens_in_totals + self.length >= 1 << 32:  # a count could no longer fit its 32 bits
            self._empty_totals()
            self._tokens_in_totals = ids.size
        done = 0
        while done < ids.size:
            before = int(self._state[_POSITION])
            done = _advance(
                ids, done, self._in_window, self._touched, self._state, self.length, self._source_key,
                self._threshold, self._totals, self._digest, self._sampled,
            )  # fmt: skip
            self.num_windows += (int(self._state[_POSITION]) - before) // self.length
            if self._state[_SAMPLED]:
                self._keep(int(self._state[_POSITION]) - self.length, int(self._state[_SAMPLED]))

    def end(self) -> int:
        """Closes the stretch, a shorter last window included; returns its 64-bit digest, which adds up over stretches."""
        if self._state[_FILLED]:
            _close(
                self._state[_DISTINCT], self._in_window, self._touched, self._state[_POSITION],
                self._totals, self._digest,
            )  # fmt: skip
            self.num_windows += 1
        return int(self._digest[0])

    def _keep(self, position: int, distinct: int) -> None:
        key = int(window_key(self._source_key, position))
        self._kept.append((key, *self._sampled[:, :distinct].astype(np.int32)))
        if len(self._kept) >= 2 * self._sample_size:
            self._prune()

    def _prune(self) -> None:
        self._kept = in_sample_order(self._kept)
        del self._kept[self._sample_size :]
        if self._kept and len(self._kept) == self._sample_size:
            self._threshold = np.uint64(self._kept[-1][0])

    def kept(self) -> list[Window]:
        """The sampled windows so far: (key, ids, counts) of those with the smallest keys."""
        self._prune()
        return self._kept
