"""Bytes of each embedding layout, as formulas: weight, collectives and buffers of one rank.

Every function is one cell of the design's table "Layouts, and what each costs" (section 5) and says which. Symbols: P
shards, n tokens per rank and N = P n tokens in a step, V ids and R = ceil(V / P) home rows per shard, H hidden, e bytes
per element. Collective bytes are those of one rank, ring or pairwise, its own part left out.

All results are exact: Python ints from ints, int64 from int64 arrays.
"""

import operator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from skewtool.errors import MapError

__all__ = [
    "BYTES_PER_ID",
    "Sizes",
    "all_reduce_bytes",
    "at_least_one",
    "copy_gradient_bytes",
    "hidden_backward_bytes",
    "hidden_buffer_bytes",
    "hidden_forward_bytes",
    "hidden_weight_bytes",
    "reduce_scatter_bytes",
    "replicated_buffer_bytes",
    "routed_backward_bytes",
    "routed_buffer_bytes",
    "routed_forward_bytes",
    "vocab_weight_bytes",
]

BYTES_PER_ID = 8
"""Ids travel as int64."""

Rows = TypeVar("Rows", int, npt.NDArray[np.int64])
"""A number of rows, or one for each step and rank."""


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
class Sizes:
    """What all formulas share, as Python ints. Errors: MapError for what is no whole number of at least 1."""

    num_shards: int
    vocab_size: int
    hidden: int
    bytes_per_element: int
    tokens_per_rank: int

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
    def bytes_per_part(self) -> int:
        """ceil(H / P) e: the columns of a row that one shard of the hidden layout has."""
        return -(-self.hidden // self.num_shards) * self.bytes_per_element


def vocab_weight_bytes(sizes: Sizes, rows_per_shard: int) -> int:
    """Weight of "vocab" and "remapped": R H e, and (R + copies) H e; `rows_per_shard` has both."""
    return rows_per_shard * sizes.bytes_per_row


def hidden_weight_bytes(sizes: Sizes) -> int:
    """Weight of "hidden": V H/P e."""
    return sizes.vocab_size * sizes.bytes_per_part


def all_reduce_bytes(sizes: Sizes) -> int:
    """Forward of "vocab, ids replicated, all-reduce": 2 (P-1)/P N H e. Its backward moves nothing: every rank has the
    whole gradient."""
    return 2 * reduce_scatter_bytes(sizes)


def reduce_scatter_bytes(sizes: Sizes) -> int:
    """Forward of "vocab, ids replicated, reduce-scatter": (P-1)/P N H e. Its backward, an all-gather, is as much."""
    return (sizes.num_shards - 1) * sizes.tokens_per_rank * sizes.bytes_per_row


def replicated_buffer_bytes(sizes: Sizes) -> int:
    """Buffers of both layouts with replicated ids: N H e, partial rows of all tokens."""
    return sizes.num_shards * sizes.tokens_per_rank * sizes.bytes_per_row


def routed_forward_bytes(sizes: Sizes, served: Rows, asked: Rows) -> Rows:
    """Forward of "vocab, ids partitioned" and "remapped": ids out + load(shard) H e.

    `served`: rows that the rank sends to others; `asked`: ids that it asks of others.
    """
    return asked * BYTES_PER_ID + served * sizes.bytes_per_row


def routed_backward_bytes(sizes: Sizes, served: Rows) -> Rows:
    """Backward of the same: for each row that a shard served to another rank, its gradient arrives; load(shard) H e."""
    return served * sizes.bytes_per_row


def routed_buffer_bytes(sizes: Sizes, served: Rows, asked: Rows) -> Rows:
    """Buffers of the same: "sent + received ids and rows" of one rank, forward."""
    return (served + asked) * (BYTES_PER_ID + sizes.bytes_per_row)


def hidden_forward_bytes(sizes: Sizes, own: Rows, of_others: Rows) -> Rows:
    """Forward of "hidden, tokens wanted": ids to every shard + (P-1)/P of the looked-up rows.

    `own`: lookups of the rank, n or its distinct ids u; `of_others`: those of the other ranks together, of which it
    sends its H/P columns. The table leaves out the ids for all lookups, which is right where ids are replicated.
    """
    return own * (BYTES_PER_ID * (sizes.num_shards - 1)) + of_others * sizes.bytes_per_part


def hidden_backward_bytes(sizes: Sizes, of_others: Rows) -> Rows:
    """Backward of the same: gradients of its columns arrive for every lookup of another rank; (P-1)/P n (or u) H e."""
    return of_others * sizes.bytes_per_part


def hidden_buffer_bytes(sizes: Sizes, lookups: Rows) -> Rows:
    """Buffers of "hidden, tokens wanted": N H/P e + n H e, or with distinct ids u P H/P e + n H e.

    `lookups`: those of all ranks together, N or u P.
    """
    return lookups * sizes.bytes_per_part + sizes.tokens_per_rank * sizes.bytes_per_row


def copy_gradient_bytes(sizes: Sizes, exchanged_rows: int, ids_on_every_shard: int) -> int:
    """What one rank sends in an update so that all copies receive the sum of their gradients ("Copies", section 7).

    An id on a few shards: each copy sends its gradient to the home and receives the sum, 2 rows a copy in all; a rank
    sends (and receives) `exchanged_rows` of them, see `exchanged_rows`. Ids on every shard: all-reduce, 2 (P-1)/P H e each.
    """
    reduced = 2 * (sizes.num_shards - 1) * ids_on_every_shard * sizes.bytes_per_row
    return exchanged_rows * sizes.bytes_per_row + -(-reduced // sizes.num_shards)
