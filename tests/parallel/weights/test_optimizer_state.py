"""Optimizer state goes with its table: moments by row, counters as they are."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist

from skewtool.errors import MapError
from skewtool.parallel import record_collectives, reshard_state, shard_weight
from skewtool.sharding import ShardMap

Ranks = Callable[..., None]
MapsOf = Callable[[int, int], dict[str, ShardMap]]


def _adam_state(vocab_size: int) -> dict[str, Any]:
    """What Adam keeps for a table after three steps, and a plain value beside."""
    table = torch.nn.Parameter(torch.randn(vocab_size, 5, generator=torch.Generator().manual_seed(2)))
    optimizer = torch.optim.Adam([table])
    for step in range(3):
        optimizer.zero_grad()
        (table**2 * (torch.arange(vocab_size)[:, None] + step)).sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {**optimizer.state[table], "decay": 0.5}


def _sharded(state: dict[str, Any], shard_map: ShardMap, rank: int) -> dict[str, Any]:
    return {name: shard_weight(each, shard_map, rank) if name.startswith("exp") else each for name, each in state.items()}


def _check(result: dict[str, Any] | None, state: dict[str, Any], shard_map: ShardMap, rank: int) -> None:
    assert result is not None
    assert list(result) == list(state) == ["step", "exp_avg", "exp_avg_sq", "decay"]
    for name, each in _sharded(state, shard_map, rank).items():
        assert torch.equal(torch.as_tensor(result[name]), torch.as_tensor(each)), name


@pytest.mark.parametrize("vocab_size", [61, 3])
def test_offline(maps_of: MapsOf, vocab_size: int) -> None:
    state = _adam_state(vocab_size)
    maps = [maps_of(vocab_size, size)[name] for size in (1, 2, 3, 4) for name in ("random", "by hand")]
    for old_map in maps:
        for new_map in maps:
            states = [_sharded(state, old_map, rank) for rank in range(old_map.num_shards)]
            result = reshard_state(states, old_map, new_map)
            assert len(result) == new_map.num_shards
            for rank, each in enumerate(result):
                _check(each, state, new_map, rank)
            result[0]["step"] += 1
            assert all(each["step"] == 3 for each in result[1:])  # no memory is shared


def _on_ranks(rank: int, world: int, maps: list[ShardMap]) -> None:
    state = _adam_state(maps[0].vocab_size)
    for old_map in maps:
        for new_map in maps:
            held = _sharded(state, old_map, rank) if rank < old_map.num_shards else None
            with record_collectives() as calls:
                result = reshard_state(held, old_map, new_map)
            assert [call.kind for call in calls] == ["all_gather", "all_to_all"] * 2  # the two moments
            if rank < new_map.num_shards:
                _check(result, state, new_map, rank)
            else:
                assert result is None
    assert reshard_state({} if rank < 2 else None, maps[1], maps[2]) == {}  # before the first step
    _errors(rank, state, maps)


def _errors(rank: int, state: dict[str, Any], maps: list[ShardMap]) -> None:
    _, two, three = maps
    held = _sharded(state, two, rank) if rank < 2 else None
    with pytest.raises(MapError, match="rank 1 has shard 1 of 2 of the old map, but gives no state"):
        reshard_state(None if rank == 1 else held, two, three)
    other = {"step": 1, "exp_avg": torch.zeros(two.num_slots)}
    with pytest.raises(
        MapError, match=r"rank 1 is step, exp_avg \(rows\), that of rank 0 step, exp_avg \(rows\), exp_avg_sq"
    ):
        reshard_state(other if rank == 1 else held, two, three)
    with pytest.raises(MapError, match="rank 2 has no shard of the old map"):
        reshard_state(_sharded(state, two, 0), two, three)
    dist.barrier()  # nobody was left in a collective


def test_on_ranks(on_ranks: Ranks, maps_of: MapsOf) -> None:
    on_ranks(3, _on_ranks, [maps_of(61, 1)["strided"], maps_of(61, 2)["random"], maps_of(61, 3)["by hand"]])


def test_a_single_rank_needs_no_process_group(maps_of: MapsOf) -> None:
    state = _adam_state(61)
    shard_map = maps_of(61, 1)["by hand"]
    _check(reshard_state(state, ShardMap.contiguous(61, 1), shard_map), state, shard_map, 0)
    with pytest.raises(MapError, match="2 shards, got 1 states"):
        reshard_state([state], ShardMap.contiguous(61, 2), shard_map)
    with pytest.raises(MapError, match="a group of 2 ranks, this one has 1"):
        reshard_state(state, ShardMap.contiguous(61, 2), shard_map)
