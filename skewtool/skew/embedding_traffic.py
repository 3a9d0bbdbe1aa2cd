"""What each embedding layout moves in a step, call by call, as `skewtool.parallel.embedding` makes the calls.

Layouts, and the class that is each:

  routed                  RoutedEmbedding: contiguous, strided, remapped, raw or distinct differ in their requests alone
  routed fixed capacity   RoutedEmbedding(capacity=C)
  hidden tokens           HiddenParallelEmbedding(output="tokens"), lookups raw or distinct
  hidden kept             HiddenParallelEmbedding(output="hidden")
  hidden replicated       HiddenParallelEmbedding(output="replicated")
  vocab all-reduce        VocabParallelEmbedding(output="replicated")
  vocab reduce-scatter    VocabParallelEmbedding(output="sequence")

Symbols: P ranks, N tokens in all, H hidden, e bytes per element.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from skewtool.errors import MapError
from skewtool.skew.table_sizes import BYTES_PER_ID, TableSizes, at_least_one
from skewtool.skew.traffic import Traffic, equal, exchange, select

__all__ = ["EMBEDDING_LAYOUTS", "ROUTED_LAYOUTS", "checked_requests", "embedding_traffic"]

Requests = npt.NDArray[np.int64]

ROUTED_LAYOUTS = ("routed", "routed fixed capacity")
"""Layouts whose requests are a matrix [P, P]; those of the others are lookups [P]."""

_HEALTH = 3 * BYTES_PER_ID
"""What ranks tell each other before a route of equal counts: position and id of a bad one, and a number."""


def embedding_traffic(
    layout: str,
    sizes: TableSizes,
    requests: npt.ArrayLike,
    *,
    capacity: int | None = None,
    overflow: npt.ArrayLike | None = None,
) -> list[Traffic]:
    """The collectives of one forward and backward of `layout`, in the order of the code; none where P = 1.

    requests   for routed layouts int [P, P]: rows that rank a asks of shard b; its own requests, on the diagonal, move
               nothing, and ids on every shard, which are read in place, are none. For the others int [P]: lookups of each
               rank, distinct ids or tokens; where ids are replicated only the sum N counts
    capacity   of "routed fixed capacity": room for requests of each rank to each shard
    overflow   of the same, int [P, P]: the requests of the second exchange. By default what goes beyond the capacity, which
               is exact for maps without copies; with copies the second route chooses among slots anew

    Errors: MapError for an unknown layout, requests of another shape, or a capacity that is missing or below 1.
    """
    found = checked_requests(layout, sizes, requests)
    if sizes.num_shards == 1:
        return []
    if layout != "routed fixed capacity":
        return _TRAFFIC[layout](sizes, found)
    capacity = at_least_one("capacity", 0 if capacity is None else capacity)
    beyond = (found - capacity).clip(0) if overflow is None else checked_requests("routed", sizes, overflow)
    fixed, second = _fixed_capacity(sizes, capacity), _routed(sizes, beyond) if beyond.any() else []
    return [  # what came last goes backward first
        *select(fixed, "forward"), *select(second, "forward"), *select(second, "backward"), *select(fixed, "backward"),
    ]  # fmt: skip


def checked_requests(layout: str, sizes: TableSizes, requests: npt.ArrayLike) -> Requests:
    """requests as int64 in the shape that the layout takes. Errors: MapError for others, and for an unknown layout."""
    if layout not in EMBEDDING_LAYOUTS:
        raise MapError(f"unknown embedding layout {layout!r}; known are {', '.join(EMBEDDING_LAYOUTS)}")
    found = np.asarray(requests)
    shape = (sizes.num_shards,) * (2 if layout in ROUTED_LAYOUTS else 1)
    if found.shape != shape or not np.issubdtype(found.dtype, np.integer):
        raise MapError(
            f"requests of {layout!r} must be integers [{', '.join(map(str, shape))}], got {found.dtype} {list(found.shape)}"
        )
    return found.astype(np.int64, copy=False)


def _routed(sizes: TableSizes, requests: Requests) -> list[Traffic]:
    """Route.build and Route.lookup. A rank's gradients are of the rows it asked for."""
    rows = sizes.bytes_per_row, sizes.hidden
    return [
        equal("forward", "all_gather", "counts", (sizes.num_shards + 2) * BYTES_PER_ID, sizes.num_shards),
        *exchange("forward", "ids", requests, BYTES_PER_ID),
        *exchange("forward", "rows", requests.T, *rows),
        *exchange("backward", "gradients", requests, *rows),
    ]


def _fixed_capacity(sizes: TableSizes, capacity: int) -> list[Traffic]:
    """FixedCapacityRoute: the same shapes for every batch."""
    room = (sizes.num_shards - 1) * capacity
    return [
        equal("forward", "all_to_all", "ids", room * BYTES_PER_ID, sizes.num_shards),
        equal("forward", "all_gather", "counts", _HEALTH, sizes.num_shards),
        equal("forward", "all_to_all", "rows", room * sizes.bytes_per_row, sizes.num_shards),
        equal("backward", "all_to_all", "gradients", room * sizes.bytes_per_row, sizes.num_shards),
    ]


def _hidden_tokens(sizes: TableSizes, lookups: Requests) -> list[Traffic]:
    """HiddenRoute: the ids of each rank to all, the columns of each back."""
    elements = sizes.columns[:, None] * lookups
    return [
        equal("forward", "all_gather", "counts", _HEALTH, sizes.num_shards),
        *exchange("forward", "ids", np.broadcast_to(lookups[:, None], elements.shape), BYTES_PER_ID),
        *exchange("forward", "rows", elements, sizes.bytes_per_element),
        *exchange("backward", "gradients", elements.T, sizes.bytes_per_element),
    ]


def _hidden_kept(sizes: TableSizes, lookups: Requests) -> list[Traffic]:
    """Every rank reads its columns of all tokens."""
    return []


def _hidden_replicated(sizes: TableSizes, lookups: Requests) -> list[Traffic]:
    """Its backward moves nothing: every rank has the whole gradient."""
    padded = int(lookups.sum()) * sizes.most_columns * sizes.bytes_per_element
    return [equal("forward", "all_gather", "rows", padded, sizes.num_shards)]


def _vocab_all_reduce(sizes: TableSizes, lookups: Requests) -> list[Traffic]:
    """One shard has the row of each token, so that no sum rounds: e bytes per element. Backward moves nothing."""
    return [equal("forward", "all_reduce", "rows", int(lookups.sum()) * sizes.bytes_per_row, sizes.num_shards)]


def _vocab_reduce_scatter(sizes: TableSizes, lookups: Requests) -> list[Traffic]:
    """Parts of ceil(N / P) tokens."""
    part = -(-int(lookups.sum()) // sizes.num_shards) * sizes.bytes_per_row
    return [
        equal("forward", "reduce_scatter", "rows", part * sizes.num_shards, sizes.num_shards),
        equal("backward", "all_gather", "gradients", part, sizes.num_shards),
    ]


_TRAFFIC: dict[str, Callable[[TableSizes, Requests], list[Traffic]]] = {
    "vocab all-reduce": _vocab_all_reduce,
    "vocab reduce-scatter": _vocab_reduce_scatter,
    "routed": _routed,
    "hidden tokens": _hidden_tokens,
    "hidden replicated": _hidden_replicated,
    "hidden kept": _hidden_kept,
}

EMBEDDING_LAYOUTS = (*_TRAFFIC, "routed fixed capacity")
"""Names of all layouts."""
