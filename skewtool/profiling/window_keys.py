"""Keys of windows: a seeded hash of (source, position). The sample is the whole windows with the smallest keys.

Keys do not depend on what a window holds, so where sizes of sources are known it is known before counting how large the
largest key of the sample can be: no worker keeps a window that another would crowd out.
"""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.compiled import compiled
from skewtool.corpus import Corpus

__all__ = ["GOLDEN", "LARGEST_KEY", "largest_sampled_key", "mix", "source_key", "window_key"]

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
LARGEST_KEY = np.uint64(2**64 - 1)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_27, _30, _31 = np.uint64(27), np.uint64(30), np.uint64(31)
_KEYS_AT_ONCE = 1 << 20


def source_key(name: str, seed: int) -> int:
    """The 64-bit key of a source, by its name."""
    digest = hashlib.blake2b(name.encode(), digest_size=8, key=seed.to_bytes(8, "little", signed=True)).digest()
    return int.from_bytes(digest, "little")


@compiled
def mix(value: Any) -> Any:
    """splitmix64's finalizer (Steele, Lea, Flood 2014): a bijection of 64 bits."""
    value = (value ^ (value >> _30)) * _MIX_1
    value = (value ^ (value >> _27)) * _MIX_2
    return value ^ (value >> _31)


@compiled
def window_key(of_source: Any, position: Any) -> Any:
    """uint64, of the window that begins at token `position` of the source with the key `of_source` (uint64)."""
    return mix(of_source + np.uint64(position) * GOLDEN)


@compiled
def _keys_up_to(of_source: Any, first: Any, last: Any, length: Any, limit: Any, keys: Any) -> Any:
    """Writes the keys of windows [first, last) that are at most `limit`; returns how many."""
    number = 0
    for window in range(first, last):
        key = window_key(of_source, window * length)
        if key <= limit:
            keys[number] = key
            number += 1
    return number


def largest_sampled_key(corpus: Corpus, length: int, sample_size: int, seed: int) -> np.uint64:
    """No window with a larger key is among the `sample_size` with the smallest keys; windows of `length` tokens.

    Exact where all sizes are known; with sources of unknown size the largest of the others.
    """
    smallest: npt.NDArray[np.uint64] = np.empty(0, np.uint64)
    limit, keys = LARGEST_KEY, np.empty(_KEYS_AT_ONCE, np.uint64)
    if not sample_size:
        return np.uint64(0)
    for source in corpus.sources:
        number, of_source = (source.num_tokens or 0) // length, np.uint64(source_key(source.name, seed))
        for first in range(0, number, _KEYS_AT_ONCE):
            found = _keys_up_to(of_source, first, min(first + _KEYS_AT_ONCE, number), length, limit, keys)
            smallest = np.concatenate([smallest, keys[:found]])
            if smallest.size >= sample_size:
                smallest = np.partition(smallest, sample_size - 1)[:sample_size]
                limit = smallest.max()
    return np.uint64(limit)
