"""The routed embedding in training: gradients of repeated ids and of copies are summed before an optimizer sees them."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from skewtool.parallel.embedding import RoutedEmbedding
from skewtool.parallel.routing import FixedCapacityRoute, Route
from skewtool.sharding import ShardMap
from tests.parallel.comparing import assert_equal, backward, drawn
from tests.parallel.maps import REAL_VOCAB, VOCAB, maps_of

Ranks = Callable[..., None]

WIDTH = 3


def _batch(rank: int, step: int) -> torch.Tensor:
    """Hot ids, many times each; in the second step rank 0 has none."""
    generator = torch.Generator().manual_seed(10 * step + rank)
    ids = torch.randint(0, REAL_VOCAB, (0 if step == 1 and rank == 0 else 50,), generator=generator)
    return ids * ids // REAL_VOCAB * ids // REAL_VOCAB


def _adam(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    table = drawn(VOCAB, WIDTH, seed=1)
    targets = drawn(VOCAB, WIDTH, seed=2)
    whole = table.clone().requires_grad_()
    optimizer = torch.optim.Adam([whole], lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        ids = torch.cat([_batch(source, step) for source in range(world)])
        backward(F.mse_loss(F.embedding(ids, whole), targets[ids], reduction="sum"))
        optimizer.step()
    for name, shard_map in maps.items():
        embedding = RoutedEmbedding(VOCAB, WIDTH, shard_map, dtype=torch.float64)
        embedding.load_table(table)
        sharded = torch.optim.Adam(embedding.parameters(), lr=0.1)
        for step in range(3):
            sharded.zero_grad()
            ids = _batch(rank, step)
            backward(F.mse_loss(embedding(ids), targets[ids], reduction="sum"))
            embedding.synchronize_copies()
            sharded.step()
            held = torch.tensor(shard_map.token_at[rank]).long()
            rows = embedding.gather_table()[held.clamp(min=0)]
            assert torch.equal(embedding.weight[held >= 0], rows[held >= 0]), f"copies are their homes, {name}"
        assert_equal(embedding.gather_table(), whole.detach(), name)


def test_adam_sees_one_gradient_per_row(on_ranks: Ranks) -> None:
    """However often an id is looked up, on whichever rank, and in however many slots it lives."""
    on_ranks(3, _adam, maps_of(3))


def _a_rank_without_a_gradient(rank: int, world: int, shard_map: ShardMap) -> None:
    embedding = RoutedEmbedding(VOCAB, WIDTH, shard_map, dtype=torch.float64)
    embedding.load_table(drawn(VOCAB, WIDTH, seed=1))
    everywhere = [token for token in range(VOCAB) if shard_map.num_copies[token] == world - 1]
    assert everywhere
    if rank == 0:  # reads in place, so that the others need no backward
        assert embedding.weight.grad is None
        embedding.weight.grad = torch.zeros_like(embedding.weight)
        held = torch.tensor(shard_map.token_at[rank]).long()
        embedding.weight.grad[(held[:, None] == torch.tensor(everywhere)).any(1)] = 1
    embedding.synchronize_copies()
    assert embedding.weight.grad is not None
    held = torch.tensor(shard_map.token_at[rank]).long()
    expected = (held[:, None] == torch.tensor(everywhere)).any(1)
    assert torch.equal(embedding.weight.grad, expected[:, None].double().expand(-1, WIDTH))


def test_a_rank_without_a_gradient_takes_part_in_synchronizing(on_ranks: Ranks) -> None:
    on_ranks(2, _a_rank_without_a_gradient, maps_of(2)["copies"])


def test_it_makes_the_route_that_was_asked_for() -> None:
    ids = torch.tensor([3, 3, 1])
    assert isinstance(RoutedEmbedding(4, WIDTH).route(ids), Route)
    assert isinstance(RoutedEmbedding(4, WIDTH, capacity=2).route(ids), FixedCapacityRoute)
    embedding = RoutedEmbedding(4, WIDTH)
    embedding.load_table(drawn(4, WIDTH, seed=1))
    route = embedding.route(ids)
    assert torch.equal(embedding(ids, route), embedding(ids))
