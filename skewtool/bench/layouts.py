"""`LAYOUTS`: what a bench sets side by side. Each is built once per rank and then runs step after step.

A layout turns the ids of a step, int64 [P, n], of which rank r's own are ids[r], into the rows its rank goes on with, or
into a loss. All use the product's own modules; `peers` has those of others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from skewtool.bench.job import Job
from skewtool.bench.table import fill_columns, fill_slots
from skewtool.parallel import (
    HiddenParallelEmbedding,
    HiddenParallelLMHead,
    RoutedEmbedding,
    VocabParallelEmbedding,
    VocabParallelLMHead,
    vocab_parallel_cross_entropy,
)
from skewtool.sharding import STRATEGIES, ShardMap, partition

__all__ = ["HEADS", "LAYOUTS", "Built", "Place", "build", "mapped"]


@dataclass(frozen=True)
class Place:
    """Where a layout is built: the job, this rank, its device."""

    job: Job
    rank: int
    device: torch.device


@dataclass(frozen=True, eq=False)
class Built:
    """A layout of one rank.

    forward(ids [P, n]) -> rows, or a loss of which every rank holds the same value
    rows          what the rows are: "own" tokens [n, H], "all" tokens [P n, H], or this rank's "columns" [P n, H_r]
    update        what must be done between backward and the optimizer; None where nothing
    """

    module: nn.Module
    forward: Callable[[Tensor], Tensor]
    rows: Literal["own", "all", "columns", "loss"]
    update: Callable[[], None] | None = None


Builder = Callable[[Place], Built]


def _routed(place: Place, shard_map: ShardMap, distinct: bool = True) -> Built:
    job = place.job
    module = RoutedEmbedding(
        job.vocab_size, job.hidden, shard_map, distinct=distinct, device=place.device, dtype=job.torch_dtype
    )
    fill_slots(module.weight, shard_map, place.rank)
    update = module.synchronize_copies if shard_map.has_copies else None
    return Built(module, lambda ids: module(ids[place.rank]), "own", update)


def mapped(shard_map: ShardMap) -> Builder:
    """A routed embedding on a map."""
    return lambda place: _routed(place, shard_map)


def _baseline(strategy: str, distinct: bool) -> Builder:
    def make(place: Place) -> Built:
        assert strategy in STRATEGIES
        no_loads = torch.zeros(place.job.vocab_size, dtype=torch.int64).numpy()
        return _routed(place, partition(no_loads, place.job.shards, strategy), distinct)

    return make


def _hidden(output: Literal["hidden", "tokens"], distinct: bool = True) -> Builder:
    def make(place: Place) -> Built:
        job = place.job
        module = HiddenParallelEmbedding(
            job.vocab_size, job.hidden, output=output, distinct=distinct, device=place.device, dtype=job.torch_dtype
        )
        fill_columns(module.weight, module.columns)
        if output == "tokens":
            return Built(module, lambda ids: module(ids[place.rank]), "own")
        return Built(module, lambda ids: module(ids.reshape(-1)), "columns")

    return make


def _replicated(output: Literal["replicated", "sequence"]) -> Builder:
    def make(place: Place) -> Built:
        job = place.job
        module = VocabParallelEmbedding(
            job.vocab_size, job.hidden, output=output, device=place.device, dtype=job.torch_dtype
        )
        fill_slots(module.weight, module.shard_map, place.rank)
        return Built(module, lambda ids: module(ids.reshape(-1)), "all" if output == "replicated" else "own")

    return make


def _states(place: Place, columns: range) -> Tensor:
    """Hidden states of one head step, of all ranks, [P, m, columns], the same whoever makes them."""
    job = place.job
    generator = torch.Generator().manual_seed(job.seed)
    states = torch.randn(job.shards, job.head_tokens, job.hidden, generator=generator)
    part = states[..., columns.start : columns.stop].to(place.device, job.torch_dtype)
    return part.contiguous().requires_grad_()


def _vocab_head(place: Place) -> Built:
    job = place.job
    module = VocabParallelLMHead(job.vocab_size, job.hidden, device=place.device, dtype=job.torch_dtype)
    fill_slots(module.weight, module.shard_map, place.rank)
    own = _states(place, range(job.hidden))[place.rank].detach().requires_grad_()
    return Built(module, lambda ids: module.loss(own, ids[place.rank, : job.head_tokens], tokens="partitioned"), "loss")


def _hidden_head(place: Place) -> Built:
    job = place.job
    module = HiddenParallelLMHead(job.vocab_size, job.hidden, output="vocab", device=place.device, dtype=job.torch_dtype)
    fill_columns(module.weight, module.columns)
    states = _states(place, module.columns).reshape(-1, len(module.columns)).detach().requires_grad_()

    def forward(ids: Tensor) -> Tensor:
        labels = ids[:, : job.head_tokens].reshape(-1)
        return vocab_parallel_cross_entropy(module(states), labels, module.shard_map)

    return Built(module, forward, "loss")


HEADS: dict[str, Builder] = {"vocab head with loss": _vocab_head, "hidden head with loss": _hidden_head}

LAYOUTS: dict[str, Builder] = {
    "contiguous routed raw": _baseline("contiguous", distinct=False),
    "contiguous routed distinct": _baseline("contiguous", distinct=True),
    "strided routed distinct": _baseline("strided", distinct=True),
    "hidden tokens raw": _hidden("tokens", distinct=False),
    "hidden tokens distinct": _hidden("tokens", distinct=True),
    "hidden kept": _hidden("hidden"),
    "replicated all-reduce": _replicated("replicated"),
    "replicated reduce-scatter": _replicated("sequence"),
    **HEADS,
}


def build(name: str, place: Place, maps: dict[str, ShardMap]) -> Built:
    """The layout of a name: a map's, one of `LAYOUTS`, or one of the peers."""
    from skewtool.bench.peers import PEERS

    if name in maps:
        return mapped(maps[name])(place)
    return (LAYOUTS | PEERS)[name](place)
