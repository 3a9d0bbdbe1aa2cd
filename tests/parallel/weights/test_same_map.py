"""Ranks with different maps are told so, all of them."""

from collections.abc import Callable

import pytest
import torch.distributed as dist

from skewtool.errors import MapError
from skewtool.parallel import check_same_map, record_collectives
from skewtool.parallel.weights.same_map import _named
from skewtool.sharding import ShardMap

Ranks = Callable[..., None]


def _three_ranks(rank: int, world: int) -> None:
    one, other = ShardMap.contiguous(7, 2), ShardMap.contiguous(7, 2, real_vocab=6)
    with record_collectives() as calls:
        check_same_map(ShardMap.contiguous(7, 2))  # equal, made by each rank, and of another size than the group
    assert [(call.kind, call.what, call.payload_bytes) for call in calls] == [("all_gather", "fingerprints", 32)]
    message = f"{one.fingerprint[:12]} on ranks 0, 2; {other.fingerprint[:12]} on rank 1; give all ranks the same map file"
    with pytest.raises(MapError, match=message):
        check_same_map(other if rank == 1 else one)
    pair = dist.new_group([1, 2])
    if rank:
        check_same_map(ShardMap.contiguous(7, 1), pair)
        with pytest.raises(MapError, match=f"{one.fingerprint[:12]} on rank 0; {other.fingerprint[:12]} on rank 1"):
            check_same_map(one if rank == 1 else other, pair)


def test_every_rank_hears_of_it(on_ranks: Ranks) -> None:
    on_ranks(3, _three_ranks)


def test_a_single_rank_agrees_with_itself() -> None:
    check_same_map(ShardMap.contiguous(7, 3))


def test_many_ranks_are_counted() -> None:
    assert _named([4]) == "rank 4"
    assert _named(list(range(512))) == "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 504 more"
