"""`Part`: the tally of some ranges of a corpus, with all that is needed to know what it is a part of; `merge_parts`.

Parts of one corpus, counted with the same settings by the same version, add up to its profile when their ranges are the
whole corpus: each byte is then that of a plain run, whoever counted what.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np

from skewtool.corpus.checks import BAD_IDS
from skewtool.errors import CorpusError, ProfileError
from skewtool.profiling.places import Range, joined
from skewtool.profiling.profile import Profile, SourceRow, Window, WindowSample, WindowStatistics
from skewtool.profiling.setup import Setup
from skewtool.profiling.tally import Tally, add_tallies
from skewtool.profiling.timeline import Timeline

__all__ = ["Part", "add_parts", "merge_parts"]


@dataclass(frozen=True, eq=False)
class Part:
    """The tally of `ranges`, in order. A part of a task has one range, which may be empty."""

    setup: Setup
    ranges: tuple[Range, ...]
    tally: Tally

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the part as a safetensors file of its own kind; equal parts give equal bytes."""
        from skewtool.profiling.part_file import save_part

        save_part(self, Path(path))

    @staticmethod
    def load(path: str | PathLike[str]) -> "Part":
        """Reads a part. Errors: FileFormatError when the file is damaged, of another kind or version."""
        from skewtool.profiling.part_file import load_part

        return load_part(Path(path))[0]

    @property
    def in_words(self) -> str:
        """The ranges, as in the names of files: source.token-source.token."""
        return ", ".join(f"{a}.{b}-{c}.{d}" for (a, b), (c, d) in self.ranges) or "nothing"


def merge_parts(parts: Sequence[Part]) -> Profile:
    """The profile of the whole corpus, the same as of one run. A part that is given twice counts once.

    Errors: ProfileError when parts of other corpora, settings or versions are among them, when parts are missing, overlap,
    or differ although they are of the same range; CorpusError when the corpus holds no tokens.
    """
    setup = _setup_of_all(parts)
    chosen = _without_repeats(parts)
    _check_whole(setup, chosen)
    return _profile_of(setup, add_tallies([part.tally for part in chosen], setup.sample_size))


def add_parts(parts: Sequence[Part]) -> Part:
    """Parts of different ranges as one part, in memory of its own: for adding them up as they come.

    Errors: ProfileError when parts of other corpora, settings or versions are among them. `merge_parts` of the sum tells
    whether anything is missing.
    """
    setup = _setup_of_all(parts)
    ranges = joined(each for part in parts for each in part.ranges)
    return Part(setup, ranges, add_tallies([part.tally for part in parts], setup.sample_size))


def _setup_of_all(parts: Sequence[Part]) -> Setup:
    if not parts:
        raise ProfileError("nothing to merge: give at least one part")
    setup = parts[0].setup
    for other in parts[1:]:
        difference = setup.difference(other.setup)
        if difference is not None:
            raise ProfileError(f"cannot merge parts of different {difference}; profile all parts of one corpus alike")
    return setup


def _without_repeats(parts: Iterable[Part]) -> list[Part]:
    by_ranges: dict[tuple[Range, ...], Part] = {}
    for part in parts:
        first = by_ranges.setdefault(part.ranges, part)
        if first is not part and (
            first.tally.sources != part.tally.sources or not np.array_equal(first.tally.counts, part.tally.counts)
        ):
            raise ProfileError(
                f"two parts of the same range {part.in_words} hold different counts: the corpus has changed between them; "
                "profile all parts again"
            )
    return list(by_ranges.values())


def _check_whole(setup: Setup, parts: Iterable[Part]) -> None:
    """Every place of the corpus in exactly one part."""
    reached = setup.first
    for first, last in sorted(each for part in parts for each in part.ranges if each[0] != each[1]):
        if first != reached:
            what = "overlap" if first < reached else "leave a gap"
            raise ProfileError(
                f"the parts {what} between source {min(first, reached)[0]}, token {min(first, reached)[1]} and source "
                f"{max(first, reached)[0]}, token {max(first, reached)[1]}; give the parts of all tasks of one split"
            )
        reached = last
    if reached != setup.last:
        raise ProfileError(
            f"the parts end at source {reached[0]}, token {reached[1]}, but the corpus has {setup.last[0]} sources; give "
            "the parts of all tasks"
        )


def _profile_of(setup: Setup, tally: Tally) -> Profile:
    if not tally.num_tokens:
        named = ", ".join(source.name for source in tally.sources[:3]) or "it has no sources with any"
        raise CorpusError(f"the corpus holds no tokens ({named})")
    vocab_size, dropped, notes = setup.vocab_size, dict(setup.dropped), list(setup.notes)
    num_dropped = 0
    if vocab_size is None:
        vocab_size = tally.counts.size
        notes.append(
            f"the vocabulary size was not given: taken as the highest id plus one, {vocab_size}; a model's table may "
            "have more rows (--vocab-size)"
        )
    else:
        num_dropped = int(tally.counts[vocab_size])
        if num_dropped:
            dropped[BAD_IDS] = num_dropped
            notes.append(f"{num_dropped} ids outside the vocabulary of {vocab_size} were left out")
    rows = [SourceRow(source.name, source.num_tokens, f"{source.digest:016x}") for source in tally.sources]
    return Profile(
        counts=tally.counts[:vocab_size],
        windows=tuple(_kept(window, vocab_size, num_dropped) for window in tally.windows),
        sources=tuple(sorted([*rows, *(SourceRow(name, 0, f"{0:016x}") for name in setup.empty)])),
        sample_size=setup.sample_size,
        seed=setup.seed,
        dropped=dropped,
        notes=tuple(sorted(set(notes))),
        tokenizer=setup.tokenizer,
        timeline=_timeline(tally, vocab_size),
    )


def _timeline(tally: Tally, vocab_size: int) -> Timeline | None:
    """Of the blocks that hold tokens of the vocabulary, if any does."""
    blocks = [block for block in tally.blocks.values() if block.others or block.counts.any()]
    if not blocks:
        return None
    return Timeline.of([block.counts for block in blocks], [block.others for block in blocks], vocab_size)


def _kept(window: WindowStatistics, vocab_size: int, num_dropped: int) -> WindowStatistics:
    """Without the row that stands for dropped tokens."""
    windows = window.sample.windows()
    sample = WindowSample.of(_without(vocab_size, windows)) if num_dropped else window.sample
    return WindowStatistics(window.length, window.num_windows, window.presence[:vocab_size], sample)


def _without(dropped_id: int, windows: Iterable[Window]) -> Iterator[Window]:
    for key, ids, counts in windows:
        yield key, ids[ids != dropped_id], counts[ids != dropped_id]
