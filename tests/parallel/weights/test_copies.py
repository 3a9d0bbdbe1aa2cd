"""Gradients of copies are summed once, and a table with copies trains as the unsharded one."""

from collections.abc import Callable
from functools import reduce

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from skewtool.errors import MapError
from skewtool.parallel import Collective, record_collectives, shard_weight, synchronize_copies, unshard_weight
from skewtool.parallel.routing import exchange
from skewtool.sharding import ShardMap
from skewtool.skew.copy_gradients import exchanged_rows, ids_on_every_shard

Ranks = Callable[..., None]
MapsOf = Callable[[int, int], dict[str, ShardMap]]

WIDTH = 5
KINDS = [((WIDTH,), torch.float64), ((WIDTH,), torch.float32), ((2, 3), torch.bfloat16), ((), torch.float16)]


def _gradient(shard_map: ShardMap, rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(shard_map.num_slots, *shape, generator=generator, dtype=torch.float64).to(dtype)


def _expected(shard_map: ShardMap, gradients: list[Tensor], rank: int) -> Tensor:
    """Slot by slot: the home's gradient, then those of copies by ascending shard, rounded once."""
    result = gradients[rank].clone()
    for slot, token in enumerate(shard_map.token_at[rank].tolist()):
        if token < 0 or not shard_map.num_copies[token]:
            continue
        home = (int(shard_map.shard_of[token]), int(shard_map.slot_of[token]))
        copies = [(int(p), int(s)) for p, s in np.argwhere(shard_map.token_at == token) if (int(p), int(s)) != home]
        rows = [gradients[p][s].to(torch.promote_types(result.dtype, torch.float32)) for p, s in (home, *sorted(copies))]
        result[slot] = reduce(torch.add, rows).to(result.dtype)
    return result


def _on_ranks(rank: int, world: int, maps: list[ShardMap]) -> None:
    groups = {size: dist.new_group(list(range(size))) for size in range(1, world + 1)}
    for shard_map in maps:
        if rank < shard_map.num_shards:
            for shape, dtype in KINDS:
                _sums(rank, shard_map, groups[shard_map.num_shards], shape, dtype)
    for shard_map in (maps[-1], maps[-2]):
        _trains_as_the_unsharded(rank, shard_map)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "_MOST_ELEMENTS", 12)  # transfers in parts, as above 2^31 - 1 elements
        _sums(rank, maps[-1], groups[world], (WIDTH,), torch.float64, in_parts=True)


def _sums(
    rank: int,
    shard_map: ShardMap,
    group: dist.ProcessGroup,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    in_parts: bool = False,
) -> None:
    size = shard_map.num_shards
    gradients = [_gradient(shard_map, other, shape, dtype) for other in range(size)]
    gradient = gradients[rank].clone()
    with record_collectives() as calls:
        assert synchronize_copies(gradient, shard_map, group) is gradient
    _check_bits(gradient, shard_map, group)
    everywhere = np.isin(shard_map.token_at[rank], np.flatnonzero(shard_map.num_copies == size - 1))
    expected = _expected(shard_map, gradients, rank)
    assert torch.equal(gradient[~torch.from_numpy(everywhere)], expected[~torch.from_numpy(everywhere)])
    rounding = 1e-12 if dtype == torch.float64 else torch.finfo(dtype).eps  # the order of all_reduce is the backend's
    torch.testing.assert_close(gradient, expected, rtol=rounding, atol=2 * rounding)
    if not in_parts:
        _check_calls(calls, rank, shard_map, gradient)


def _check_bits(gradient: Tensor, shard_map: ShardMap, group: dist.ProcessGroup) -> None:
    """All slots of an id hold the same bits."""
    everyone = [torch.empty_like(gradient) for _ in range(shard_map.num_shards)]
    dist.all_gather(everyone, gradient, group=group)
    for shard, slot in np.argwhere(shard_map.token_at[:, shard_map.home_slots :] >= 0).tolist():
        token = shard_map.token_at[shard, shard_map.home_slots + slot]
        home = everyone[shard_map.shard_of[token]][shard_map.slot_of[token]]
        assert torch.equal(everyone[shard][shard_map.home_slots + slot], home)


def _check_calls(calls: list[Collective], rank: int, shard_map: ShardMap, gradient: Tensor) -> None:
    row, wide_row = gradient[0].nbytes, gradient[0].numel() * max(4, gradient.element_size())
    expected = []
    if ids_on_every_shard(shard_map):
        expected.append(("all_reduce", "gradients", ids_on_every_shard(shard_map) * wide_row))
    rows = exchanged_rows(shard_map)
    assert [(call.kind, call.what, call.payload_bytes) for call in calls if call.kind == "all_reduce"] == expected
    exchanges = [call for call in calls if call.kind == "all_to_all"]
    assert len(exchanges) == 2 * bool(rows.any()) == len(calls) - len(expected)
    assert sum(call.payload_bytes for call in exchanges) == rows[rank] * row


def _slots_of_tokens(ids: Tensor, shard_map: ShardMap, rank: int) -> tuple[Tensor, Tensor]:
    """Which tokens this rank looks up, and in which of its slots: those of an id take turns over all its slots."""
    tokens, slots = [], []
    for number, token in enumerate(ids.tolist()):
        places = np.argwhere(shard_map.token_at == token).tolist()
        shard, slot = places[number % len(places)]
        if shard == rank:
            tokens.append(number)
            slots.append(slot)
    return torch.tensor(tokens, dtype=torch.int64), torch.tensor(slots, dtype=torch.int64)


def _trains_as_the_unsharded(rank: int, shard_map: ShardMap) -> None:
    generator = torch.Generator().manual_seed(3)
    table = torch.nn.Parameter(torch.randn(shard_map.vocab_size, WIDTH, generator=generator, dtype=torch.float64))
    weight = torch.nn.Parameter(shard_weight(table, shard_map, rank))
    whole, sharded = (torch.optim.Adam([each], lr=0.1, weight_decay=0.01) for each in (table, weight))
    for _ in range(5):
        ids = torch.randint(0, shard_map.vocab_size, (60,), generator=generator).square() // shard_map.vocab_size
        targets = torch.randn(60, WIDTH, generator=generator, dtype=torch.float64)
        (table[ids] - targets).square().sum().backward()  # type: ignore[no-untyped-call]
        tokens, slots = _slots_of_tokens(ids, shard_map, rank)
        (weight[slots] - targets[tokens]).square().sum().backward()  # type: ignore[no-untyped-call]
        assert weight.grad is not None
        synchronize_copies(weight.grad, shard_map)
        for optimizer in (whole, sharded):
            optimizer.step()
            optimizer.zero_grad()
    assert (unshard_weight(weight, shard_map) - table).abs().max() < 1e-10
    group = dist.group.WORLD
    assert group is not None
    for each in (weight.detach(), *(value for value in sharded.state[weight].values() if value.ndim)):
        _check_bits(each, shard_map, group)
        assert torch.equal(each, shard_weight(unshard_weight(each, shard_map), shard_map, rank))


def test_sums_bits_calls_and_training(on_ranks: Ranks, maps_of: MapsOf) -> None:
    names = {1: ("by hand",), 2: ("copies",), 3: ("by hand",), 4: ("strided", "copies", "by hand")}
    on_ranks(4, _on_ranks, [maps_of(vocab, size)[name] for vocab in (3, 61) for size in names for name in names[size]])


def test_a_map_without_copies_needs_no_ranks() -> None:
    shard_map = ShardMap.contiguous(7, 1)
    gradient = torch.ones(7, 2)
    assert torch.equal(synchronize_copies(gradient, shard_map), torch.ones(7, 2))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(MapError, match="2 shards, but the group 1 ranks"):
        synchronize_copies(torch.zeros(4, 2), ShardMap.contiguous(7, 2))
    for gradient in (torch.zeros(6, 2), torch.zeros(())):
        with pytest.raises(MapError, match="does not fit the map: one row is needed for each of its 7 slots"):
            synchronize_copies(gradient, ShardMap.contiguous(7, 1))
