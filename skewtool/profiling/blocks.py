"""Blocks of a corpus: up to 32 consecutive ranges of equal bytes, the same whoever counts; and a worker's counts of each.

A block is what one of as many tasks would count (`places.task_range`), so it is known from the corpus and the window lengths
alone. It begins where a window of each length does. A worker has one table of counts that only grows; what it has grown by
when the worker turns to another block is the count of the block that it leaves. So blocks cost one pass over that table at
each turn and nothing while tokens are counted, and whoever reads need not stop at them.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from skewtool.corpus import Corpus, Ids
from skewtool.profiling.places import Place, cuts
from skewtool.profiling.tally import BlockTally, with_rows
from skewtool.profiling.timeline import NUM_FOLLOWED

__all__ = ["BlockCounter", "Blocks", "num_blocks"]

_MOST_BLOCKS = 32
_LEAST_BYTES = 1 << 16  # of a block: fewer tokens would show little but chance


def num_blocks(corpus: Corpus) -> int:
    """32, or fewer of a small corpus, so that each has 64 KiB or more. Some may be empty: not every place can be cut."""
    return min(_MOST_BLOCKS, max(1, corpus.num_bytes // _LEAST_BYTES))


@dataclass(frozen=True)
class Blocks:
    """The places where the blocks of a corpus begin, in order; an empty block begins where the next one does."""

    starts: tuple[Place, ...]

    @classmethod
    def of(cls, corpus: Corpus, windows: Sequence[int]) -> "Blocks":
        """Those of a corpus that is counted with windows of these lengths."""
        count = num_blocks(corpus)
        return cls(tuple(cuts(corpus, windows, range(count), count)))

    def number_of(self, place: Place) -> int:
        """The block that begins at a place or has it inside."""
        return bisect_right(self.starts, place) - 1

    def parts(self, source: int, position: int, ids: Ids) -> Iterator[tuple[int, Ids]]:
        """Ids [n] of a source from token `position` on, cut where blocks begin, each part with its block."""
        begins = {token - position for number, token in self.starts if number == source}
        inside = sorted(place for place in begins if 0 < place < ids.size)
        for first, last in pairwise([0, *inside, ids.size]):
            yield self.number_of((source, position + first)), ids[first:last]


class BlockCounter:
    """What one worker has counted, by block. `block` is where it is now."""

    def __init__(self, vocab_size: int | None) -> None:
        self.block: int | None = None
        self._vocab_size = vocab_size
        self._tallies: dict[int, BlockTally] = {}
        self._before = BlockTally(np.zeros(0, np.int64), 0)

    def turn_to(self, block: int | None, counts: npt.NDArray[np.int64]) -> None:
        """Before the first token of another block is counted; counts int64 [rows] of the worker are those so far."""
        end = counts.size if self._vocab_size is None else self._vocab_size  # a row behind it is no id's
        rows = min(end, NUM_FOLLOWED)
        now = BlockTally(counts[:rows].copy(), int(counts[rows:end].sum()))
        if self.block is not None:
            grown = now.counts - with_rows(self._before.counts, rows)
            known = self._tallies.get(self.block, BlockTally(np.zeros(0, np.int64), 0))
            grown[: known.counts.size] += known.counts
            self._tallies[self.block] = BlockTally(grown, known.others + now.others - self._before.others)
        self.block, self._before = block, now

    def tallies(self, counts: npt.NDArray[np.int64], rows: int) -> dict[int, BlockTally]:
        """Of all blocks, when the worker has counted `counts`; tables end with id rows - 1, or the last that is followed."""
        self.turn_to(self.block, counts)
        rows = min(rows if self._vocab_size is None else self._vocab_size, NUM_FOLLOWED)
        return {
            number: BlockTally(with_rows(tally.counts, rows), tally.others)
            for number, tally in sorted(self._tallies.items())
        }
