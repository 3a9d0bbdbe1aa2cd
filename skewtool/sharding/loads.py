"""Load per id: the integers that a partition makes even.

raw     every occurrence counts: counts[id]
unique  each source rank asks once per step for each distinct id: the number of windows of `tokens_per_rank` tokens that
        hold it. Divided by the number of windows this is the chance that one rank asks for it in a step.
"""

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from skewtool.errors import MapError
from skewtool.profiling import Profile

__all__ = [
    "LOADS",
    "OBJECTIVES",
    "Load",
    "Objective",
    "check_padding",
    "checked_loads",
    "exact_sum",
    "fit_62_bits",
    "loads_of",
]

Load = Literal["unique", "raw"]
LOADS: tuple[Load, ...] = ("unique", "raw")

Objective = Literal["unique", "raw", "steps"]
OBJECTIVES: tuple[Objective, ...] = ("unique", "raw", "steps")
"""What a partition can make even: unique or raw load on average, or unique load in the steps of the sampled windows."""


def loads_of(profile: Profile, load: Load, tokens_per_rank: int | None = None) -> npt.NDArray[np.int64]:
    """int64 [V] for a profile. Errors: ProfileError when no windows of `tokens_per_rank` tokens were counted."""
    if load == "raw":
        return profile.counts
    if load != "unique":
        raise MapError(f"unknown load {load!r}; known are {', '.join(LOADS)}")
    return profile.window(profile.tokens_per_rank if tokens_per_rank is None else tokens_per_rank).presence


def checked_loads(loads: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Loads given by a user as int64 [V]: whole numbers of at least 0, in any numeric type.

    Errors: MapError naming the first id with NaN, infinity, a negative or a broken number.
    """
    given = np.asarray(loads)
    if given.ndim != 1 or not given.size:
        raise MapError(f"loads must be a non-empty vector, one number per id; got shape {given.shape}")
    if given.dtype.kind not in "iufb":
        raise MapError(f"loads must be numbers, got {given.dtype}")
    # One byte order and, of the floating types, the widest in use, so that comparisons below are exact.
    given = given.astype(np.float64 if given.dtype.kind == "f" else given.dtype.newbyteorder("="))
    with np.errstate(invalid="ignore"):
        whole = given == np.floor(given) if given.dtype.kind == "f" else np.ones(given.size, bool)
        # 2**63 is the first float that no int64 holds.
        bad = ~whole | (given < 0) | (given >= 2.0**63 if given.dtype.kind == "f" else _above_int64(given))
    if bad.any():
        token = int(np.argmax(bad))
        raise MapError(f"id {token} has load {given[token]}; loads must be whole numbers from 0 to 2**63 - 1")
    return given.astype(np.int64)


def _above_int64(given: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if given.dtype != np.uint64:
        return np.zeros(given.size, bool)
    return np.asarray(given > np.uint64(2**63 - 1))


def check_padding(loads: npt.NDArray[np.int64], real_vocab: int) -> None:
    """MapError unless 1 <= real_vocab <= V and ids from `real_vocab` on, which are no tokens, have no load."""
    if not 1 <= real_vocab <= loads.size:
        raise MapError(f"real_vocab must be 1 to the {loads.size} ids of the loads, got {real_vocab}")
    if loads[real_vocab:].any():
        token = real_vocab + int(np.argmax(loads[real_vocab:] > 0))
        raise MapError(
            f"id {token} has load {loads[token]} but is a padding id (real_vocab is {real_vocab}); raise real_vocab, or "
            "profile again with the right tokenizer"
        )


def exact_sum(loads: npt.NDArray[np.int64]) -> int:
    """The sum as a Python integer, also where it exceeds 64 bits."""
    high, low = loads >> 32, loads & 0xFFFFFFFF
    return (int(high.sum()) << 32) + int(low.sum())


def fit_62_bits(loads: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], int]:
    """Loads shifted right until their sum fits 62 bits, so that sums and differences fit 64, and by how many bits."""
    shift = max(0, exact_sum(loads).bit_length() - 62)
    return loads >> shift, shift
