"""`Corpus`: the sources of one corpus in a fixed order, and what is known of them together."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skewtool.corpus.source import BLOCK_TOKENS, Ids, Section, Source
from skewtool.errors import CorpusError

__all__ = ["Corpus"]


@dataclass(frozen=True)
class Corpus:
    """Sources in order of names, those that one file describes in its order. `empty_files` and `ignored_files` were found
    beside them and hold no tokens of it; `left_out` are sources that a check refuses, by its name."""

    sources: tuple[Source, ...]
    empty_files: tuple[str, ...] = ()
    ignored_files: tuple[str, ...] = ()
    left_out: tuple[tuple[str, Source], ...] = ()

    @property
    def format(self) -> str:
        """The formats found, joined by "+"."""
        return "+".join(sorted({source.format for source in self.sources}))

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """The stored type that all sources share, else None."""
        dtypes = {source.dtype for source in self.sources}
        return dtypes.pop() if len(dtypes) == 1 else None

    @property
    def num_tokens(self) -> int | None:
        """Tokens in all sources, or None when only tokenizing would tell."""
        return _sum([source.num_tokens for source in self.sources])

    @property
    def num_documents(self) -> int | None:
        """Documents in all sources, or None where the format does not record them."""
        return _sum([source.num_documents for source in self.sources])

    @property
    def num_bytes(self) -> int:
        """Bytes that reading everything reads."""
        return sum(source.num_bytes for source in self.sources)

    @property
    def files(self) -> tuple[str, ...]:
        """The path of each source."""
        return tuple(str(source.path) for source in self.sources)

    @property
    def dropped(self) -> dict[str, int]:
        """Tokens that are left out, by the name of the check that was allowed."""
        total: Counter[str] = Counter()
        for source in self.sources:
            total.update(dict(source.dropped))
        for check, source in self.left_out:
            total[check] += source.num_tokens or 0
        return dict(sorted(total.items()))

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user should know before trusting the counts."""
        notes = [f"empty file, nothing counted: {name}" for name in self.empty_files]
        if self.ignored_files:
            named = ", ".join(self.ignored_files[:3]) + (", …" if len(self.ignored_files) > 3 else "")
            notes.append(f"not read as tokens ({len(self.ignored_files)} files): {named}")
        notes += [f"left out by --allow {check}: {source.name}" for check, source in self.left_out]
        return (*notes, *(note for source in self.sources for note in source.notes))

    def blocks(self, block_tokens: int = BLOCK_TOKENS) -> Iterator[Ids]:
        """All ids, source by source, as arrays of at most `block_tokens`."""
        for source in self.sources:
            yield from source.blocks(block_tokens=block_tokens)

    def part(self, start: float, stop: float) -> "Corpus":
        """The tokens between two fractions (0 to 1) of the whole, to build on one part and judge on another.

        Errors: CorpusError when start and stop are not in order, when a source cannot be cut, or nothing is left.
        """
        if not 0 <= start < stop <= 1:
            raise CorpusError(f"a part needs 0 <= start < stop <= 1, got {start:g} to {stop:g}")
        if self.num_tokens is None or not all(source.seekable for source in self.sources):
            raise CorpusError(
                f"this corpus ({self.format}) cannot be cut into parts: only reading it all tells how many tokens it has"
            )
        first, last = round(start * self.num_tokens), round(stop * self.num_tokens)
        parts, begin = [], 0
        for source in self.sources:
            assert source.num_tokens is not None
            low, high = max(first - begin, 0), min(last - begin, source.num_tokens)
            if low < high:
                parts.append(source if high - low == source.num_tokens else Section.of(source, low, high))
            begin += source.num_tokens
        if not parts:
            raise CorpusError(f"no token lies between {start:.3%} and {stop:.3%} of {self.num_tokens} tokens")
        return replace(self, sources=tuple(parts))


def _sum(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
