"""Routes: built once, used by many tables; ranks without tokens, shards without rows; refusals on every rank."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist

from skewtool.errors import RouteError
from skewtool.parallel.collectives import record_collectives
from skewtool.parallel.routing import Route
from skewtool.sharding import ShardMap
from tests.parallel.comparing import assert_equal, backward, drawn
from tests.parallel.maps import REAL_VOCAB, VOCAB, maps_of

Ranks = Callable[..., None]


def _one_route_for_several_tables(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    ids = torch.randint(0, REAL_VOCAB, (3, 5 + rank), generator=torch.Generator().manual_seed(rank))
    for name, shard_map in maps.items():
        held = torch.tensor(shard_map.token_at[rank]).long().clamp(min=0)
        ahead = Route.build(ids.flip(0), shard_map)
        route = Route.build(ids, shard_map)
        for table in (drawn(VOCAB, 4, seed=1), drawn(VOCAB, 9, seed=2, dtype=torch.bfloat16)):
            for _ in range(2):
                assert torch.equal(route.lookup(table[held]), table[ids]), name
            assert torch.equal(ahead.lookup(table[held]), table[ids.flip(0)]), name


def test_one_route_serves_all_tables_of_its_map(on_ranks: Ranks) -> None:
    """As often as they like; and another may be built before it is used."""
    on_ranks(3, _one_route_for_several_tables, maps_of(3))


IDLE = ShardMap.from_homes(torch.tensor([0, 0, 0, 0, 1, 2, 2]).numpy(), 4)
"""Ids 0 to 3 live on rank 0; rank 3 has no rows."""

BATCHES: dict[str, list[list[int]]] = {
    "all ids on rank 0": [[0, 1], [2, 2, 3], [0], [3, 1]],
    "rank 2 has no tokens": [[4, 5], [6, 0], [], [5, 5, 5]],
    "no rank has tokens": [[], [], [], []],
    "rank 0 alone has tokens": [[6, 0, 4, 4], [], [], []],
}


def _idle_ranks_take_part(rank: int, world: int) -> None:
    table = drawn(7, 3, seed=4)
    held = torch.tensor(IDLE.token_at[rank]).long()
    weight = torch.where((held >= 0)[:, None], table[held.clamp(min=0)], 0).requires_grad_()
    for name, batches in BATCHES.items():
        ids = torch.tensor(batches[rank], dtype=torch.int64)[:, None]
        for _ in range(2):  # a second step
            weight.grad = None
            with record_collectives() as calls:
                rows = Route.build(ids, IDLE).lookup(weight)
                backward(rows.sum())
            assert rows.shape == (len(batches[rank]), 1, 3), name
            assert torch.equal(rows.detach(), table[ids]), name
            everyone = torch.tensor([token for batch in batches for token in batch], dtype=torch.int64)
            asked = everyone.bincount(minlength=8)  # the last is for empty slots
            assert_equal(weight.grad, asked[held, None].double().expand(-1, 3), f"gradient, {name}")
            _as_many_on_every_rank(len(calls), 4, world)


def _as_many_on_every_rank(number: int, expected: int, world: int) -> None:
    everyone: list[int] = [0] * world
    dist.all_gather_object(everyone, number)
    assert everyone == [expected] * world


def test_idle_ranks_take_part_in_every_collective(on_ranks: Ranks) -> None:
    on_ranks(4, _idle_ranks_take_part)


def _some_ranks_want_no_gradients(rank: int, world: int) -> None:
    table = drawn(7, 3, seed=4)
    held = torch.tensor(IDLE.token_at[rank]).long().clamp(min=0)
    weight = table[held].requires_grad_(rank != 1)
    ids = torch.tensor(BATCHES["rank 2 has no tokens"][rank], dtype=torch.int64)
    with torch.set_grad_enabled(rank != 3), record_collectives() as calls:
        rows = Route.build(ids, IDLE).lookup(weight)
    assert torch.equal(rows.detach(), table[ids])
    assert rows.requires_grad == (rank not in (1, 3))
    _as_many_on_every_rank(len(calls), 3, world)


def test_forward_is_the_same_where_some_ranks_want_no_gradients(on_ranks: Ranks) -> None:
    on_ranks(4, _some_ranks_want_no_gradients)


def test_a_map_of_another_size_is_refused() -> None:
    with pytest.raises(RouteError, match="2 shards, but the group 1 ranks"):
        Route.build(torch.tensor([1]), ShardMap.contiguous(2, 2))


def test_ids_must_be_integers() -> None:
    with pytest.raises(RouteError, match=r"int32 or int64, got torch\.float32"):
        Route.build(torch.tensor([1.0]), ShardMap.contiguous(2, 1))
