"""The replay against loops over every token."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skewtool import ShardMap, partition
from skewtool.profiling import WindowContent
from skewtool.skew.replay import replay

Tokens = list[list[list[int]]]  # [steps][ranks][tokens]


def _content(tokens: list[int]) -> WindowContent:
    ids, counts = np.unique(np.array(tokens, np.int32), return_counts=True)
    return ids.astype(np.int32), counts.astype(np.int32)


def _naive(tokens: Tokens, maps: list[ShardMap], num_shards: int) -> tuple[list[list[list[int]]], list[list[list[int]]]]:
    raw = [[[0] * num_shards for _ in maps] for _ in tokens]
    unique = [[[0] * num_shards for _ in maps] for _ in tokens]
    for step, ranks in enumerate(tokens):
        for layout, shard_map in enumerate(maps):
            for rank in ranks:
                for token in rank:
                    raw[step][layout][int(shard_map.shard_of[token])] += 1
                for token in set(rank):
                    unique[step][layout][int(shard_map.shard_of[token])] += 1
    return raw, unique


@settings(max_examples=60)
@given(st.data())
def test_replay_equals_loops_over_every_token(data: st.DataObject) -> None:
    vocab_size, num_shards = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 6))
    window = st.lists(st.integers(0, vocab_size - 1), max_size=12)
    tokens = data.draw(st.lists(st.lists(window, max_size=num_shards), max_size=5))
    loads = data.draw(st.lists(st.integers(0, 9), min_size=vocab_size, max_size=vocab_size))
    names = data.draw(st.lists(st.sampled_from(["contiguous", "strided", "random", "balanced"]), min_size=1, max_size=3))
    maps = [partition(loads + [0] * extra, num_shards, name) for extra, name in enumerate(names)]
    found = replay([[_content(rank) for rank in step] for step in tokens], maps, num_shards)
    raw, unique = _naive(tokens, maps, num_shards)
    assert found.raw.dtype == found.unique.dtype == np.int64
    assert found.raw.shape == found.unique.shape == (len(tokens), len(maps), num_shards)
    assert found.raw.tolist() == raw
    assert found.unique.tolist() == unique


def test_no_steps_keep_their_shape() -> None:
    found = replay([], [partition([1, 2, 3], 2)], 2)
    assert found.raw.shape == found.unique.shape == (0, 1, 2)


@pytest.mark.parametrize("num_steps", [0, 3])
def test_no_maps_keep_their_shape(num_steps: int) -> None:
    found = replay([[_content([0, 0, 1])]] * num_steps, [], 2)
    assert found.raw.shape == found.unique.shape == (num_steps, 0, 2)


def test_counts_do_not_wrap() -> None:
    window = (np.array([0], np.int32), np.array([2**31 - 1], np.int32))
    found = replay([[window] * 5], [partition([1, 1], 2)], 2)
    assert found.raw.tolist() == [[[5 * (2**31 - 1), 0]]]
    assert found.unique.tolist() == [[[5, 0]]]


def test_steps_may_be_an_iterator() -> None:
    found = replay(([_content([step % 2])] for step in range(4)), [partition([1, 1], 2, "strided")], 2)
    assert found.raw[:, 0].tolist() == [[1, 0], [0, 1], [1, 0], [0, 1]]
