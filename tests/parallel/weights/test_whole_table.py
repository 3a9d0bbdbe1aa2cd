"""A whole table is sharded and put together again, bit for bit, under every map."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from skewtool.errors import MapError
from skewtool.parallel import record_collectives, shard_weight, unshard_weight
from skewtool.sharding import ShardMap

Ranks = Callable[..., None]
MapsOf = Callable[[int, int], dict[str, ShardMap]]

KINDS = [
    ((5,), torch.float32), ((5,), torch.bfloat16), ((), torch.int64), ((2, 3), torch.float64), ((), torch.bool),
    ((0,), torch.half), ((3,), torch.int16), ((7,), torch.float8_e4m3fn),
]  # fmt: skip


def _table(vocab_size: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.randn(vocab_size, *shape, generator=torch.Generator().manual_seed(1)).mul_(50).to(dtype)


def _same(result: Tensor, expected: Tensor) -> bool:
    """Bits, dtype and shape."""
    return result.dtype == expected.dtype and torch.equal(result.double(), expected.double())


@pytest.mark.parametrize("vocab_size", [61, 3])
@pytest.mark.parametrize("num_shards", [1, 2, 3, 4])
def test_offline_there_and_back(maps_of: MapsOf, vocab_size: int, num_shards: int) -> None:
    for name, shard_map in maps_of(vocab_size, num_shards).items():
        for shape, dtype in KINDS:
            table = _table(vocab_size, shape, dtype)
            shards = [shard_weight(table, shard_map, rank) for rank in range(num_shards)]
            for held, shard in zip(shard_map.token_at.tolist(), shards, strict=True):
                for token, row in zip(held, shard, strict=True):
                    assert _same(row, table[token] if token >= 0 else torch.zeros_like(table[0])), name
            for shard in shards:
                shard[shard_map.home_slots :] = 0  # what copies hold must not matter
            assert _same(unshard_weight(shards, shard_map), table), name
            homes = [shard_weight(table, shard_map.without_copies(), rank) for rank in range(num_shards)]
            for part, shard in zip(homes, shards, strict=True):
                assert _same(part, shard[: shard_map.home_slots]), name
            assert _same(unshard_weight(homes, shard_map), table), name


def _gathers(rank: int, world: int, maps: list[ShardMap]) -> None:
    groups = {size: dist.new_group(list(range(size))) for size in range(1, world + 1)}
    for number, shard_map in enumerate(maps):
        if rank < shard_map.num_shards:
            _gather(rank, shard_map, groups[shard_map.num_shards], *KINDS[number % len(KINDS)])


def _gather(rank: int, shard_map: ShardMap, group: dist.ProcessGroup, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    table = _table(shard_map.vocab_size, shape, dtype)
    weight = torch.nn.Parameter(shard_weight(table, shard_map, rank), requires_grad=dtype.is_floating_point)
    with record_collectives() as calls:
        result = unshard_weight(weight, shard_map, group)
    assert _same(result, table)
    assert not result.requires_grad
    expected = [("all_gather", "rows", weight[: shard_map.home_slots].nbytes)] * (group.size() > 1)
    assert [(call.kind, call.what, call.payload_bytes) for call in calls] == expected
    assert _same(unshard_weight(weight[: shard_map.home_slots], shard_map, group), table)


def test_on_ranks_every_rank_gets_the_table(on_ranks: Ranks, maps_of: MapsOf) -> None:
    on_ranks(4, _gathers, [each for vocab in (61, 3) for size in (1, 2, 3, 4) for each in maps_of(vocab, size).values()])


def test_what_does_not_fit_is_refused() -> None:
    shard_map = ShardMap.from_homes(np.arange(7) % 2, 2).with_copies(np.array([[1], [-1]]))
    with pytest.raises(MapError, match=r"a table of shape \[6, 2\] does not fit .* must be 7"):
        shard_weight(torch.zeros(6, 2), shard_map, 0)
    with pytest.raises(MapError, match=r"shape \[\] does not fit"):
        shard_weight(torch.zeros(()), shard_map, 0)
    with pytest.raises(MapError, match=r"rank must be 0 to 1, .* got 2"):
        shard_weight(torch.zeros(7), shard_map, 2)
    with pytest.raises(MapError, match="2 shards, got 1 local tables"):
        unshard_weight([torch.zeros(5)], shard_map)
    with pytest.raises(MapError, match=r"shape \[3\] does not fit .* must be 5, its slots, or 4, its home slots"):
        unshard_weight([torch.zeros(5), torch.zeros(3)], shard_map)
    with pytest.raises(MapError, match=r"shard 1 has rows of torch.int32 \[2\], shard 0 of torch.int64 \[2\]"):
        unshard_weight([torch.zeros(5, 2, dtype=torch.int64), torch.zeros(5, 2, dtype=torch.int32)], shard_map)
    with pytest.raises(MapError, match="2 shards, but the group 1 ranks"):
        unshard_weight(torch.zeros(5), shard_map)
