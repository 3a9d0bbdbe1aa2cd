"""What each embedding layout moves in given steps: measured requests put into `embedding_traffic` and `embedding_buffers`.

A step is a list of P windows (ids, counts) with ascending distinct ids, one of each source rank. `plan` and `cost` both
ask here, so that both have one set of numbers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skewtool.profiling import WindowContent
from skewtool.sharding import ShardMap, SlotTable, choose_slots
from skewtool.sharding.chooser import EVERY_SHARD
from skewtool.skew.copy_gradients import copy_buffers, copy_traffic
from skewtool.skew.embedding_buffers import embedding_buffers
from skewtool.skew.embedding_traffic import embedding_traffic
from skewtool.skew.table_sizes import TableSizes
from skewtool.skew.traffic import Backend, Phase, Traffic, select

__all__ = ["MeasuredLayout", "Requests", "Step", "hidden_lookups", "measured", "step_requests", "weight_bytes"]

Step = Sequence[WindowContent]
Requests = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class MeasuredLayout:
    """One embedding layout over all steps.

    name               of this one among others; its layout may be that of several
    weight_bytes       of the shard with the most
    traffic            the collectives of each step, forward and backward
    update             those of an optimizer update, for copies
    forward_buffers    the most that any rank allocates in any step; see `embedding_buffers`
    update_buffers     and in an update; see `copy_buffers`
    """

    name: str
    weight_bytes: int
    extra_rows_per_shard: int
    traffic: list[list[Traffic]]
    update: list[Traffic]
    forward_buffers: int
    backward_buffers: int
    update_buffers: int

    def average(self, phase: Phase, figure: Callable[[list[Traffic]], int]) -> int:
        """A figure of the calls of a phase in a step, averaged over steps and rounded."""
        figures = [figure(select(step, phase)) for step in self.traffic]
        return (sum(figures) + len(figures) // 2) // len(figures) if figures else 0


def step_requests(
    steps: Iterable[Step], shard_map: ShardMap, *, distinct: bool = True
) -> Iterator[tuple[Requests, Requests]]:
    """For each step int64 [P, P], rows that each rank asks of each shard by the chooser that the routed embedding uses, once
    per distinct id or for every occurrence; and int64 [P], those it reads in place, because they are on every shard."""
    table, number = SlotTable.of(shard_map), shard_map.num_shards
    for step in steps:
        asked, in_place = np.zeros((number, number), np.int64), np.zeros(number, np.int64)
        for source, (ids, counts) in enumerate(step):
            times = np.ones_like(counts) if distinct else counts
            everywhere = table.row_of[ids] == EVERY_SHARD
            in_place[source] = times[everywhere].sum()
            np.add.at(asked[source], choose_slots(ids, source, table)[~everywhere], times[~everywhere])
        yield asked, in_place


def hidden_lookups(steps: Iterable[Step], *, distinct: bool) -> Iterator[Requests]:
    """For each step int64 [P]: distinct ids of each rank, or its tokens."""
    for step in steps:
        yield np.array([ids.size if distinct else counts.sum() for ids, counts in step], np.int64)


def measured(
    name: str,
    layout: str,
    sizes: TableSizes,
    requests: Iterable[Requests | tuple[Requests, Requests]],
    tokens: Iterable[Requests],
    *,
    shard_map: ShardMap | None = None,
    capacity: int | None = None,
    backend: Backend = "nccl",
) -> MeasuredLayout:
    """A layout of `embedding_traffic` over steps: requests of each step, with rows read in place where there are any, and
    tokens of each rank in it.

    `shard_map` says how many rows a shard has, and what copies cost; by default ceil(V / P) rows without copies.
    """
    slots = sizes.home_rows if shard_map is None else shard_map.num_slots
    traffic, forward, backward = [], 0, 0
    for found, own in zip(requests, tokens, strict=True):
        asked, in_place = found if isinstance(found, tuple) else (found, None)
        traffic.append(embedding_traffic(layout, sizes, asked, capacity=capacity))
        buffers = embedding_buffers(
            layout, sizes, asked, own, in_place=in_place, rows_per_shard=slots, capacity=capacity, backend=backend
        )
        forward = max(forward, int(buffers.forward.max()))
        backward = max(backward, int(buffers.backward.max()))
    return MeasuredLayout(
        name=name,
        weight_bytes=weight_bytes(layout, sizes, slots),
        extra_rows_per_shard=0 if shard_map is None else slots - shard_map.home_slots,
        traffic=traffic,
        update=[] if shard_map is None else copy_traffic(sizes, shard_map),
        forward_buffers=forward,
        backward_buffers=backward,
        update_buffers=0 if shard_map is None else int(copy_buffers(sizes, shard_map).max()),
    )


def weight_bytes(layout: str, sizes: TableSizes, rows_per_shard: int) -> int:
    """Of the shard with the most: V rows of ceil(H / P) columns for hidden layouts, whole rows for others."""
    if layout.startswith("hidden"):
        return sizes.vocab_size * sizes.most_columns * sizes.bytes_per_element
    return rows_per_shard * sizes.bytes_per_row
