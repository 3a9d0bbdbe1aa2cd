"""The routed embedding equals `F.embedding` of the whole table, forward and backward, under every map and size."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from skewtool.errors import RouteError
from skewtool.parallel import Route, RoutedEmbedding
from skewtool.parallel.routing import exchange
from skewtool.parallel.routing.slots import _choose, choose, slots_of
from skewtool.sharding import ShardMap, SlotTable, choose_slots, partition

Ranks = Callable[..., None]

VOCAB, WIDTH = 61, 5  # divide by nothing


def _maps(num_shards: int) -> dict[str, ShardMap]:
    loads = 1000 // np.arange(1, VOCAB + 1)
    maps = {name: partition(loads, num_shards, name) for name in ("contiguous", "strided", "random", "balanced")}
    maps["copies"] = partition(loads, num_shards, extra_rows=6)
    return maps


def _batch(rank: int, kind: str) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    if kind == "empty on some" and rank % 2:
        return torch.empty(0, 3, dtype=torch.int64)
    if kind == "empty":
        return torch.empty(0, dtype=torch.int32)
    if kind == "one id":
        return torch.zeros(7, dtype=torch.int32)
    ids = torch.randint(0, VOCAB, (4, 6 + rank), generator=generator).square() // VOCAB  # small ids are frequent
    return ids.t() if kind == "strided" else ids


def _equals_the_unsharded(rank: int, world: int) -> None:
    for kind in ("any", "strided", "empty on some", "empty", "one id"):
        _equals_for_batches(rank, world, kind)
    exchange._MOST_ELEMENTS = 40  # transfers in parts, as above 2^31 - 1 elements
    _equals_for_batches(rank, world, "any")


def _equals_for_batches(rank: int, world: int, kind: str) -> None:
    table = torch.randn(VOCAB, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(99))
    batches = [_batch(other, kind) for other in range(world)]
    scales = [torch.randn(*ids.shape, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(7 + other))
              for other, ids in enumerate(batches)]  # fmt: skip
    whole = table.clone().requires_grad_()
    expected = [F.embedding(ids.long(), whole) for ids in batches]
    torch.stack([(rows * scale).sum() for rows, scale in zip(expected, scales, strict=True)]).sum().backward()  # type: ignore[no-untyped-call]
    for name, shard_map in _maps(world).items():
        for distinct in (True, False):
            embedding = RoutedEmbedding(shard_map, WIDTH, dtype=torch.float64)
            embedding.load_table(table)
            ids = batches[rank]
            rows = embedding(ids, Route.build(ids, shard_map, distinct=distinct))
            assert torch.equal(rows, expected[rank]), name
            (rows * scales[rank]).sum().backward()
            _check_gradient(embedding, shard_map, whole.grad, world)


def _check_gradient(embedding: RoutedEmbedding, shard_map: ShardMap, expected: Tensor | None, world: int) -> None:
    """The gradients of all slots of an id add up to that of its row."""
    assert embedding.weight.grad is not None
    assert expected is not None
    everyone = [torch.empty_like(embedding.weight) for _ in range(world)]
    torch.distributed.all_gather(everyone, embedding.weight.grad)
    total = torch.zeros(VOCAB, WIDTH, dtype=torch.float64)
    for held, gradient in zip(torch.from_numpy(shard_map.token_at.astype(np.int64)), everyone, strict=True):
        total.index_add_(0, held[held >= 0], gradient[held >= 0])
        assert not gradient[held < 0].any(), "empty slots get no gradient"
    torch.testing.assert_close(total, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_it_equals_the_unsharded_embedding(on_ranks: Ranks, world: int) -> None:
    on_ranks(world, _equals_the_unsharded)


def test_a_single_rank_needs_no_process_group() -> None:
    table = torch.randn(VOCAB, WIDTH)
    embedding = RoutedEmbedding(partition(np.ones(VOCAB, int), 1), WIDTH)
    embedding.load_table(table)
    ids = torch.tensor([[3, 3], [60, 0]], dtype=torch.int32)
    assert torch.equal(embedding(ids), F.embedding(ids.long(), table))


def _bad_ids(rank: int, world: int) -> None:
    for bad in (50, 61, -1, 2**40):
        _bad_id(rank, world, bad)


def _bad_id(rank: int, world: int, bad: int) -> None:
    ids = torch.tensor([1, 2, bad]) if rank == world - 1 else torch.tensor([3])
    shard_map = partition(np.arange(VOCAB)[::-1] * (np.arange(VOCAB) < 50), world, real_vocab=50)
    with pytest.raises(RouteError, match=rf"rank {world - 1} has id {bad} at position 2 .* below 50"):
        Route.build(ids, shard_map)
    Route.build(torch.tensor([49]), shard_map)  # nobody was left in a collective


@pytest.mark.parametrize("world", [1, 3])
def test_a_bad_id_raises_on_every_rank(on_ranks: Ranks, world: int) -> None:
    """50 to 60 are padding ids: rows, but no tokens."""
    on_ranks(world, _bad_ids)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(RouteError, match="2 shards, but the group 1 ranks"):
        Route.build(torch.tensor([1]), partition([1, 1], 2))
    with pytest.raises(RouteError, match=r"int32 or int64, got torch\.float32"):
        Route.build(torch.tensor([1.0]), partition([1, 1], 1))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("shards_per_node", [None, 2])
def test_the_chooser_is_the_planners(seed: int, shards_per_node: int | None) -> None:
    loads = 5000 // np.arange(1, 401)
    shard_map = partition(loads, 6, extra_rows=12)
    ids = np.flatnonzero(np.random.default_rng(seed).random(400) < 0.6)
    for source in range(6):
        expected = choose_slots(ids, source, SlotTable.of(shard_map, shards_per_node))
        slots = slots_of(shard_map, source, torch.device("cpu"), shards_per_node)
        padded = torch.from_numpy(np.append(ids, [0, 0, 0]))
        for rule in (choose, _choose):  # on this CPU; as a GPU runs it
            chosen = rule(padded, slots, torch.arange(ids.size + 3) < ids.size)
            assert chosen[: ids.size].tolist() == expected.tolist()
