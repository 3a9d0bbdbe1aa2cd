"""Maps of every kind for the tests of tables in and out of shards."""

from collections.abc import Callable

import numpy as np
import pytest

from skewtool.sharding import ShardMap, partition

MapsOf = Callable[[int, int], dict[str, ShardMap]]


def _by_hand(vocab_size: int, num_shards: int) -> ShardMap:
    """Strided, padded, with ids 0 and 1 on every shard, 2 on all but one, 5 on even shards and one more on each."""
    homes = ShardMap.from_homes(np.arange(vocab_size) % num_shards, num_shards, pad_to=3)
    wanted = [[0, 1, *[2] * (shard > 0), *[5] * (shard % 2 == 0), 7 + shard % 3] for shard in range(num_shards)]
    copies = np.full((num_shards, 6), -1)
    for shard, ids in enumerate(wanted):
        held = [token for token in ids if token < vocab_size and homes.shard_of[token] != shard]
        copies[shard, : len(held)] = held
    return homes.with_copies(copies)


@pytest.fixture(scope="session")
def maps_of() -> MapsOf:
    """maps_of(vocab_size, num_shards): maps by name, of every strategy, with and without copies and empty slots."""

    def make(vocab_size: int, num_shards: int) -> dict[str, ShardMap]:
        loads = 1000 // np.arange(1, vocab_size + 1)
        maps = {name: partition(loads, num_shards, name) for name in ("contiguous", "strided", "random", "balanced")}
        maps["copies"] = partition(loads, num_shards, extra_rows=2)
        maps["by hand"] = _by_hand(vocab_size, num_shards)
        return maps

    return make
