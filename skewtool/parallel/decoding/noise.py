"""Gumbel noise that is a function of (seed, step, row, id) and of nothing else: no generator, no state, no position.

The hash is that of `skewtool.parallel.counter_hash`, over key + (id + 1) * golden ratio, the key made of seed, step and
row by the same function. Tails are those of float64: w uniform inside (0, 1), in steps of 2^-52, makes
-log(-log1p(-w)) finite for every hash, from -3.6 to 36.7, where float32 uniforms end at 17. Each of 262,144 classes 20.5
below the best one is drawn as often as it should.
"""

from torch import Tensor

from skewtool.parallel.counter_hash import GOLDEN, as_int64, mix64, uniform_open

__all__ = ["gumbel", "gumbel_of_bits", "row_keys"]


def row_keys(seed: int, step: int, rows: Tensor) -> Tensor:
    """A key for each row: rows int64 [N] -> int64 [N]. Seed and step count modulo 2^64."""
    key = rows.new_zeros(())
    for part in (rows.new_tensor(as_int64(seed)), rows.new_tensor(as_int64(step)), rows):
        key = mix64(key + (part + 1) * GOLDEN)
    return key


def gumbel_of_bits(bits: Tensor) -> Tensor:
    """int64 of any shape, taken as 64 random bits -> float64, standard Gumbel noise; finite whatever the bits."""
    return uniform_open(bits).neg_().log1p_().neg_().log_().neg_()


def gumbel(keys: Tensor, ids: Tensor) -> Tensor:
    """The noise of every id in every row: keys int64 [N] of `row_keys`, ids int64 [C] -> float64 [N, C]."""
    return gumbel_of_bits(mix64(keys[:, None] + (ids + 1) * GOLDEN))
