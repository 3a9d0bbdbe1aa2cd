"""`TableSizes`: the numbers of a sharded table that all costs share."""

import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.errors import MapError

__all__ = ["BYTES_PER_ID", "TableSizes", "at_least_one"]

BYTES_PER_ID = 8
"""Ids, counts and labels travel as int64."""


def at_least_one(name: str, value: Any) -> int:
    """`value` as a Python int, which no product overflows. Errors: MapError for what is no whole number of at least 1."""
    try:
        number = operator.index(value)
    except TypeError:
        raise MapError(f"{name} must be a whole number, got {value!r}") from None
    if number < 1:
        raise MapError(f"{name} must be at least 1, got {number}")
    return number


@dataclass(frozen=True)
class TableSizes:
    """P shards of a table [V, H] with e bytes per element, as Python ints.

    Errors: MapError for what is no whole number of at least 1.
    """

    num_shards: int
    vocab_size: int
    hidden: int
    bytes_per_element: int

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            object.__setattr__(self, name, at_least_one(name, value))

    @property
    def home_rows(self) -> int:
        """R = ceil(V / P)."""
        return -(-self.vocab_size // self.num_shards)

    @property
    def bytes_per_row(self) -> int:
        """H e: a whole row."""
        return self.hidden * self.bytes_per_element

    @property
    def bytes_per_sum(self) -> int:
        """Bytes of an element while it is summed: 16-bit types are summed in float32."""
        return max(self.bytes_per_element, 4)

    @property
    def is_narrow(self) -> bool:
        """Whether sums are taken in a wider type than the elements have, which needs buffers of their own."""
        return self.bytes_per_element < 4

    @property
    def columns(self) -> npt.NDArray[np.int64]:
        """int64 [P]: the columns of a row that each shard of a hidden layout has, one more on the first H % P."""
        few, more = divmod(self.hidden, self.num_shards)
        return few + (np.arange(self.num_shards) < more).astype(np.int64)

    @property
    def most_columns(self) -> int:
        """ceil(H / P)."""
        return -(-self.hidden // self.num_shards)
