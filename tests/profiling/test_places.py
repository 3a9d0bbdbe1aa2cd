"""Places and ranges: shares and spans are every token once, cut only where a window ends."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool.corpus import Corpus, Ids, Source
from skewtool.corpus.source import BLOCK_TOKENS, Progress
from skewtool.errors import ProfileError
from skewtool.profiling.places import Range, can_be_cut, gaps, joined, num_bytes, place, spans, task_range


@dataclass(frozen=True)
class Whole(Source):
    """A source of which only sizes are asked."""

    def blocks(
        self, start: int = 0, stop: int | None = None, block_tokens: int = BLOCK_TOKENS, progress: Progress | None = None
    ) -> Iterator[Ids]:
        raise NotImplementedError


@dataclass(frozen=True)
class Cut(Whole):
    seekable = True


def source(kind: type[Whole], num_tokens: int | None, bytes_per_token: int, grain: int) -> Whole:
    num_bytes = bytes_per_token * (100 if num_tokens is None else num_tokens)
    return kind(Path("x"), "x", "raw", np.dtype(np.uint16), num_tokens, None, num_bytes, (), grain=grain)


SOURCES = st.builds(
    source, st.sampled_from([Cut, Cut, Whole]), st.one_of(st.none(), st.integers(0, 3), st.integers(0, 500)),
    st.integers(0, 4), st.sampled_from([1, 1, 7]),
)  # fmt: skip
CORPORA = st.lists(SOURCES, min_size=1, max_size=6).map(lambda sources: Corpus(tuple(sources)))
WINDOWS = st.lists(st.integers(1, 12), max_size=2)


def whole(corpus: Corpus) -> Range:
    return place(corpus, 0, 0), (len(corpus.sources), 0)


@given(corpus=CORPORA, windows=WINDOWS, count=st.integers(1, 40))
def test_shares_of_tasks_follow_one_another_and_are_cut_where_windows_end(
    corpus: Corpus, windows: list[int], count: int
) -> None:
    shares = [task_range(corpus, windows, index, count) for index in range(count)]
    reached = whole(corpus)[0]
    for first, last in shares:
        assert first == reached
        assert last >= first
        reached = last
    assert reached == whole(corpus)[1]
    for number, token in {each for share in shares for each in share}:
        assert token % math.lcm(*windows) == 0
        assert token == 0 or can_be_cut(corpus.sources[number])


@given(tokens=st.integers(0, 10**14), windows=WINDOWS, count=st.integers(1, 1000), data=st.data())
def test_shares_of_one_file_are_equal_up_to_a_cut(tokens: int, windows: list[int], count: int, data: st.DataObject) -> None:
    corpus = Corpus((source(Cut, tokens, 2, 1),))
    first, last = task_range(corpus, windows, data.draw(st.integers(0, count - 1)), count)
    begin, end = (token if number == 0 else tokens for number, token in (first, last))
    assert abs((end - begin) - tokens / count) <= math.lcm(*windows) + 1


@given(corpus=CORPORA, windows=WINDOWS, count=st.integers(1, 9), span_tokens=st.sampled_from([1, 20, 1 << 22]))
def test_spans_are_every_token_once_and_say_the_same_as_places(
    corpus: Corpus, windows: list[int], count: int, span_tokens: int
) -> None:
    shares = [task_range(corpus, windows, index, count) for index in range(count)]
    made = [span for share in shares for span in spans(corpus, windows, [share], span_tokens)]
    read: dict[int, list[int]] = {}
    for span in made:
        each = corpus.sources[span.source]
        if can_be_cut(each):
            assert span.stop is not None
            read.setdefault(span.source, []).extend(range(span.start, span.stop))
        else:
            assert (span.start, span.stop) == (0, None)
            read.setdefault(span.source, []).append(-1)
    expected = {
        number: list(range(each.num_tokens or 0)) if can_be_cut(each) else [-1]
        for number, each in enumerate(corpus.sources)
        if each.num_tokens != 0
    }
    assert read == expected
    assert joined(span.within for span in made) == joined([whole(corpus)])
    for share in shares:
        assert joined(span.within for span in spans(corpus, windows, [share], span_tokens)) == joined([share])


@given(corpus=CORPORA, windows=WINDOWS, data=st.data())
def test_what_is_left_of_a_range_and_what_was_taken_are_all_of_it(
    corpus: Corpus, windows: list[int], data: st.DataObject
) -> None:
    all_spans = [span.within for span in spans(corpus, windows, [whole(corpus)], 5)]
    taken = [each for each in all_spans if data.draw(st.booleans())]
    left = gaps(whole(corpus), data.draw(st.permutations(taken)))
    assert joined([*left, *taken]) == joined(all_spans)
    assert joined(span.within for span in spans(corpus, windows, left, 5)) == left
    assert sum(last > first for first, last in left) == len(left)


def test_bytes_of_ranges() -> None:
    corpus = Corpus((source(Cut, 100, 2, 1), source(Whole, None, 3, 1)))
    assert num_bytes(corpus, [((0, 25), (0, 75))]) == 100
    assert num_bytes(corpus, [((0, 50), (2, 0))]) == 400
    assert num_bytes(corpus, []) == 0


@pytest.mark.parametrize(("index", "count"), [(0, 0), (3, 3), (-1, 3)])
def test_a_task_that_is_none_of_them(index: int, count: int) -> None:
    with pytest.raises(ProfileError, match=f"got index {index} and count {count}"):
        task_range(Corpus((source(Cut, 9, 2, 1),)), (), index, count)
