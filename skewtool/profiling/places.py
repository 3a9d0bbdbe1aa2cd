"""Places and ranges of a corpus: how it is divided among tasks, workers and checkpoints.

A place is (source, token): all before it is the tokens of earlier sources and the first `token` tokens of `source`. Each
place has one name: the end of a source of known size is the beginning of the next. A range lies between two places. Sources
of known size in which reading can start anywhere are cut at multiples of all window lengths, so that every window lies in
one range; others are never cut.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from skewtool.corpus import Corpus, Source
from skewtool.errors import ProfileError

__all__ = ["Place", "Range", "Span", "can_be_cut", "cuts", "gaps", "joined", "num_bytes", "place", "spans", "task_range"]

Place = tuple[int, int]
Range = tuple[Place, Place]


@dataclass(frozen=True)
class Span:
    """Tokens [start, stop) of one source, to the end of the file where stop is None; `within` says the same as places."""

    source: int
    start: int
    stop: int | None
    within: Range


def can_be_cut(source: Source) -> bool:
    """Whether parts of the source can be read, each for itself."""
    return source.seekable and source.num_tokens is not None


def place(corpus: Corpus, source: int, token: int) -> Place:
    """The one name of the place after `token` tokens of a source."""
    for number in range(source, len(corpus.sources)):
        size = corpus.sources[number].num_tokens
        if size is None or token < size:
            return number, token
        token = 0
    return len(corpus.sources), 0


def task_range(corpus: Corpus, windows: Sequence[int], index: int, count: int) -> Range:
    """What task `index` of `count` counts: an equal share of the bytes, as near as the cuts allow; it may be empty.

    The ranges of all tasks follow one another and are the whole corpus. Errors: ProfileError for an index out of range.
    """
    if not 0 <= index < count:
        raise ProfileError(f"the task index must be 0 to the task count minus one, got index {index} and count {count}")
    first, last = cuts(corpus, windows, (index, index + 1), count)
    return first, last


def cuts(corpus: Corpus, windows: Sequence[int], numbers: Iterable[int], count: int) -> list[Place]:
    """Where the shares with these numbers of `count` begin; share `count` would begin at the end of the corpus."""
    ends = list(accumulate(_weight(source) for source in corpus.sources))
    common, total = math.lcm(*windows), ends[-1] if ends else 0
    return [_nearest_cut(corpus, common, ends, total * each // count) for each in numbers]


def _weight(source: Source) -> int:
    return max(1, source.num_bytes)


def _nearest_cut(corpus: Corpus, common: int, ends: Sequence[int], num_bytes: int) -> Place:
    """The cut nearest to the place that so many bytes lie before, when sources end after so many bytes each."""
    number = bisect_right(ends, num_bytes)
    if number == len(ends):
        return number, 0
    source = corpus.sources[number]
    size = _weight(source)
    num_bytes -= ends[number] - size
    if not can_be_cut(source):
        return place(corpus, number + 1, 0) if 2 * num_bytes >= size else place(corpus, number, 0)
    assert source.num_tokens is not None
    steps = (2 * num_bytes * source.num_tokens + size * common) // (2 * size * common)
    return place(corpus, number, steps * common)


def spans(corpus: Corpus, windows: Sequence[int], within: Iterable[Range], span_tokens: int) -> Iterator[Span]:
    """Cuts ranges into spans of about `span_tokens`, at multiples of all window lengths.

    Tokens that are decoded together mostly stay in one span.
    """
    common = math.lcm(*windows)  # 1 without windows
    for first, last in within:
        for number in range(first[0], min(last[0] + 1, len(corpus.sources))):
            source = corpus.sources[number]
            start = first[1] if number == first[0] else 0
            if not can_be_cut(source):
                if number < last[0] and source.num_tokens != 0:
                    yield Span(number, 0, None, ((number, 0), place(corpus, number + 1, 0)))
                continue
            assert source.num_tokens is not None
            stop = last[1] if number == last[0] else source.num_tokens
            grain = 0 if source.grain == 1 else 4 * source.grain
            step = common * max(1, -(-grain // common), span_tokens // common)
            cuts = range(start // step * step + step, stop, step)
            for a, b in pairwise([start, *cuts, stop] if start < stop else []):
                yield Span(number, a, b, (place(corpus, number, a), place(corpus, number, b)))


def joined(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Ranges that do not overlap, in order, those that follow one another as one; empty ranges are left out."""
    together: list[Range] = []
    for first, last in sorted(ranges):
        if together and together[-1][1] == first:
            together[-1] = (together[-1][0], last)
        elif first != last:
            together.append((first, last))
    return tuple(together)


def gaps(within: Range, taken: Iterable[Range]) -> tuple[Range, ...]:
    """What is left of a range without others in it, which do not overlap."""
    left, begin = [], within[0]
    for first, last in joined(taken):
        left.append((begin, first))
        begin = last
    return joined([*left, (begin, within[1])])


def num_bytes(corpus: Corpus, ranges: Iterable[Range]) -> int:
    """About how many bytes reading the ranges reads."""
    total = 0
    for span in spans(corpus, (), ranges, 1 << 62):
        source = corpus.sources[span.source]
        if span.stop is None or not source.num_tokens:
            total += source.num_bytes
        else:
            total += source.num_bytes * (span.stop - span.start) // source.num_tokens
    return total
