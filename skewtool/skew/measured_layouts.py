"""What each embedding layout moves in given steps: measured requests put into the formulas of `layout_bytes`.

Takes steps as lists of P arrays, the distinct ids int32 [u] of each source rank, ascending. Bytes of a step are those of
its busiest rank, averaged over the steps; buffers are the largest of all steps. Busiest is the shard that serves most:
forward counts what a rank sends, backward the gradients that come back for what it served. What a rank receives forward
is left out, because its text decides that and no map of single rows changes it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skewtool.sharding import ShardMap, SlotTable, choose_slots
from skewtool.skew.copy_gradients import exchanged_rows, ids_on_every_shard
from skewtool.skew.layout_bytes import (
    Sizes,
    all_reduce_bytes,
    copy_gradient_bytes,
    hidden_backward_bytes,
    hidden_buffer_bytes,
    hidden_forward_bytes,
    hidden_weight_bytes,
    reduce_scatter_bytes,
    replicated_buffer_bytes,
    routed_backward_bytes,
    routed_buffer_bytes,
    routed_forward_bytes,
    vocab_weight_bytes,
)

__all__ = ["LayoutBytes", "hidden_layouts", "remote_requests", "replicated_layouts", "routed_layout"]

Lookups = Sequence[npt.NDArray[np.int32]]
"""One step: the distinct ids of each rank, ascending."""

PerRank = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LayoutBytes:
    """One layout, in bytes of a shard or its rank: `weight` and `temporary` are held, `forward` and `backward` moved in a
    lookup step by the busiest rank, `gradient_sync` in an optimizer update for copies."""

    layout: str
    weight: int
    temporary: int
    forward: int
    backward: int
    gradient_sync: int = 0
    extra_rows_per_shard: int = 0


def _average_of_busiest(per_rank: PerRank) -> int:
    """The busiest rank of each step, int64 [steps, P], averaged over steps and rounded; 0 without steps."""
    steps = per_rank.shape[0]
    return (int(per_rank.max(axis=1).sum()) + steps // 2) // steps if steps else 0


def remote_requests(steps: Iterable[Lookups], shard_map: ShardMap) -> tuple[PerRank, PerRank]:
    """Rows that cross ranks: (served, asked), both int64 [steps, P].

    `served`: rows that each shard sends to other ranks; `asked`: ids that each rank asks of other shards. Routed by the
    chooser that the routed embedding uses, as `replay`, which adds up what is served but not what each rank asks.
    """
    table = SlotTable.of(shard_map)
    served, asked = [], []
    for step in steps:
        between = np.zeros((shard_map.num_shards, shard_map.num_shards), np.int64)
        for source, ids in enumerate(step):
            between[source] = np.bincount(choose_slots(ids, source, table), minlength=shard_map.num_shards)
        np.fill_diagonal(between, 0)
        served.append(between.sum(axis=0))
        asked.append(between.sum(axis=1))
    shape = (len(served), shard_map.num_shards)
    return np.array(served, np.int64).reshape(shape), np.array(asked, np.int64).reshape(shape)


def replicated_layouts(sizes: Sizes) -> list[LayoutBytes]:
    """ "contiguous all-reduce" and "contiguous reduce-scatter": every rank knows all N ids; the same bytes for any map."""
    weight, buffers = vocab_weight_bytes(sizes, sizes.home_rows), replicated_buffer_bytes(sizes)
    scattered = reduce_scatter_bytes(sizes)
    return [
        LayoutBytes("contiguous all-reduce", weight, buffers, forward=all_reduce_bytes(sizes), backward=0),
        LayoutBytes("contiguous reduce-scatter", weight, buffers, forward=scattered, backward=scattered),
    ]


def routed_layout(layout: str, sizes: Sizes, shard_map: ShardMap, steps: Iterable[Lookups]) -> LayoutBytes:
    """Rows by vocabulary, looked up once per distinct id and rank over an all-to-all, copies of rows as the map has them."""
    served, asked = remote_requests(steps, shard_map)
    return LayoutBytes(
        layout,
        weight=vocab_weight_bytes(sizes, shard_map.num_slots),
        temporary=int(routed_buffer_bytes(sizes, served, asked).max(initial=0)),
        forward=_average_of_busiest(routed_forward_bytes(sizes, served, asked)),
        backward=_average_of_busiest(routed_backward_bytes(sizes, served)),
        gradient_sync=copy_gradient_bytes(sizes, int(exchanged_rows(shard_map).max()), ids_on_every_shard(shard_map)),
        extra_rows_per_shard=shard_map.num_slots - shard_map.home_slots,
    )


def hidden_layouts(sizes: Sizes, steps: Iterable[Lookups]) -> list[LayoutBytes]:
    """ "hidden" and "hidden distinct": H / P columns of all rows on each shard, whole rows of n tokens back on each rank."""
    distinct = np.array([[ids.size for ids in step] for step in steps], np.int64).reshape(-1, sizes.num_shards)
    every = np.full_like(distinct, sizes.tokens_per_rank)
    return [_hidden_layout("hidden", sizes, every), _hidden_layout("hidden distinct", sizes, distinct)]


def _hidden_layout(layout: str, sizes: Sizes, lookups: PerRank) -> LayoutBytes:
    """`lookups` int64 [steps, P]: tokens or distinct ids of each rank."""
    together = lookups.sum(axis=1, keepdims=True)
    return LayoutBytes(
        layout,
        weight=hidden_weight_bytes(sizes),
        temporary=int(hidden_buffer_bytes(sizes, together).max(initial=0)),
        forward=_average_of_busiest(hidden_forward_bytes(sizes, lookups, together - lookups)),
        backward=_average_of_busiest(hidden_backward_bytes(sizes, together - lookups)),
    )
