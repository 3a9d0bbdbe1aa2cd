"""What the layouts of a job should move in each step, from the ids of the step alone: `skewtool.skew` knows nothing of
torch, and what it says is compared with what the collectives were handed, per rank, phase and kind of content."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from skewtool.bench.job import Job
from skewtool.bench.peers import PEERS
from skewtool.sharding import ShardMap, SlotTable, choose_slots, partition
from skewtool.sharding.chooser import EVERY_SHARD
from skewtool.skew.copy_gradients import copy_buffers, copy_traffic
from skewtool.skew.embedding_buffers import Buffers, embedding_buffers
from skewtool.skew.embedding_traffic import embedding_traffic
from skewtool.skew.head_buffers import head_buffers
from skewtool.skew.head_traffic import head_traffic
from skewtool.skew.table_sizes import TableSizes
from skewtool.skew.traffic import Backend, Traffic

__all__ = ["Prediction", "predictions_of", "requests_of"]

Ids = npt.NDArray[np.int64]
ByRank = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Prediction:
    """Of one layout.

    sent          (phase, what) -> bytes that each rank sends in each step, int64 [steps, P]
    rows_served   rows that each shard looks up for ranks, its own among them, int64 [steps, P]; None where not routed
    peak_bytes    phase -> most memory above what was allocated before, of the busiest rank in the first step; None unknown
    """

    sent: dict[tuple[str, str], ByRank]
    rows_served: ByRank | None
    peak_bytes: dict[str, int] | None

    def is_exactly(self, sent: dict[tuple[str, str], ByRank]) -> bool:
        """Whether every rank sent in every step what was predicted, to the byte, and nothing else."""
        kinds = sent.keys() | self.sent.keys()
        return all(bool(np.all(np.equal(sent.get(kind, 0), self.sent.get(kind, 0)))) for kind in kinds)


@dataclass(frozen=True, eq=False)
class _Step:
    """Of one layout and step: the collectives, rows served by each shard, and peaks by phase."""

    traffic: list[Traffic]
    rows_served: ByRank | None = None
    peak_bytes: dict[str, int] | None = None


_Predict = Callable[[Ids], _Step]
"""From the ids of a step, int64 [P, n]."""


def predictions_of(job: Job, batches: Ids, maps: dict[str, ShardMap]) -> "dict[str, Prediction | None]":
    """For each layout of a job, over batches int64 [steps, P, n]; None for those of others."""
    sizes = TableSizes(job.shards, job.vocab_size, job.hidden, job.bytes_per_element)
    predict = _layouts(job, sizes) | {name: partial(_routed, sizes, shard_map) for name, shard_map in maps.items()}
    return {
        name: None if name in PEERS else _over_steps([predict[name](ids) for ids in batches], job.shards, job.backend)
        for name in job.layouts
    }


def _layouts(job: Job, sizes: TableSizes) -> dict[str, _Predict]:
    no_loads = np.zeros(job.vocab_size, np.int64)
    contiguous, strided = (partition(no_loads, job.shards, name) for name in ("contiguous", "strided"))
    return {
        "contiguous routed raw": partial(_routed, sizes, contiguous, distinct=False),
        "contiguous routed distinct": partial(_routed, sizes, contiguous),
        "strided routed distinct": partial(_routed, sizes, strided),
        "hidden tokens raw": partial(_hidden_tokens, sizes, distinct=False),
        "hidden tokens distinct": partial(_hidden_tokens, sizes, distinct=True),
        "hidden kept": partial(_replicated, "hidden kept", sizes, job.backend),
        "replicated all-reduce": partial(_replicated, "vocab all-reduce", sizes, job.backend),
        "replicated reduce-scatter": partial(_replicated, "vocab reduce-scatter", sizes, job.backend),
        "vocab head with loss": partial(_head, "vocab partitioned", sizes, job),
        "hidden head with loss": partial(_head, "hidden reduce-scatter", sizes, job),
    }


def requests_of(step: Ids, shard_map: ShardMap, distinct: bool = True) -> tuple[ByRank, ByRank]:
    """For the ids of a step, int64 [P, n]: rows that rank a asks of shard b, int64 [P, P], by the planner's chooser; and
    rows that each rank reads in place, int64 [P]. Each distinct id once, or every occurrence."""
    table = SlotTable.of(shard_map)
    requests = np.zeros((len(step), shard_map.num_shards), np.int64)
    in_place = np.zeros(len(step), np.int64)
    for rank, ids in enumerate(step):
        unique, counts = np.unique(ids, return_counts=True)
        number = np.ones_like(counts) if distinct else counts
        asked = table.row_of[unique] != EVERY_SHARD
        np.add.at(requests[rank], choose_slots(unique, rank, table)[asked], number[asked])
        in_place[rank] = number[~asked].sum()
    return requests, in_place


def _tokens(step: Ids) -> ByRank:
    return np.full(len(step), step.shape[1])


def _routed(sizes: TableSizes, shard_map: ShardMap, step: Ids, distinct: bool = True) -> _Step:
    requests, in_place = requests_of(step, shard_map, distinct)
    slots = shard_map.num_slots
    peaks = embedding_buffers("routed", sizes, requests, _tokens(step), in_place=in_place, rows_per_shard=slots)
    traffic = [*embedding_traffic("routed", sizes, requests), *copy_traffic(sizes, shard_map)]
    update = {"update": int(copy_buffers(sizes, shard_map).max())} if shard_map.has_copies else {}
    return _Step(traffic, requests.sum(axis=0), _peaks(peaks) | update)


def _hidden_tokens(sizes: TableSizes, step: Ids, distinct: bool) -> _Step:
    lookups = np.array([np.unique(ids).size if distinct else ids.size for ids in step])
    served = np.full(len(step), lookups.sum())  # each rank some columns of all of them
    peaks = embedding_buffers("hidden tokens", sizes, lookups, _tokens(step))
    return _Step(embedding_traffic("hidden tokens", sizes, lookups), served, _peaks(peaks))


def _replicated(layout: str, sizes: TableSizes, backend: Backend, step: Ids) -> _Step:
    tokens = _tokens(step)
    peaks = embedding_buffers(layout, sizes, tokens, tokens, backend=backend)
    return _Step(embedding_traffic(layout, sizes, tokens), None, _peaks(peaks))


def _head(layout: str, sizes: TableSizes, job: Job, step: Ids) -> _Step:
    tokens = np.full(len(step), job.head_tokens)
    peaks = head_buffers(layout, sizes, tokens, backend=job.backend)
    return _Step(head_traffic(layout, sizes, tokens), None, _peaks(peaks))


def _peaks(buffers: Buffers) -> dict[str, int]:
    return {"forward": int(buffers.forward.max()), "backward": int(buffers.backward.max())}


def _over_steps(steps: list[_Step], num_ranks: int, backend: Backend) -> Prediction:
    sent: dict[tuple[str, str], ByRank] = {}
    for number, step in enumerate(steps):
        for call in step.traffic:
            table = sent.setdefault((call.phase, call.what), np.zeros((len(steps), num_ranks), np.int64))
            table[number] += call.sent_bytes(backend)
    served = [step.rows_served for step in steps if step.rows_served is not None]
    return Prediction(sent, np.array(served) if served else None, steps[0].peak_bytes)
