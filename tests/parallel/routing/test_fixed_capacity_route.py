"""The fixed-capacity route: as exact as `Route` whatever fits, shapes that no ids change, nothing that waits."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from skewtool.errors import RouteError
from skewtool.parallel.collectives import Collective, record_collectives
from skewtool.parallel.routing import FixedCapacityRoute, Route, requests
from skewtool.parallel.routing.slots import Slots, _choose, choose
from skewtool.sharding import ShardMap
from tests.parallel.comparing import assert_equal, backward, drawn
from tests.parallel.maps import REAL_VOCAB, VOCAB, maps_of

Ranks = Callable[..., None]

WIDTH = 4


def _ids(rank: int, seed: int = 0, number: int = 40) -> Tensor:
    ids = torch.randint(0, REAL_VOCAB, (number,), generator=torch.Generator().manual_seed(100 * seed + rank))
    return ids * ids // REAL_VOCAB


def _local(shard_map: ShardMap, rank: int) -> Tensor:
    held = torch.tensor(shard_map.token_at[rank]).long().clamp(min=0)
    return drawn(VOCAB, WIDTH, seed=6)[held].requires_grad_()


def _equals_the_exact_route(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    for name, shard_map in maps.items():
        for ids in (_ids(rank).view(5, 8), _ids(rank, number=40 * (rank % 2)).int()):
            upstream = drawn(*ids.shape, WIDTH, seed=rank)
            exact = _local(shard_map, rank)
            rows = Route.build(ids, shard_map).lookup(exact)
            backward(rows, upstream)
            for capacity in (1, 4, 1000):
                weight = _local(shard_map, rank)
                route = FixedCapacityRoute.build(ids, shard_map, capacity=capacity)
                found = route.lookup(weight)
                backward(found, upstream)
                what = f"{name}, capacity {capacity}, {ids.numel()} ids"
                assert torch.equal(found, rows), what
                # What overflows may be served by another slot, so gradients are compared where there is one slot alone.
                if not shard_map.has_copies or capacity == 1000:
                    assert_equal(weight.grad, exact.grad, f"gradient of {what}", 1e-12)
                assert capacity < 1000 or route.overflow() == 0, what


@pytest.mark.parametrize("world", [1, 2, 3])
def test_it_equals_the_exact_route(on_ranks: Ranks, world: int) -> None:
    """With room for one (most overflow), for some, and for all; also where every other rank has no tokens."""
    on_ranks(world, _equals_the_exact_route, maps_of(world))


def _overflow_is_counted(rank: int, world: int, shard_map: ShardMap) -> None:
    for capacity in (1, 3, 7):
        expected = 0
        for source in range(world):
            homes = torch.tensor(shard_map.shard_of)[torch.unique(_ids(source))]
            expected += int((homes.bincount(minlength=world) - capacity).clamp(min=0).sum())
        assert FixedCapacityRoute.build(_ids(rank), shard_map, capacity=capacity).overflow() == expected


def test_overflow_is_counted_over_all_ranks(on_ranks: Ranks) -> None:
    on_ranks(3, _overflow_is_counted, maps_of(3)["contiguous"])


def _bad_ids_wait(rank: int, world: int, shard_map: ShardMap) -> None:
    ids = torch.tensor([1, REAL_VOCAB] if rank == 1 else [2])
    route = FixedCapacityRoute.build(ids, shard_map, capacity=2)
    for refuses in (route.overflow, lambda: route.lookup(_local(shard_map, rank))):
        with pytest.raises(RouteError, match=f"rank 1 has id {REAL_VOCAB} at position 1 .* below {REAL_VOCAB}"):
            refuses()
    route.lookup_what_fits(_local(shard_map, rank))


def test_bad_ids_raise_on_every_rank_when_they_are_looked_up(on_ranks: Ranks) -> None:
    on_ranks(3, _bad_ids_wait, maps_of(3)["copies"])


def test_there_must_be_room() -> None:
    with pytest.raises(RouteError, match="capacity must be at least 1 row, got 0"):
        FixedCapacityRoute.build(torch.tensor([1]), ShardMap.contiguous(2, 1), capacity=0)


WAITING = {"local_scalar_dense", "nonzero", "unique2", "unique_dim", "masked_select", "is_nonzero", "equal", "bincount"}


class _NothingWaits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses operators whose result has a shape or value that the host must learn from the device."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.__name__.split(".")[0].strip("_")
        assert name not in WAITING, f"{name} waits"
        if name in ("index", "index_put"):
            assert all(each is None or each.dtype == torch.int64 for each in args[1]), f"{name} by a mask waits"
        return function(*args, **(kwargs or {}))


def _choose_as_a_gpu(ids: Tensor, slots: Slots, valid: Tensor) -> Tensor:
    return (_choose if slots.shards.numel() else choose)(ids, slots, valid)


def _build_and_look_up(ids: Tensor, shard_map: ShardMap, weight: Tensor) -> list[Collective]:
    with record_collectives() as calls:
        backward(FixedCapacityRoute.build(ids, shard_map, capacity=4).lookup_what_fits(weight).sum())
    return calls


def _shapes_and_waiting(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    for shard_map in maps.values():
        weight = _local(shard_map, rank)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(requests, "choose", _choose_as_a_gpu)
            _build_and_look_up(_ids(rank), shard_map, weight)  # makes the tables of the map, once
            with _NothingWaits():  # type: ignore[no-untyped-call]
                everyone = [
                    _build_and_look_up(ids, shard_map, weight)
                    for ids in (_ids(rank, 1), _ids(rank, 2), torch.zeros(40, dtype=torch.int64))
                ]
        others = (world - 1) * 4
        moved = [(call.kind, call.what, call.payload_bytes) for call in everyone[0]]
        assert moved == [
            ("all_to_all", "ids", others * 8),
            ("all_gather", "counts", 3 * 8),
            ("all_to_all", "rows", others * WIDTH * 8),
            ("all_to_all", "gradients", others * WIDTH * 8),
        ]
        assert everyone[1:] == everyone[:1] * 2


def test_no_shape_depends_on_the_ids_and_nothing_waits_for_them(on_ranks: Ranks) -> None:
    """Building, looking up and backward, in the form that runs on a GPU; and the collectives are those promised."""
    on_ranks(3, _shapes_and_waiting, maps_of(3))


def _no_overflow_no_more_collectives(rank: int, world: int, shard_map: ShardMap) -> None:
    for capacity, kinds in (
        (40, ["all_to_all", "all_gather", "all_to_all"]),
        (1, ["all_to_all", "all_gather", "all_to_all", "all_gather", "all_to_all", "all_to_all"]),  # and a `Route`
    ):
        with record_collectives() as calls:
            FixedCapacityRoute.build(_ids(rank), shard_map, capacity=capacity).lookup(_local(shard_map, rank))
        assert [call.kind for call in calls] == kinds


def test_a_second_exchange_is_for_overflow_alone(on_ranks: Ranks) -> None:
    on_ranks(2, _no_overflow_no_more_collectives, maps_of(2)["balanced"])
