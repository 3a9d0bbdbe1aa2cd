"""Predicted buffers are within a tenth of the memory that forward and backward really allocate, of every layout and rank.

A backend may hold a tensor a moment longer, so that the least of a few runs counts.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import Tensor

from skewtool.parallel import (
    HiddenParallelEmbedding,
    HiddenParallelLMHead,
    RoutedEmbedding,
    VocabParallelEmbedding,
    VocabParallelLMHead,
    vocab_parallel_cross_entropy,
)
from skewtool.sharding import ShardMap, SlotTable, choose_slots, partition
from skewtool.sharding.chooser import EVERY_SHARD
from skewtool.skew import Buffers, LossOptions, TableSizes, copy_buffers, embedding_buffers, head_buffers

Ranks = Callable[..., None]

VOCAB, HIDDEN = 2001, 250  # large enough that integers weigh little, and divide by nothing
RUNS = 3


def _peak(work: Callable[[], Any]) -> int:
    """Bytes allocated at the peak, above what was before."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    results: Any = profiler.profiler
    events = [event for event in results.kineto_results.events() if event.name() == "[memory]"]
    sizes = [event.nbytes() for event in sorted(events, key=lambda event: int(event.start_ns()))]
    return int(np.cumsum([0, *sizes]).max())


def _check(name: str, rank: int, predicted: Buffers, forward: Callable[[], Tensor], inputs: Sequence[Tensor]) -> None:
    """`forward` of a result, then its backward; gradients of `inputs` are dropped before each run."""
    results: list[Tensor] = []

    def backward() -> None:
        result = results.pop()
        result.backward(torch.ones_like(result))  # type: ignore[no-untyped-call]

    found = []
    for _ in range(RUNS):
        for each in inputs:
            each.grad = None
        found.append((_peak(lambda: results.append(forward())), _peak(backward)))
    for phase, measured, expected in zip(
        ("forward", "backward"), np.min(found, axis=0), (predicted.forward[rank], predicted.backward[rank]), strict=True
    ):
        assert abs(measured - expected) <= max(0.1 * measured, 1000), f"{name}, {phase}: {measured}, not {expected}"


def _check_update(name: str, module: RoutedEmbedding, expected: int) -> None:
    measured = min(_peak(module.synchronize_copies) for _ in range(RUNS))
    assert abs(measured - expected) <= max(0.1 * measured, 1000), f"{name}, update: {measured}, not {expected}"


def _ids(rank: int) -> Tensor:
    return (torch.rand(900 + 57 * rank, generator=torch.Generator().manual_seed(rank)) ** 3 * VOCAB).long()


def _requests(
    batches: Sequence[Tensor], shard_map: ShardMap, distinct: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    table, number = SlotTable.of(shard_map), shard_map.num_shards
    found, in_place = np.zeros((number, number), np.int64), np.zeros(number, np.int64)
    for rank, ids in enumerate(batches):
        unique, counts = np.unique(ids.numpy(), return_counts=True)
        times, everywhere = np.ones_like(counts) if distinct else counts, table.row_of[unique] == EVERY_SHARD
        in_place[rank] = times[everywhere].sum()
        np.add.at(found[rank], choose_slots(unique.astype(np.int32), rank, table)[~everywhere], times[~everywhere])
    return found, in_place


def _next_shard_copies(shard_map: ShardMap, number: int) -> npt.NDArray[np.int32]:
    """Copies int32 [P, number] of the first ids of each shard on the next one; of fewer ids on each."""
    copies = np.roll(shard_map.token_at[:, :number], 1, axis=0).astype(np.int32)
    copies[np.arange(number) >= number - 20 * np.arange(shard_map.num_shards)[:, None]] = -1
    return copies


def _embeddings(rank: int, world: int, dtype: torch.dtype) -> None:
    sizes = TableSizes(world, VOCAB, HIDDEN, dtype.itemsize)
    predict = partial(embedding_buffers, sizes=sizes, backend="gloo")
    batches = [_ids(other) for other in range(world)]
    tokens = [len(ids) for ids in batches]

    def check(name: str, module: Any, ids: Tensor, predicted: Buffers) -> None:
        module.reset_parameters(seed=1)
        module(ids).sum().backward()  # caches
        _check(f"{name}, {dtype}", rank, predicted, lambda: module(ids), [module.weight])

    loads = 1000 // np.arange(1, VOCAB + 1)
    maps = {"contiguous": partition(loads, world, "contiguous"), "copies": partition(loads, world, extra_rows="10%")}
    maps["two slots"] = maps["contiguous"].with_copies(_next_shard_copies(maps["contiguous"], 150))
    for name, shard_map in maps.items():
        for distinct in (True, False):
            requests, in_place = _requests(batches, shard_map, distinct)
            module = RoutedEmbedding(VOCAB, HIDDEN, shard_map, distinct=distinct, dtype=dtype)
            slots = shard_map.num_slots
            predicted = predict("routed", requests=requests, tokens=tokens, in_place=in_place, rows_per_shard=slots)
            check(f"routed, {name}, {distinct}", module, batches[rank], predicted)
        _check_update(f"{name}, {dtype}", module, int(copy_buffers(sizes, shard_map)[rank]))
        capacity = int(_requests(batches, shard_map, True)[0].max())
        fixed = RoutedEmbedding(VOCAB, HIDDEN, shard_map, capacity=capacity, dtype=dtype)
        predicted = predict(
            "routed fixed capacity", requests=requests, tokens=tokens, rows_per_shard=slots, capacity=capacity
        )
        check(f"fixed capacity, {name}", fixed, batches[rank], predicted)
    for distinct in (True, False):
        lookups = [len(np.unique(ids.numpy())) if distinct else len(ids) for ids in batches]
        hidden = HiddenParallelEmbedding(VOCAB, HIDDEN, output="tokens", distinct=distinct, dtype=dtype)
        check(f"tokens, {distinct}", hidden, batches[rank], predict("hidden tokens", requests=lookups, tokens=tokens))
    replicated: dict[str, Any] = {
        "hidden kept": HiddenParallelEmbedding(VOCAB, HIDDEN, output="hidden", dtype=dtype),
        "hidden replicated": HiddenParallelEmbedding(VOCAB, HIDDEN, output="replicated", dtype=dtype),
        "vocab all-reduce": VocabParallelEmbedding(VOCAB, HIDDEN, dtype=dtype),
        "vocab reduce-scatter": VocabParallelEmbedding(VOCAB, HIDDEN, output="sequence", dtype=dtype),
    }
    for name, module in replicated.items():
        check(name, module, torch.cat(batches), predict(name, requests=tokens, tokens=tokens))


def _heads(rank: int, world: int, dtype: torch.dtype) -> None:
    sizes = TableSizes(world, VOCAB, HIDDEN, dtype.itemsize)
    tokens = [97 + 11 * other for other in range(world)]
    shard_map = ShardMap.contiguous(VOCAB, world)
    labels = torch.arange(sum(tokens))

    def check(name: str, head: Any, hidden: Tensor, loss: Callable[[], Tensor], chunk: int | None = None) -> None:
        predicted = head_buffers(name, sizes, tokens, LossOptions(tokens_per_chunk=chunk), backend="gloo")
        loss().backward()  # type: ignore[no-untyped-call]
        _check(f"{name}, {chunk}, {dtype}", rank, predicted, loss, [hidden, head.weight])

    head = VocabParallelLMHead(VOCAB, HIDDEN, shard_map, dtype=dtype)
    head.reset_parameters(seed=1)
    whole, own = (torch.randn(number, HIDDEN).to(dtype).requires_grad_() for number in (sum(tokens), tokens[rank]))
    for chunk in (None, 60):
        check("vocab", head, whole, partial(head.loss, whole, labels, tokens_per_chunk=chunk), chunk)
        part = partial(head.loss, own, labels[: tokens[rank]], tokens="partitioned", tokens_per_chunk=chunk)
        check("vocab partitioned", head, own, part, chunk)
    check("vocab logits", head, whole, lambda: vocab_parallel_cross_entropy(head(whole), labels, shard_map))
    check("vocab logits partitioned", head, own,
          lambda: vocab_parallel_cross_entropy(head(own, "partitioned"), labels, shard_map))  # fmt: skip
    reduced, scattered = (
        HiddenParallelLMHead(VOCAB, HIDDEN, shard_map, output=output, dtype=dtype) for output in ("replicated", "vocab")
    )
    columns = torch.randn(sum(tokens), len(reduced.columns)).to(dtype).requires_grad_()
    for each in (reduced, scattered):
        each.reset_parameters(seed=1)
    check("hidden all-reduce", reduced, columns,
          lambda: torch.nn.functional.cross_entropy(reduced(columns), labels))  # fmt: skip
    check("hidden reduce-scatter", scattered, columns,
          lambda: vocab_parallel_cross_entropy(scattered(columns), labels, shard_map))  # fmt: skip


def _all(rank: int, world: int, dtype: torch.dtype) -> None:
    _embeddings(rank, world, dtype)
    _heads(rank, world, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_buffers(on_ranks: Ranks, dtype: torch.dtype) -> None:
    on_ranks(3, _all, dtype)
