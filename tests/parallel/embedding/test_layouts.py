"""Every embedding layout and output equals `F.embedding` of the whole table, forward and backward, under every map."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from skewtool.parallel.embedding import (
    HiddenParallelEmbedding,
    RoutedEmbedding,
    ShardedEmbedding,
    VocabParallelEmbedding,
)
from skewtool.parallel.hidden_columns import columns_of
from skewtool.parallel.tokens import own_tokens
from skewtool.sharding import ShardMap
from tests.parallel.comparing import assert_equal, backward, drawn, rms, sum_by_id
from tests.parallel.maps import REAL_VOCAB, VOCAB, maps_of

Ranks = Callable[..., None]

WIDTH = 7


@dataclass(frozen=True)
class Layout:
    """How to make an embedding, and what a rank has of rows [*shape, H] of ids: all ranks' or its own."""

    make: Callable[..., ShardedEmbedding]
    own_ids: bool
    part: Callable[[Tensor, int, int], Tensor] = lambda rows, rank, world: rows

    def batches(self, rank: int, world: int) -> tuple[int, slice]:
        """Which batch a rank looks up, and all that are looked up."""
        return (rank, slice(0, world)) if self.own_ids else (world - 1, slice(world - 1, world))


def _tokens(rows: Tensor, rank: int, world: int) -> Tensor:
    tokens = own_tokens(rows.shape[:-1].numel(), rank, world)
    return rows.flatten(0, -2)[tokens.start : tokens.stop]


def _columns(rows: Tensor, rank: int, world: int) -> Tensor:
    columns = columns_of(rows.size(-1), world, rank)
    return rows[..., columns.start : columns.stop]


LAYOUTS = {
    "vocab, replicated": Layout(VocabParallelEmbedding, own_ids=False),
    "vocab, sequence": Layout(partial(VocabParallelEmbedding, output="sequence"), own_ids=False, part=_tokens),
    "routed": Layout(RoutedEmbedding, own_ids=True),
    "routed, raw": Layout(partial(RoutedEmbedding, distinct=False), own_ids=True),
    "routed, fixed capacity": Layout(partial(RoutedEmbedding, capacity=3), own_ids=True),
    "hidden": Layout(HiddenParallelEmbedding, own_ids=False, part=_columns),
    "hidden, replicated": Layout(partial(HiddenParallelEmbedding, output="replicated"), own_ids=False),
    "hidden, tokens": Layout(partial(HiddenParallelEmbedding, output="tokens"), own_ids=True),
    "hidden, tokens, raw": Layout(partial(HiddenParallelEmbedding, output="tokens", distinct=False), own_ids=True),
}


def _batches(kind: str, world: int, vocab: int) -> list[Tensor]:
    """The ids of each rank, int32 or int64, contiguous or not; where "some are idle" none on every other rank."""
    batches = []
    for rank in range(world):
        generator = torch.Generator().manual_seed(rank)
        ids = torch.randint(0, vocab, (4, 6 + rank), generator=generator).square() // vocab  # small ids are frequent
        if kind == "some are idle" and rank % 2 == 0:
            ids = ids[:0]
        batches.append(ids.t() if rank % 2 else ids.int())
    return batches


def _unsharded(table: Tensor, batches: list[Tensor], upstream: list[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Rows of each batch, and the gradient of the table."""
    whole = table.clone().requires_grad_()
    rows = [F.embedding(ids.long(), whole) for ids in batches]
    torch.autograd.backward(rows, upstream)
    assert whole.grad is not None
    return [each.detach() for each in rows], whole.grad


def _sharded(
    layout: Layout, shard_map: ShardMap, table: Tensor, ids: Tensor, upstream: Tensor, rank: int, world: int
) -> tuple[Tensor, Tensor]:
    """This rank's rows, and the gradient of the table by id ([V, H_r] for hidden layouts)."""
    embedding = layout.make(*table.shape, shard_map, dtype=table.dtype)
    embedding.load_table(table)
    rows = embedding(ids)
    backward(rows, layout.part(upstream, rank, world))
    assert embedding.weight.grad is not None
    if isinstance(embedding, HiddenParallelEmbedding):
        return rows.detach(), embedding.weight.grad
    return rows.detach(), sum_by_id(embedding.weight.grad, shard_map)


def _equal_the_unsharded(rank: int, world: int, maps: dict[str, ShardMap], maps_of_three: dict[str, ShardMap]) -> None:
    table = drawn(VOCAB, WIDTH, seed=9)
    _equal_for(rank, world, table, maps, _batches("busy", world, REAL_VOCAB))
    _equal_for(rank, world, table, maps, _batches("some are idle", world, REAL_VOCAB))
    _equal_for(rank, world, drawn(3, 2, seed=9), maps_of_three, _batches("busy", world, 3))


def _equal_for(rank: int, world: int, table: Tensor, maps: dict[str, ShardMap], batches: list[Tensor]) -> None:
    upstream = [drawn(*ids.shape, table.size(1), seed=source) for source, ids in enumerate(batches)]
    for name, layout in LAYOUTS.items():
        own, used = layout.batches(rank, world)
        expected, gradient = _unsharded(table, batches[used], upstream[used])
        if name.startswith("hidden"):
            gradient = _columns(gradient, rank, world)
        for map_name, shard_map in maps.items():
            rows, found = _sharded(layout, shard_map, table, batches[own], upstream[own], rank, world)
            what = f"{name} under {map_name}, {shard_map.vocab_size} ids, {rows.shape}"
            assert torch.equal(rows, layout.part(expected[own - used.start], rank, world)), f"rows of {what}"
            assert_equal(found, gradient, f"gradient of {what}")


@pytest.mark.parametrize("world", [1, 2, 3, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_every_layout_equals_the_unsharded_embedding(on_ranks: Ranks, world: int) -> None:
    """Rows bit by bit, the gradient within 1e-10; also with fewer ids than shards and fewer columns than ranks."""
    on_ranks(world, _equal_the_unsharded, maps_of(world), maps_of(world, 3, 3))


def _as_exact_as_unsharded(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    ids = [torch.randint(0, REAL_VOCAB, (997,), generator=torch.Generator().manual_seed(each)) for each in range(world)]
    batches = [each * each // REAL_VOCAB * each // REAL_VOCAB for each in ids]  # hot ids, as in text
    for dtype, allowance in ((torch.float32, 2), (torch.bfloat16, 1)):
        table = drawn(VOCAB, WIDTH, seed=9, dtype=dtype)
        upstream = [drawn(997, WIDTH, seed=5 + source, dtype=dtype) for source in range(world)]
        for name, layout in LAYOUTS.items():
            own, used = layout.batches(rank, world)
            rows, unsharded = _unsharded(table, batches[used], upstream[used])
            _, exact = _unsharded(table.double(), batches[used], [each.double() for each in upstream[used]])
            if name.startswith("hidden"):
                unsharded, exact = _columns(unsharded, rank, world), _columns(exact, rank, world)
            for shard_map in (maps["balanced"], maps["copies"]):
                found, gradient = _sharded(layout, shard_map, table, batches[own], upstream[own], rank, world)
                assert torch.equal(found, layout.part(rows[own - used.start], rank, world)), name
                assert rms(gradient - exact) <= allowance * rms(unsharded - exact), (name, dtype)


@pytest.mark.parametrize("world", [2, 3])
def test_in_fewer_bits_they_are_as_exact_as_the_unsharded_embedding(on_ranks: Ranks, world: int) -> None:
    """Rows are the same bits. Gradients in bf16 have less error, for they are added up in float32. In float32 the same
    numbers are added in another order, which is better or worse by chance: hence a factor of two."""
    on_ranks(world, _as_exact_as_unsharded, maps_of(world))
