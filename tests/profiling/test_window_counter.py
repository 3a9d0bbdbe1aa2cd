"""The two counters against their naive twin, for any way of handing over the ids."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool.profiling.plain_counter import PlainCounter
from skewtool.profiling.window_counter import WindowCounter

VOCAB = 12
STREAMS = st.lists(
    st.tuples(st.integers(0, 2**64 - 1), st.lists(st.integers(0, VOCAB - 1), max_size=60)),
    max_size=4,
    unique_by=lambda stream: stream[0],
)
DTYPES = st.sampled_from(["uint16", "uint32", "uint64"])


def add_in_blocks(counter: WindowCounter | PlainCounter, ids: list[int], block: int, dtype: str) -> None:
    for first in range(0, len(ids), block):
        counter.add(np.array(ids[first : first + block], dtype))


@given(streams=STREAMS, length=st.integers(1, 9), sample_size=st.integers(0, 5), block=st.integers(1, 70), dtype=DTYPES)
def test_windows_equal_the_naive_twin(
    streams: list[tuple[int, list[int]]], length: int, sample_size: int, block: int, dtype: str,
    naive_windows: Callable[..., Any], as_lists: Callable[..., Any],
) -> None:  # fmt: skip
    counter = WindowCounter(length, VOCAB, sample_size)
    for source_key, ids in streams:
        counter.begin(source_key, 0)
        add_in_blocks(counter, ids, block, dtype)
        counter.end()
    counts, presence, num_windows, sample = naive_windows(streams, VOCAB, length, sample_size)
    assert counter.counts.tolist() == counts
    assert counter.presence.tolist() == presence
    assert counter.num_windows == num_windows
    assert as_lists(counter.kept()) == sample


@given(ids=st.lists(st.integers(0, VOCAB - 1), max_size=60), length=st.integers(1, 9), cut=st.integers(0, 7))
def test_stretches_add_up_to_the_whole(ids: list[int], length: int, cut: int, as_lists: Callable[..., Any]) -> None:
    whole, parts = WindowCounter(length, VOCAB, 3), WindowCounter(length, VOCAB, 3)
    digests = []
    for counter, bounds in ((whole, [0, len(ids)]), (parts, [0, min(cut * length, len(ids)), len(ids)])):
        digest = 0
        for start, stop in pairwise(bounds):
            counter.begin(99, start)
            add_in_blocks(counter, ids[start:stop], 7, "uint16")
            digest += counter.end()
        digests.append(digest % 2**64)
    assert digests[0] == digests[1]
    assert whole.counts.tolist() == parts.counts.tolist()
    assert whole.presence.tolist() == parts.presence.tolist()
    assert as_lists(whole.kept()) == as_lists(parts.kept())


@given(streams=STREAMS, block=st.integers(1, 70), dtype=DTYPES)
def test_plain_counts_equal_the_naive_twin(
    streams: list[tuple[int, list[int]]], block: int, dtype: str, naive_windows: Callable[..., Any]
) -> None:
    counter = PlainCounter(VOCAB)
    for source_key, ids in streams:
        counter.begin(source_key, 0)
        add_in_blocks(counter, ids, block, dtype)
        counter.end()
    assert counter.counts.tolist() == naive_windows(streams, VOCAB, 1, 0)[0]


@given(ids=st.lists(st.integers(0, 300), min_size=1, max_size=60), block=st.integers(1, 20))
def test_tables_that_grow_count_the_same(ids: list[int], block: int, as_lists: Callable[..., Any]) -> None:
    for make in (lambda size: WindowCounter(8, size, 2), PlainCounter):
        large, small = make(301), make(1)
        for counter in (large, small):
            counter.begin(5, 0)
        for first in range(0, len(ids), block):
            part = np.array(ids[first : first + block], np.uint16)
            large.add(part)
            if int(part.max()) >= small.table_size:
                small.grow(int(part.max()) + 1)
            small.add(part)
        assert large.end() == small.end()
        assert large.counts[: small.table_size].tolist() == small.counts.tolist()
        if isinstance(large, WindowCounter) and isinstance(small, WindowCounter):
            assert as_lists(large.kept()) == as_lists(small.kept())


@pytest.mark.parametrize("length", [65535, 65536, 65537])
def test_one_id_can_fill_a_window_of_any_length(length: int) -> None:
    counter = WindowCounter(length, 3, 2)
    counter.begin(1, 0)
    counter.add(np.full(2 * length + 1, 2, np.uint16))
    counter.end()
    assert (counter.counts.tolist(), counter.presence.tolist()) == ([0, 0, 2 * length + 1], [0, 0, 3])
    assert [(ids.tolist(), counts.tolist()) for _, ids, counts in counter.kept()] == [([2], [length])] * 2


@pytest.mark.parametrize(
    ("one", "other"),
    [([1, 2, 3, 4], [3, 4, 1, 2]), ([1, 2], [1, 1]), ([1, 2], [1, 2, 0]), ([0], [0, 0]), ([1, 2, 1], [1, 2, 2])],
)
def test_digest_tells_contents_and_positions_of_windows_apart(one: list[int], other: list[int]) -> None:
    digests = []
    for ids in (one, other):
        counter = WindowCounter(2, 5, 0)
        counter.begin(1, 0)
        counter.add(np.array(ids, np.uint32))
        digests.append(counter.end())
    assert digests[0] != digests[1]


def test_window_counts_pass_32_bits() -> None:
    counter = WindowCounter(4, 3, 0)
    counter.begin(1, 0)
    counter._totals[1] = 2**32 - 10  # as after so many tokens of one id
    counter._tokens_in_totals = 2**32 - 10
    counter.add(np.ones(100, np.uint32))
    counter.end()
    assert counter.counts.tolist() == [0, 2**32 + 90, 0]
    assert counter.presence.tolist() == [0, 25, 0]


def test_plain_counts_pass_32_bits() -> None:
    counter = PlainCounter(3)
    counter.begin(1, 0)
    counter._recent[1] = counter._tokens_in_recent = 2**32 - 10
    counter.add(np.ones(100, np.uint16))
    counter.end()
    assert counter.counts.tolist() == [0, 2**32 + 90, 0]


def test_nothing_counted_is_nothing() -> None:
    for counter in (WindowCounter(4, 3, 2), PlainCounter(3)):
        counter.begin(1, 0)
        counter.add(np.empty(0, np.uint16))
        assert counter.end() == 0
        assert counter.counts.tolist() == [0, 0, 0]
