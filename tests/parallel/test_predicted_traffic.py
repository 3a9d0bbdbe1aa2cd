"""Predicted collectives equal those that run, to the byte: for each rank, phase and kind of content, in order.

Sizes divide by nothing. What is predicted comes from `skewtool.skew`, which knows nothing of torch; what runs is recorded.
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
    argmax,
    vocab_parallel_cross_entropy,
    vocab_parallel_sample,
    vocab_parallel_topk,
)
from skewtool.parallel.collectives import Collective, record_collectives
from skewtool.parallel.routing import exchange
from skewtool.sharding import ShardMap, SlotTable, choose_slots, partition
from skewtool.sharding.chooser import EVERY_SHARD
from skewtool.skew import traffic as predicting
from skewtool.skew.copy_gradients import copy_traffic
from skewtool.skew.embedding_traffic import embedding_traffic
from skewtool.skew.head_traffic import LossOptions, decoding_traffic, head_traffic
from skewtool.skew.table_sizes import TableSizes
from skewtool.skew.traffic import Phase, Traffic, received, sent

Ranks = Callable[..., None]

VOCAB, HIDDEN = 61, 7
DTYPES = (torch.float32, torch.bfloat16)


class _Run:
    """What this rank did, by phase."""

    def __init__(self) -> None:
        self.calls: dict[Phase, list[Collective]] = {"forward": [], "backward": [], "update": []}

    def forward(self, function: Callable[[], Tensor]) -> Tensor:
        with record_collectives() as self.calls["forward"]:
            return function()

    def backward(self, result: Tensor) -> None:
        with record_collectives() as self.calls["backward"]:
            result.sum().backward()  # type: ignore[no-untyped-call]


def _check(name: str, run: _Run, predicted: Sequence[Traffic], rank: int) -> None:
    """Call by call: kind, what, payload, sent bytes."""
    for phase, calls in run.calls.items():
        found = [(each.kind, each.what, each.payload_bytes, each.sent_bytes) for each in calls]
        expected = [
            (each.kind, each.what, int(each.payload_bytes[rank]), int(each.sent_bytes("gloo")[rank]))
            for each in predicted
            if each.phase == phase
        ]
        assert found == expected, f"{name}, {phase}, rank {rank}"


def _ids(rank: int, number: int) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(0, VOCAB, (number,), generator=generator).square() // VOCAB  # small ids are frequent


def _requests(batches: Sequence[Tensor], shard_map: ShardMap, distinct: bool) -> npt.NDArray[np.int64]:
    """int64 [P, P]: what each rank asks of each shard."""
    table, number = SlotTable.of(shard_map), shard_map.num_shards
    found = np.zeros((number, number), np.int64)
    for rank, ids in enumerate(batches):
        unique, counts = np.unique(ids.numpy(), return_counts=True)
        asked = table.row_of[unique] != EVERY_SHARD  # others are read in place
        chosen = choose_slots(unique.astype(np.int32), rank, table)[asked]
        found[rank] = np.bincount(chosen, None if distinct else counts[asked], number)
    return found


def _maps(num_shards: int) -> dict[str, ShardMap]:
    loads = 1000 // np.arange(1, VOCAB + 1)
    maps = {name: partition(loads, num_shards, name) for name in ("contiguous", "strided")}
    return maps | {"copies": partition(loads, num_shards, extra_rows=6)}


def _embeddings(rank: int, world: int, dtype: torch.dtype) -> None:
    sizes = TableSizes(world, VOCAB, HIDDEN, dtype.itemsize)
    batches = [_ids(other, 11 + 3 * other) for other in range(world)]
    for name, shard_map in _maps(world).items():
        for distinct in (True, False):
            requests = _requests(batches, shard_map, distinct)
            embedding = RoutedEmbedding(VOCAB, HIDDEN, shard_map, distinct=distinct, dtype=dtype)
            predicted = embedding_traffic("routed", sizes, requests)
            _embedding_case(f"routed, {name}, {distinct}", embedding, batches[rank], predicted, rank)
        for capacity in (1, 2, 40) if name != "copies" else (40,):  # what overflows chooses anew among copies
            embedding = RoutedEmbedding(VOCAB, HIDDEN, shard_map, capacity=capacity, dtype=dtype)
            requests = _requests(batches, shard_map, True)
            predicted = embedding_traffic("routed fixed capacity", sizes, requests, capacity=capacity)
            _embedding_case(f"capacity {capacity}, {name}", embedding, batches[rank], predicted, rank)
    for distinct in (True, False):
        lookups = [np.unique(ids.numpy()).size if distinct else ids.numel() for ids in batches]
        tokens = HiddenParallelEmbedding(VOCAB, HIDDEN, output="tokens", distinct=distinct, dtype=dtype)
        _embedding_case("tokens", tokens, batches[rank], embedding_traffic("hidden tokens", sizes, lookups), rank)
    everyone = torch.cat(batches)
    numbers = [ids.numel() for ids in batches]
    replicated: dict[str, torch.nn.Module] = {
        "hidden kept": HiddenParallelEmbedding(VOCAB, HIDDEN, output="hidden", dtype=dtype),
        "hidden replicated": HiddenParallelEmbedding(VOCAB, HIDDEN, output="replicated", dtype=dtype),
        "vocab all-reduce": VocabParallelEmbedding(VOCAB, HIDDEN, dtype=dtype),
        "vocab reduce-scatter": VocabParallelEmbedding(VOCAB, HIDDEN, output="sequence", dtype=dtype),
    }
    for name, module in replicated.items():
        _embedding_case(name, module, everyone, embedding_traffic(name, sizes, numbers), rank)


def _embedding_case(name: str, embedding: Any, ids: Tensor, predicted: Sequence[Traffic], rank: int) -> None:
    embedding.reset_parameters(seed=3)
    run = _Run()
    run.backward(run.forward(lambda: embedding(ids)))
    if hasattr(embedding, "synchronize_copies") and embedding.shard_map.has_copies:
        with record_collectives() as run.calls["update"]:
            embedding.synchronize_copies()
        sizes = TableSizes(embedding.shard_map.num_shards, VOCAB, HIDDEN, embedding.weight.element_size())
        predicted = [*predicted, *copy_traffic(sizes, embedding.shard_map)]
    _check(name, run, predicted, rank)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_embeddings(on_ranks: Ranks, world: int) -> None:
    on_ranks(world, _all_embeddings)


def _all_embeddings(rank: int, world: int) -> None:
    for dtype in DTYPES:
        _embeddings(rank, world, dtype)
    with pytest.MonkeyPatch.context() as patch:
        for module in (exchange, predicting):
            patch.setattr(module, "_MOST_ELEMENTS", 40)  # transfers in parts, as above 2^31 - 1 elements
        _embeddings(rank, world, torch.float32)


def _heads(rank: int, world: int, dtype: torch.dtype) -> None:
    shard_map = _maps(world)["copies"]
    sizes = TableSizes(world, VOCAB, HIDDEN, dtype.itemsize)
    numbers = [5 + 3 * other for other in range(world)]
    for tokens in ("replicated", "partitioned"):
        number, seed = (sum(numbers), 99) if tokens == "replicated" else (numbers[rank], rank)
        hidden = torch.randn(number, HIDDEN, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_()
        _chunked_losses(rank, shard_map, sizes, numbers, tokens, hidden)
        _loss_of_logits(rank, shard_map, sizes, numbers, tokens, hidden)
    _no_gradients(rank, world, dtype)
    _hidden_heads(rank, shard_map, dtype, sizes, numbers)


def _name(layout: str, tokens: str) -> str:
    return layout if tokens == "replicated" else f"{layout} {tokens}"


def _chunked_losses(
    rank: int, shard_map: ShardMap, sizes: TableSizes, numbers: Sequence[int], tokens: str, hidden: Tensor
) -> None:
    labels, name = _ids(7, hidden.size(0)), _name("vocab", tokens)
    for per_token in (False, True):
        for chunk, smoothing in ((None, 0.0), (4, 0.1), (3 * sizes.num_shards + 1, 0.0)):
            head, run = _vocab_head(shard_map, hidden.dtype), _Run()
            loss = partial(
                head.loss, hidden, labels, tokens=tokens, reduction="none" if per_token else "mean",
                label_smoothing=smoothing, tokens_per_chunk=chunk,
            )  # fmt: skip
            run.backward(run.forward(loss))
            options = LossOptions(shard_map.home_slots, chunk, per_token, smoothing=smoothing > 0)
            _check(f"{name}, {chunk}, {per_token}", run, head_traffic(name, sizes, numbers, options), rank)


def _loss_of_logits(
    rank: int, shard_map: ShardMap, sizes: TableSizes, numbers: Sequence[int], tokens: Any, hidden: Tensor
) -> None:
    head, run = _vocab_head(shard_map, hidden.dtype), _Run()
    labels, name = _ids(8, sum(numbers)), _name("vocab logits", tokens)
    run.backward(run.forward(lambda: vocab_parallel_cross_entropy(head(hidden, tokens), labels, shard_map)))
    _check(name, run, head_traffic(name, sizes, numbers, LossOptions(shard_map.home_slots)), rank)


def _vocab_head(shard_map: ShardMap, dtype: torch.dtype) -> VocabParallelLMHead:
    head = VocabParallelLMHead(VOCAB, HIDDEN, shard_map, dtype=dtype)
    head.reset_parameters(seed=1)
    return head


def _no_gradients(rank: int, world: int, dtype: torch.dtype) -> None:
    head, run = _vocab_head(_maps(world)["strided"], dtype), _Run()
    hidden, labels = torch.ones(9, HIDDEN, dtype=dtype), _ids(0, 9)
    with torch.no_grad():
        run.forward(lambda: head.loss(hidden, labels, check_labels=False))
    sizes = TableSizes(world, VOCAB, HIDDEN, dtype.itemsize)
    tokens = [9] + [0] * (world - 1)
    predicted = head_traffic("vocab", sizes, tokens, LossOptions(gradients=False, check_labels=False))
    _check("no gradients", run, predicted, rank)


def _hidden_heads(
    rank: int, shard_map: ShardMap, dtype: torch.dtype, sizes: TableSizes, numbers: Sequence[int]
) -> None:
    labels = _ids(99, sum(numbers))
    losses: dict[str, tuple[str, Callable[..., Tensor]]] = {
        "hidden all-reduce": ("replicated", torch.nn.functional.cross_entropy),
        "hidden reduce-scatter": ("vocab", partial(vocab_parallel_cross_entropy, shard_map=shard_map)),
    }
    for name, (output, loss) in losses.items():
        head = HiddenParallelLMHead(VOCAB, HIDDEN, shard_map, output=output, dtype=dtype)  # type: ignore[arg-type]
        head.reset_parameters(seed=1)
        for states in ("hidden", "replicated"):
            width = HIDDEN if states == "replicated" else len(head.columns)
            hidden, run = torch.ones(len(labels), width, dtype=dtype, requires_grad=True), _Run()
            run.backward(run.forward(partial(_composed, head, hidden, states, loss, labels)))
            options = LossOptions(shard_map.home_slots, states=states)
            _check(f"{name}, {states}", run, head_traffic(name, sizes, numbers, options), rank)


def _composed(head: Any, hidden: Tensor, states: str, loss: Callable[..., Tensor], labels: Tensor) -> Tensor:
    return loss(head(hidden, states=states), labels)


def _decoding(rank: int, world: int) -> None:
    shard_map = _maps(world)["copies"]
    sizes = TableSizes(world, VOCAB, HIDDEN, 4)
    logits = torch.randn(3, shard_map.home_slots, generator=torch.Generator().manual_seed(rank))
    choices: dict[tuple[str, int], Callable[[], Any]] = {
        ("top-k", number): partial(vocab_parallel_topk, logits, number, shard_map) for number in (5, 50, 1000)
    }
    choices["sampling", 1] = partial(vocab_parallel_sample, logits, shard_map, seed=1, step=2)
    choices["argmax", 1] = partial(argmax, logits, shard_map)
    for (name, top_k), choose in choices.items():
        run = _Run()
        run.forward(choose)
        _check(f"{name} {top_k}", run, decoding_traffic(name, sizes, 3, top_k, shard_map.home_slots), rank)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_heads_and_decoding(on_ranks: Ranks, world: int) -> None:
    on_ranks(world, _all_heads)


def _all_heads(rank: int, world: int) -> None:
    for dtype in DTYPES:
        _heads(rank, world, dtype)
    _decoding(rank, world)


def test_what_is_sent_arrives() -> None:
    sizes = TableSizes(3, VOCAB, HIDDEN, 2)
    calls = embedding_traffic("routed", sizes, [[4, 2, 9], [0, 1, 0], [5, 5, 5]])
    for backend in ("gloo", "nccl"):
        assert sent(calls, 3, backend).sum() == received(calls, 3, backend).sum() > 0
