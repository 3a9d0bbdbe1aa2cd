"""Order-preserving integers for floats: what top-k, ties and searches compare, so that NaN and zeros have one order.

The order is torch's: -inf < ... < -0.0 == 0.0 < ... < inf < NaN, all NaN alike. Known from radix sorts: as signed
integers, the bits of floats are in order where the sign is clear, and in reverse where it is set.
"""

import torch
from torch import Tensor

__all__ = ["LOWEST", "key_bits", "keys_of", "values_of"]

LOWEST = -(2**63)
"""A key below that of any value, -inf included."""

_INTEGER = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}


def key_bits(dtype: torch.dtype) -> int:
    """Keys of values of this dtype are integers of so many bits, in [-2^(bits-1), 2^(bits-1))."""
    return torch.iinfo(_INTEGER[dtype]).bits


def _reversed_where_negative(numbers: Tensor, bits: int) -> Tensor:
    return numbers.bitwise_xor((numbers >> 63) & (2 ** (bits - 1) - 1))


def keys_of(values: Tensor) -> Tensor:
    """float16, bfloat16, float32 or float64 of any shape -> int64, larger where the value is, equal where it is equal."""
    one_zero = values + 0.0  # -0.0 becomes 0.0
    one_nan = one_zero.masked_fill_(one_zero.isnan(), torch.nan)
    return _reversed_where_negative(one_nan.view(_INTEGER[values.dtype]).long(), key_bits(values.dtype))


def values_of(keys: Tensor, dtype: torch.dtype) -> Tensor:
    """The values of this dtype that have these keys, exactly."""
    return _reversed_where_negative(keys, key_bits(dtype)).to(_INTEGER[dtype]).view(dtype)
