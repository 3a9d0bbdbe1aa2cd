"""Memory that each embedding layout allocates beside its weight: what is alive at the peak of forward and of backward.

Counted are tensors of rows, read off the code of `skewtool.parallel.embedding` and `.routing` line by line; each term
names one. Forward has its output in it; backward the output's gradient, and the gradient of the weight, which is dense:
for 16-bit tables it is added up in float32 first. gloo copies what all_gather brings and what reduce_scatter takes, which
counts. Not counted are integers, a few for each token.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skewtool.skew.embedding_traffic import ROUTED_LAYOUTS, checked_requests
from skewtool.skew.table_sizes import TableSizes, at_least_one
from skewtool.skew.traffic import Backend, PerRank

__all__ = ["Buffers", "embedding_buffers"]


@dataclass(frozen=True, eq=False)
class Buffers:
    """Bytes at the peak of each phase, int64 [P]."""

    forward: PerRank
    backward: PerRank


@dataclass(frozen=True, eq=False)
class _Rows:
    """Row counts of one step, int64 [P] or numbers, and what a row weighs.

    tokens   n, or N where ids are replicated
    read     rows that are read here for others and oneself
    found    rows that come, from others and oneself
    stored   rows of the weight
    gloo     whether gathers and scatters are copied
    """

    sizes: TableSizes
    tokens: PerRank
    read: PerRank
    found: PerRank
    stored: int
    gloo: bool

    def read_backward(self, gradients: PerRank, into: PerRank | int, columns: PerRank | int) -> PerRank:
        """What `read_rows` allocates backward: `gradients` rows added up into `into` rows, of so many columns.

        16-bit gradients are widened, and their sum narrowed: three tensors instead of one.
        """
        element, wide = self.sizes.bytes_per_element, self.sizes.bytes_per_sum
        if not self.sizes.is_narrow:
            return np.asarray(into * columns * element)
        return np.asarray((gradients * wide + into * (wide + element)) * columns)

    def weight_backward(self, gradients: PerRank) -> PerRank:
        """Gradients of whole rows that are read from the weight, and what makes the weight's gradient of them."""
        return np.asarray(gradients * self.sizes.bytes_per_row) + self.read_backward(
            gradients, self.stored, self.sizes.hidden
        )


def embedding_buffers(
    layout: str,
    sizes: TableSizes,
    requests: npt.ArrayLike,
    tokens: npt.ArrayLike,
    *,
    in_place: npt.ArrayLike | None = None,
    rows_per_shard: int | None = None,
    capacity: int | None = None,
    backend: Backend = "nccl",
) -> Buffers:
    """The peaks of one forward and backward of `layout`, of each rank.

    requests         as for `embedding_traffic`
    tokens           int [P], tokens of each rank; where ids are replicated only their sum counts
    in_place         of "routed", int [P]: rows that are on every shard; none by default
    rows_per_shard   slots of the weight with copies, where they are not ceil(V / P); hidden layouts have V
    capacity         of "routed fixed capacity"; a second exchange is not counted

    Errors: MapError as `embedding_traffic`.
    """
    found, own = checked_requests(layout, sizes, requests), np.asarray(tokens, np.int64)
    gloo = backend == "gloo" and sizes.num_shards > 1
    stored = sizes.home_rows if rows_per_shard is None else rows_per_shard
    if layout == "routed":
        here = np.zeros_like(own) if in_place is None else np.asarray(in_place, np.int64)
        return _routed(_Rows(sizes, own, found.sum(axis=0) + here, found.sum(axis=1) + here, stored, gloo), here)
    if layout in ROUTED_LAYOUTS:
        room = np.full_like(own, sizes.num_shards * at_least_one("capacity", 0 if capacity is None else capacity))
        return _fixed_capacity(_Rows(sizes, own, room, room, stored, gloo))
    if layout == "hidden tokens":
        return _hidden_tokens(_Rows(sizes, own, np.full_like(own, found.sum()), found, sizes.vocab_size, gloo))
    everyone = np.full_like(own, own.sum())
    stored = sizes.vocab_size if layout.startswith("hidden") else stored
    return _REPLICATED[layout](_Rows(sizes, everyone, everyone, everyone, stored, gloo))


def _peak(*moments: npt.ArrayLike) -> PerRank:
    return np.asarray(np.maximum.reduce(np.broadcast_arrays(*moments)), np.int64)


def _routed(rows: _Rows, in_place: PerRank) -> Buffers:
    """Route.lookup."""
    row, n, read, found = rows.sizes.bytes_per_row, rows.tokens, rows.read, rows.found
    return Buffers(
        # rows read, those found behind those read in place; and those that came, or then the output
        forward=_peak((read + found + np.maximum(found - in_place, n)) * row),
        backward=n * row
        + _peak(
            rows.read_backward(n, found, rows.sizes.hidden),
            (found + 2 * read - in_place) * row,  # of rows found, of rows that others ask, of all read
            rows.weight_backward(read),
        ),
    )


def _fixed_capacity(rows: _Rows) -> Buffers:
    """FixedCapacityRoute.lookup_what_fits; `read` and `found` are P capacity."""
    row, n, room = rows.sizes.bytes_per_row, rows.tokens, rows.read
    own = room + n
    return Buffers(
        # rows read, masked, arrived, together; or instead of those that arrived the output, and it masked
        forward=_peak((2 * own + room + np.maximum(room, 2 * n)) * row),
        backward=n * row
        + _peak(
            n * row + rows.read_backward(n, own, rows.sizes.hidden),
            (2 * own + room) * row,
            rows.weight_backward(own),
        ),
    )


def _hidden_tokens(rows: _Rows) -> Buffers:
    """HiddenRoute.lookup; `read` is the lookups of all ranks, `found` those of this one."""
    sizes, n, found = rows.sizes, rows.tokens, rows.found
    part = sizes.columns * sizes.bytes_per_element
    row = sizes.bytes_per_row
    return Buffers(
        # its columns for all and all columns for it; then these joined, and the output
        forward=_peak(rows.read * part + found * row, (2 * found + n) * row),
        backward=n * row
        + _peak(
            rows.read_backward(n, found, sizes.hidden),
            2 * found * row,  # whole rows, then by columns; these, then in one
            found * row + rows.read * part,
            rows.read * part + rows.read_backward(rows.read, rows.stored, sizes.columns),
        ),
    )


def _hidden_kept(rows: _Rows) -> Buffers:
    part = rows.sizes.columns * rows.sizes.bytes_per_element
    output = rows.tokens * part
    return Buffers(output, output + rows.read_backward(rows.tokens, rows.stored, rows.sizes.columns))


def _hidden_replicated(rows: _Rows) -> Buffers:
    """Columns padded to equal parts, all_gather, joined."""
    sizes = rows.sizes
    part, padded = sizes.columns * sizes.bytes_per_element, sizes.most_columns * sizes.bytes_per_element
    whole, row = sizes.num_shards * padded, sizes.bytes_per_row
    fewer = int((sizes.columns < sizes.most_columns).sum())  # parts whose gradients are padded
    return Buffers(
        forward=_peak(rows.tokens * (part + padded + whole * (1 + rows.gloo)), rows.tokens * (part + whole + row)),
        backward=rows.tokens * row
        + _peak(
            rows.tokens * (fewer * padded + whole),  # then stacked
            rows.tokens * (whole + part),
            rows.tokens * part + rows.read_backward(rows.tokens, rows.stored, sizes.columns),
        ),
    )


def _vocab_all_reduce(rows: _Rows) -> Buffers:
    """Rows read, then without foreign ones, then a copy that is reduced in place."""
    output = rows.tokens * rows.sizes.bytes_per_row
    return Buffers(2 * output, output + rows.weight_backward(rows.tokens))


def _vocab_reduce_scatter(rows: _Rows) -> Buffers:
    """The same, padded to equal parts, of which one comes back."""
    row, num_shards = rows.sizes.bytes_per_row, rows.sizes.num_shards
    whole = rows.tokens * row
    part = -(-rows.tokens // num_shards) * row
    parts, copied = part * num_shards, part * num_shards * rows.gloo
    return Buffers(
        forward=_peak(2 * whole, whole + parts + copied + part),
        backward=part + _peak(part + parts + np.maximum(whole, copied), rows.weight_backward(rows.tokens)),
    )


_REPLICATED: dict[str, Callable[[_Rows], Buffers]] = {
    "vocab all-reduce": _vocab_all_reduce,
    "vocab reduce-scatter": _vocab_reduce_scatter,
    "hidden replicated": _hidden_replicated,
    "hidden kept": _hidden_kept,
}
