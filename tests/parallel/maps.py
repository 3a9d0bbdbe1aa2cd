"""The maps that tests of sharded tables run under: each strategy, copies, empty slots, and shards of different size."""

import numpy as np

from skewtool.sharding import ShardMap, partition

__all__ = ["REAL_VOCAB", "VOCAB", "maps_of", "uneven_map"]

VOCAB, REAL_VOCAB = 61, 59
"""Divide by nothing; the last two ids are padding."""


def maps_of(num_shards: int, vocab: int = VOCAB, real_vocab: int = REAL_VOCAB) -> dict[str, ShardMap]:
    """One map of each kind, as far as they differ; the lower an id, the more it is asked for."""
    loads = np.where(np.arange(vocab) < real_vocab, 1000 // np.arange(1, vocab + 1), 0)
    strategies = ("contiguous", "strided", "random", "balanced")
    maps = {name: partition(loads, num_shards, name, real_vocab=real_vocab) for name in strategies}
    maps["copies"] = partition(loads, num_shards, extra_rows=6, real_vocab=real_vocab)
    maps["empty slots"] = partition(loads, num_shards, extra_rows=3, real_vocab=real_vocab, pad_to=8)
    maps["uneven"] = uneven_map(num_shards, vocab, real_vocab)
    names = {shard_map: name for name, shard_map in reversed(maps.items())}
    return {name: shard_map for shard_map, name in reversed(names.items())}


def uneven_map(num_shards: int, vocab: int = VOCAB, real_vocab: int = REAL_VOCAB) -> ShardMap:
    """Shard p has about p + 1 shares of the ids, dealt out from the last id down."""
    shares = np.repeat(np.arange(num_shards), np.arange(1, num_shards + 1))
    return ShardMap.from_homes(np.resize(shares, vocab)[::-1].copy(), num_shards, real_vocab=real_vocab)
