"""`Tally`: what counting some ranges of a corpus has given, before it is known whether they are all of it.

Tables have a row for each id of the vocabulary and one more, for ids outside it where these are allowed; without a known
vocabulary they end with the highest id met. Sums are integers and samples are chosen by key and content, so any grouping of
the same windows adds up to the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skewtool.profiling.profile import WindowSample, WindowStatistics

__all__ = ["BlockTally", "SourceTally", "Tally", "add_tallies", "with_rows"]


@dataclass(frozen=True, order=True)
class SourceTally:
    """The counted tokens of one source, by its number in the corpus, and the 64-bit digest of their windows."""

    number: int
    name: str
    num_tokens: int
    digest: int


@dataclass(frozen=True, eq=False)
class BlockTally:
    """One block of the corpus: counts int64 of the ids that are followed, and how many tokens of `others` it has."""

    counts: npt.NDArray[np.int64]
    others: int


@dataclass(frozen=True, eq=False)
class Tally:
    """counts int64 [rows]; `windows` for each window length, presence int64 [rows] as well; `sources` by number; `blocks`
    that were met, by number (see `skewtool.profiling.blocks`), their tables of one length."""

    counts: npt.NDArray[np.int64]
    windows: tuple[WindowStatistics, ...]
    sources: tuple[SourceTally, ...]
    blocks: Mapping[int, BlockTally]

    @property
    def num_tokens(self) -> int:
        """Tokens that were read, those outside the vocabulary among them."""
        return sum(source.num_tokens for source in self.sources)


def add_tallies(tallies: Sequence[Tally], sample_size: int) -> Tally:
    """The tally of all ranges together; at least one is needed, and all have the same window lengths."""
    rows = max(tally.counts.size for tally in tallies)
    return Tally(
        counts=_sum([tally.counts for tally in tallies], rows),
        windows=tuple(_add_windows(each, rows, sample_size) for each in zip(*(t.windows for t in tallies), strict=True)),
        sources=_add_sources(tallies),
        blocks=_add_blocks(tallies),
    )


def with_rows(table: npt.NDArray[np.int64], rows: int) -> npt.NDArray[np.int64]:
    """The table with so many rows: zeros behind its own, or without its last ones."""
    return table[:rows] if rows <= table.size else np.pad(table, (0, rows - table.size))


def _sum(tables: Sequence[npt.NDArray[np.int64]], rows: int) -> npt.NDArray[np.int64]:
    total = np.zeros(rows, np.int64)
    for table in tables:
        total[: table.size] += table
    return total


def _add_windows(windows: Sequence[WindowStatistics], rows: int, sample_size: int) -> WindowStatistics:
    return WindowStatistics(
        length=windows[0].length,
        num_windows=sum(each.num_windows for each in windows),
        presence=_sum([each.presence for each in windows], rows),
        sample=WindowSample.of((window for each in windows for window in each.sample.windows()), sample_size),
    )


def _add_sources(tallies: Sequence[Tally]) -> tuple[SourceTally, ...]:
    total: dict[int, SourceTally] = {}
    for each in (source for tally in tallies for source in tally.sources):
        before = total.get(each.number, SourceTally(each.number, each.name, 0, 0))
        total[each.number] = SourceTally(
            each.number, each.name, before.num_tokens + each.num_tokens, (before.digest + each.digest) % 2**64
        )
    return tuple(sorted(total.values()))


def _add_blocks(tallies: Sequence[Tally]) -> dict[int, BlockTally]:
    rows = max((block.counts.size for tally in tallies for block in tally.blocks.values()), default=0)
    together: dict[int, list[BlockTally]] = {}
    for tally in tallies:
        for number, block in tally.blocks.items():
            together.setdefault(number, []).append(block)
    return {
        number: BlockTally(_sum([block.counts for block in blocks], rows), sum(block.others for block in blocks))
        for number, blocks in sorted(together.items())
    }
