"""Blocks: the shares of 32 tasks, whoever counts; and a worker's counts of each."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool.corpus import Corpus
from skewtool.profiling import blocks as blocks_module
from skewtool.profiling.blocks import BlockCounter, Blocks, num_blocks
from skewtool.profiling.places import place, task_range

FILES = st.lists(st.integers(1, 300), min_size=1, max_size=4)


@given(sizes=FILES, windows=st.sampled_from([(), (3,), (4, 6)]), at_once=st.sampled_from([1, 7, 1000]))
def test_parts_lie_in_the_blocks_of_tasks(
    sizes: list[int], windows: tuple[int, ...], at_once: int, corpus_of: Callable[..., Corpus]
) -> None:
    corpus = corpus_of({f"{number}.npy": 1 + np.arange(size) for number, size in enumerate(sizes)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks_module, "_LEAST_BYTES", 1)
        blocks = Blocks.of(corpus, windows)
        number = num_blocks(corpus)
    assert number == min(32, corpus.num_bytes)
    ranges = [task_range(corpus, windows, index, number) for index in range(number)]
    for source, each in enumerate(corpus.sources):
        position = 0
        for ids in each.blocks(block_tokens=at_once):
            for block, part in blocks.parts(source, position, ids):
                assert part.tolist() == list(range(position + 1, position + 1 + part.size))
                first, last = ranges[block]
                assert first <= (source, position)
                assert place(corpus, source, position + part.size) <= last
                position += part.size
        assert position == sizes[source]


@pytest.mark.parametrize(("size", "number"), [(1, 1), (65_535, 1), (65_536, 2), (32 * 32_768 - 1, 31), (1 << 21, 32)])
def test_small_corpora_have_fewer_blocks(size: int, number: int, corpus_of: Callable[..., Corpus]) -> None:
    corpus = corpus_of({"a.npy": np.ones(size)})
    assert num_blocks(corpus) == number


TURNS = st.lists(st.tuples(st.integers(0, 3), st.lists(st.integers(0, 9), max_size=8)), min_size=1, max_size=9)


@given(turns=TURNS, vocab_size=st.sampled_from([None, 9]))
def test_what_the_table_has_grown_by_is_the_counts_of_the_block(turns: list[Any], vocab_size: int | None) -> None:
    """Also when a block is taken up again; the row behind a known vocabulary is no id's."""
    counter = BlockCounter(vocab_size)
    counts = np.zeros(10 if vocab_size else 0, np.int64)
    expected: dict[int, list[int]] = {}
    for block, ids in turns:
        counter.turn_to(block, counts)
        if vocab_size is None:
            counts = np.pad(counts, (0, max([0, *(each + 1 - counts.size for each in ids)])))
        np.add.at(counts, ids, 1)
        expected.setdefault(block, []).extend(each for each in ids if vocab_size is None or each < vocab_size)
    for _ in range(2):  # asked again, it says the same
        found = counter.tallies(counts, 10)
        assert list(found) == sorted(expected)
        for block, tally in found.items():
            assert tally.counts.tolist() == np.bincount(expected[block], minlength=vocab_size or 10).tolist()
            assert tally.others == 0
