"""Random numbers that are a pure function of a counter, the same on every rank and device, on int64 tensors.

The hash is SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014): output n of
the stream with state s is ``mix64(s + n * GOLDEN)``. Tensors have no unsigned 64-bit arithmetic on all devices, so bits
are held in int64: sums and products wrap around, and shifts to the right mask the sign away.
"""

import torch
from torch import Tensor

__all__ = ["GOLDEN", "as_int64", "mix64", "uniform_open"]


def as_int64(value: int) -> int:
    """The signed number with the same lowest 64 bits."""
    return (value + 2**63) % 2**64 - 2**63


GOLDEN = as_int64(0x9E3779B97F4A7C15)
"""The odd number nearest to 2^64 / the golden ratio, as a signed 64-bit number: the step between counters."""

_FIRST, _SECOND = as_int64(0xBF58476D1CE4E5B9), as_int64(0x94D049BB133111EB)


def _shifted(bits: Tensor, places: int) -> Tensor:
    return (bits >> places).bitwise_and_((1 << (64 - places)) - 1)


def mix64(bits: Tensor) -> Tensor:
    """int64 of any shape -> int64: the finalizer of SplitMix64, a bijection that spreads each bit over all 64."""
    bits = (bits ^ _shifted(bits, 30)).mul_(_FIRST)
    bits = bits.bitwise_xor_(_shifted(bits, 27)).mul_(_SECOND)
    return bits.bitwise_xor_(_shifted(bits, 31))


def uniform_open(bits: Tensor) -> Tensor:
    """int64 of any shape -> float64 in (0, 1), never an end of it: (the top 52 bits + 0.5) 2^-52, without rounding."""
    return _shifted(bits, 12).to(torch.float64).add_(0.5).mul_(2.0**-52)
