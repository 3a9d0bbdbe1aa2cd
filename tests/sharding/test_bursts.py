"""Ids that burst together are kept apart, without loss on average."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from skewtool.profiling import Profile
from skewtool.sharding import assess, partition
from skewtool.sharding.bursts import Bursts

ProfileOf = Callable[..., Profile]

NUM_SHARDS, TOPICS = 4, 20


@pytest.fixture(scope="module")
def topics() -> npt.NDArray[np.int64]:
    """ids [20, 4] of 20 topics, scattered over a vocabulary of 80."""
    return np.random.default_rng(3).permutation(TOPICS * NUM_SHARDS).reshape(TOPICS, NUM_SHARDS)


@pytest.fixture(scope="module")
def profile(profile_of: ProfileOf, topics: npt.NDArray[np.int64]) -> Profile:
    """Windows of 8 tokens, each of one topic, all topics equally often: every id has the same load."""
    windows = [np.tile(topics[turn % TOPICS], 2) for turn in range(5 * TOPICS)]
    return profile_of(np.concatenate(windows), topics.size, windows=(8,), sample_size=len(windows))


def _most_of_a_topic(shard_of: npt.NDArray[np.int32], topics: npt.NDArray[np.int64]) -> int:
    """The most ids of one topic that share a shard."""
    return max(int(np.bincount(shard_of[ids]).max()) for ids in topics)


def test_each_topic_is_spread_over_all_shards(profile: Profile, topics: npt.NDArray[np.int64]) -> None:
    apart = partition(profile, NUM_SHARDS)
    assert _most_of_a_topic(apart.shard_of, topics) == 1
    assert assess(profile.window(8).presence, apart).gap == 0.0
    by_load_alone = partition(profile.window(8).presence, NUM_SHARDS)
    assert _most_of_a_topic(by_load_alone.shard_of, topics) > 1


def test_windows_of_an_id_are_those_that_hold_it(profile: Profile) -> None:
    statistics = profile.window(8)
    bursts = Bursts.of(statistics, NUM_SHARDS)
    assert bursts is not None
    for token in range(profile.vocab_size):
        held = bursts.window[bursts.bounds[token] : bursts.bounds[token + 1]]
        expected = [k for k, (_, ids, _) in enumerate(statistics.sample.windows()) if token in ids]
        assert held.tolist() == expected


def test_a_sample_smaller_than_the_shards_shows_nothing(profile: Profile) -> None:
    assert Bursts.of(profile.window(8), 101) is None
    assert Bursts.of(profile.window(8), NUM_SHARDS, most_windows=3) is None
