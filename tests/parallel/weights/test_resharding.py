"""Tables move from map to map and from P shards to P', bit for bit, on ranks and offline."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from skewtool.errors import MapError
from skewtool.parallel import record_collectives, reshard, shard_weight
from skewtool.parallel.routing import exchange
from skewtool.sharding import ShardMap

Ranks = Callable[..., None]
MapsOf = Callable[[int, int], dict[str, ShardMap]]
Pairs = list[tuple[ShardMap, ShardMap]]

KINDS = [((5,), torch.float32), ((2, 3), torch.bfloat16), ((), torch.int64), ((3,), torch.int16), ((0,), torch.float64)]


def _table(vocab_size: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.randn(vocab_size, *shape, generator=torch.Generator().manual_seed(1)).mul_(50).to(dtype)


def _without_copied_rows(weight: Tensor, shard_map: ShardMap) -> Tensor:
    """What copies hold must not matter."""
    weight[shard_map.home_slots :] = 9
    return weight


@pytest.mark.parametrize("vocab_size", [61, 3])
def test_offline(maps_of: MapsOf, vocab_size: int) -> None:
    maps = {(name, size): each for size in (1, 2, 3, 4) for name, each in maps_of(vocab_size, size).items()}
    for old_map in (each for (name, _), each in maps.items() if name in ("random", "by hand")):
        for number, new_map in enumerate(maps.values()):
            table = _table(vocab_size, *KINDS[number % len(KINDS)])
            old = [_without_copied_rows(shard_weight(table, old_map, rank), old_map) for rank in range(old_map.num_shards)]
            new = reshard(old, old_map, new_map)
            assert len(new) == new_map.num_shards
            for rank, weight in enumerate(new):
                assert weight.dtype == table.dtype
                assert torch.equal(weight, shard_weight(table, new_map, rank))


def _rows_sent(old_map: ShardMap, new_map: ShardMap, rank: int) -> int:
    new = np.argwhere(new_map.token_at >= 0)
    return sum(old_map.shard_of[new_map.token_at[shard, slot]] == rank != shard for shard, slot in new)


def _on_ranks(rank: int, world: int, pairs: Pairs) -> None:
    groups = {size: dist.new_group(list(range(size))) for size in range(1, world + 1)}
    if rank < 3:
        _every_rank_hears_of_errors(rank, groups[3])
    for number, (old_map, new_map) in enumerate(pairs):
        size = max(old_map.num_shards, new_map.num_shards) if number % 5 else world  # now and then with idle ranks
        if rank < size:
            _move(rank, old_map, new_map, groups[size], *KINDS[number % len(KINDS)])
    table, shard_map = torch.arange(61), pairs[-1][0]
    with pytest.MonkeyPatch.context() as patch, record_collectives() as calls:
        patch.setattr(exchange, "_MOST_ELEMENTS", 40)  # transfers in parts, as above 2^31 - 1 elements
        new = reshard(shard_weight(table, shard_map, rank), shard_map, shard_map)
    assert len(calls) > 2
    assert new is not None
    assert torch.equal(new, shard_weight(table, shard_map, rank))


def _move(
    rank: int, old_map: ShardMap, new_map: ShardMap, group: dist.ProcessGroup, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    table = _table(old_map.vocab_size, shape, dtype)
    old = _without_copied_rows(shard_weight(table, old_map, rank), old_map) if rank < old_map.num_shards else None
    with record_collectives() as calls:
        new = reshard(old, old_map, new_map, group)
    if rank < new_map.num_shards:
        assert new is not None
        assert new.dtype == dtype
        assert torch.equal(new, shard_weight(table, new_map, rank))
    else:
        assert new is None
    if group.size() > 1:
        moved = _rows_sent(old_map, new_map, rank) * table[0].nbytes
        assert [(call.kind, call.what, call.payload_bytes) for call in calls] == [
            ("all_gather", "shapes", 13 * 8), ("all_to_all", "rows", moved),
        ]  # fmt: skip


def test_on_ranks(on_ranks: Ranks, maps_of: MapsOf) -> None:
    """From every P to every P', the kinds of maps and of rows in turn; and errors, which every rank must raise."""
    names = itertools.cycle(("contiguous", "by hand", "random", "copies", "strided"))
    pairs = [
        (maps_of(vocab_size, old)[next(names)], maps_of(vocab_size, new)[next(names)])
        for vocab_size in (3, 61)
        for old in (1, 2, 3, 4)
        for new in (1, 2, 3, 4)
    ]
    on_ranks(4, _on_ranks, [*pairs, (maps_of(61, 4)["by hand"], maps_of(61, 4)["random"])])


def test_home_rows_alone(maps_of: MapsOf) -> None:
    """An untied head's rows: [R, H] in, and [R', H] out if asked for."""
    old_map, new_map = maps_of(61, 3)["by hand"], maps_of(61, 2)["copies"]
    table = _table(61, (5,), torch.float32)
    heads = [shard_weight(table, old_map.without_copies(), rank) for rank in range(3)]
    for target in (new_map.without_copies(), new_map):
        new = reshard(heads, old_map, target)
        assert all(torch.equal(each, shard_weight(table, target, rank)) for rank, each in enumerate(new))


def _every_rank_hears_of_errors(rank: int, group: dist.ProcessGroup) -> None:
    two, three = ShardMap.contiguous(7, 2), ShardMap.contiguous(7, 3)
    held = torch.zeros(4, 2) if rank < 2 else None
    cases: list[tuple[Tensor | None, ShardMap, str]] = [
        (None if rank == 1 else held, three, "rank 1 must give its local table .* 4 rows.* got None"),
        (torch.zeros(3, 2) if rank == 1 else held, three, "rank 1 must .* got 3 rows in 2 dimensions"),
        (torch.zeros(()) if rank == 1 else held, three, "rank 1 must .* got 0 rows in 0 dimensions"),
        (torch.zeros(4, 3) if rank == 1 else held, three, r"rank 1 has rows of torch.float32 \[3\], rank 0 .* \[2\]"),
        (torch.zeros(4, 2).half() if rank == 1 else held, three, r"rank 1 has rows of torch.float16 \[2\]"),
        (torch.zeros(4, 2), three, "rank 2 has no shard of the old map, which has 2"),
        (held, ShardMap.contiguous(7, 3, real_vocab=6 + rank % 2), "rank 1 moves rows from map .{12} to .{12}, rank 0 from"),
        (held, ShardMap.contiguous(8, 3), "the old map has 7 ids, the new one 8"),
        (held, ShardMap.contiguous(7, 4), "2 shards to 4 takes a group of 4 ranks, this one has 3"),
    ]
    for weight, new_map, message in cases:
        with pytest.raises(MapError, match=message):
            reshard(weight, two, new_map, group)
    assert reshard(held, two, three, group) is not None  # nobody was left in a collective


def test_offline_errors() -> None:
    with pytest.raises(MapError, match="2 shards, got 1 local tables"):
        reshard([torch.zeros(4)], ShardMap.contiguous(7, 2), ShardMap.contiguous(7, 3))
    with pytest.raises(MapError, match="the old map has 7 ids, the new one 8"):
        reshard([torch.zeros(4)] * 2, ShardMap.contiguous(7, 2), ShardMap.contiguous(8, 2))
    with pytest.raises(MapError, match="a group of 3 ranks, this one has 1; or give the local tables of all shards"):
        reshard(torch.zeros(4), ShardMap.contiguous(7, 2), ShardMap.contiguous(7, 3))


def test_a_single_rank_needs_no_process_group(maps_of: MapsOf) -> None:
    old_map, new_map = maps_of(61, 1)["by hand"], maps_of(61, 1)["strided"]
    table = _table(61, (5,), torch.float32)
    old = shard_weight(table, old_map, 0)
    new = reshard(old, old_map, new_map)
    assert new is not None
    assert torch.equal(new, table)
    new.zero_()
    assert torch.equal(old, shard_weight(table, old_map, 0))  # no memory is shared
