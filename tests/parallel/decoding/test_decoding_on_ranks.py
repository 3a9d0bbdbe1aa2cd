"""Argmax, top-k and draws over ranks are those of one rank, under every map, and send what they say.

What one rank returns, here in a group of its own, the tests beside this one compare with the unsharded references.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from skewtool.errors import DecodingError, MapError
from skewtool.parallel import argmax, record_collectives, vocab_parallel_sample, vocab_parallel_topk
from skewtool.parallel.groups import Group
from skewtool.sharding import ShardMap, partition

Ranks = Callable[..., None]

INF, NAN = float("inf"), float("nan")
WORLDS = [2, 3, 4, pytest.param(8, marks=pytest.mark.slow)]
VOCAB, REAL = 61, 55  # divide by nothing; ids from 55 on are padding


@lru_cache
def _maps(num_shards: int, vocab: int = VOCAB, real: int = REAL) -> dict[str, ShardMap]:
    loads = 1000 // np.arange(1, vocab + 1) * (np.arange(vocab) < real)
    maps = {name: partition(loads, num_shards, name, real_vocab=real) for name in ("contiguous", "strided", "balanced")}
    maps["copies"] = partition(loads, num_shards, extra_rows=min(3, vocab - 1), real_vocab=real, pad_to=4)
    maps["random"] = _shuffled(partition(loads, num_shards, "random", real_vocab=real))
    return maps


def _shuffled(shard_map: ShardMap) -> ShardMap:
    """The same shards with their ids in no order."""
    token_at, random = shard_map.token_at.copy(), np.random.default_rng(1)
    for shard, number in enumerate(shard_map.home_rows):
        token_at[shard, :number] = random.permutation(token_at[shard, :number])
    return ShardMap(token_at, shard_map.home_slots, shard_map.vocab_size, shard_map.real_vocab)


def _one_shard(vocab: int = VOCAB, real: int = REAL) -> ShardMap:
    return ShardMap(np.arange(vocab, dtype=np.int32)[None], vocab, vocab, real)


def _local(by_id: Tensor, shard_map: ShardMap, rank: int, poison: float = 100.0) -> Tensor:
    """The columns [..., R] of a rank, from logits [..., V] by id; what is no class gets a value that must not matter."""
    ids = torch.tensor(shard_map.token_at[rank, : shard_map.home_slots], dtype=torch.int64)
    return by_id[..., ids.clamp(min=0)].masked_fill((ids < 0) | (ids >= shard_map.real_vocab), poison)


def _alone(rank: int, world: int) -> Group:
    """A group of this rank alone."""
    group: Group = [dist.new_group([other]) for other in range(world)][rank]
    return group


def _logits() -> Iterator[Tensor]:
    """All dtypes, several shapes, rows in no multiple of the ranks; ties between shards, rows without a distribution."""
    generator = torch.Generator().manual_seed(8)
    random = torch.randn(5, VOCAB, generator=generator, dtype=torch.float64) * 3
    odd = random.clone()
    odd[0, 3], odd[1], odd[2, 7], odd[2, 40], odd[3, 50] = NAN, -INF, INF, INF, -NAN
    odd[4, 1:] = -INF
    yield torch.cat([random, odd])
    yield torch.cat([odd, random - 50, torch.zeros(5, VOCAB)]).float().reshape(3, 5, VOCAB)
    yield torch.cat([random, odd]).round().half().reshape(5, 1, 2, VOCAB)
    yield torch.cat([random, -random, odd]).round().bfloat16()
    yield torch.empty(0, 3, VOCAB)


def _settings(rows: torch.Size) -> list[dict[str, Any]]:
    """No filter; all filters and none, mixed over the rows; all of them after top-k."""
    number = torch.arange(rows.numel()).reshape(rows)
    mixed = {
        "temperature": (number % 4) * 0.7,
        "top_k": torch.tensor([99, 10, 55, 1, 30])[number % 5],
        "top_p": torch.tensor([0.8, 1.0, 0.99, 0.5, 0.3, 1.5, 0.9])[number % 7],
        "min_p": torch.tensor([0.0, 0.1, 0.001])[number % 3],
    }
    return [{}, mixed, {"temperature": 1.5, "top_k": 20, "top_p": 0.8, "min_p": 0.02}]


def _equals_one_rank(rank: int, world: int) -> None:
    torch.manual_seed(rank)  # generators must not matter
    state, alone, whole = torch.get_rng_state(), _alone(rank, world), _one_shard()
    for by_id in _logits():
        greedy = argmax(by_id, whole, alone)
        best = {k: vocab_parallel_topk(by_id, k, whole, alone) for k in (1, 20, 100)}
        draws = _settings(by_id.shape[:-1])
        drawn = [vocab_parallel_sample(by_id, whole, alone, seed=7, step=3, **each) for each in draws]
        for name, shard_map in _maps(world).items():
            where = f"{name} {by_id.dtype}"
            local = _local(by_id, shard_map, rank, poison=NAN if name == "strided" else 100.0)
            before = local.clone()
            assert torch.equal(argmax(local, shard_map), greedy), where
            for k, expected in best.items():
                values, ids = vocab_parallel_topk(local, k, shard_map)
                assert ids.shape == (*by_id.shape[:-1], min(k, REAL))
                assert torch.equal(ids, expected[1]), where
                assert torch.equal(values.nan_to_num(9), expected[0].nan_to_num(9)), where
            for settings, expected_ids in zip(draws, drawn, strict=True):
                ids = vocab_parallel_sample(local, shard_map, seed=7, step=3, **settings)
                assert torch.equal(ids, expected_ids), where
            assert torch.equal(local.nan_to_num(9), before.nan_to_num(9))
    assert torch.equal(torch.get_rng_state(), state)


def _alone_and_in_a_batch(rank: int, world: int) -> None:
    """The same row, seed and step: alone, and among rows of other settings."""
    by_id = torch.randn(7, VOCAB, generator=torch.Generator().manual_seed(5)) * 2
    mixed, keys = _settings(torch.Size([7]))[1], torch.arange(7) + 50
    for name in ("contiguous", "copies"):
        shard_map = _maps(world)[name]
        local = _local(by_id, shard_map, rank)
        together = vocab_parallel_sample(local, shard_map, seed=7, step=3, rows=keys, **mixed)
        for row in range(3):
            settings = {each: values[row] for each, values in mixed.items()}
            alone = vocab_parallel_sample(local[row], shard_map, seed=7, step=3, rows=keys[row], **settings)
            assert alone == together[row], (name, row)


def _one_history(rank: int, world: int) -> None:
    """Ranks with generators of their own draw the same 200 tokens."""
    torch.manual_seed(rank)
    by_id = torch.randn(VOCAB, generator=torch.Generator().manual_seed(5)).expand(10, VOCAB)
    shard_map = _maps(world)["balanced"]
    local = _local(by_id, shard_map, rank)
    drawn = torch.stack([vocab_parallel_sample(local, shard_map, seed=1, step=step) for step in range(20)])
    of_all = [torch.empty_like(drawn) for _ in range(world)]
    dist.all_gather(of_all, drawn)
    assert all(torch.equal(other, drawn) for other in of_all)
    assert len(set(drawn.flatten().tolist())) > 20


def _small_vocabularies(rank: int, world: int) -> None:
    """Fewer ids than ranks, and 5 classes on shards that are all padding, or all -inf."""
    for vocab, real in ((1, 1), (3, 2), (8, 5)):
        by_id = torch.arange(2.0 * vocab).reshape(2, vocab)
        by_id[0, 1:] = -INF
        for name in ("contiguous", "copies"):
            shard_map = _maps(world, vocab, real)[name]
            local = _local(by_id, shard_map, rank)
            assert argmax(local, shard_map).tolist() == [0, real - 1], name
            values, ids = vocab_parallel_topk(local, 9, shard_map)
            assert ids.tolist() == [list(range(real)), list(range(real))[::-1]], name
            assert values[1].tolist() == by_id[1, :real].flip(0).tolist()
            for settings in ({}, {"top_p": 0.5, "min_p": 0.5}, {"top_k": 1}):
                ids = vocab_parallel_sample(local, shard_map, seed=1, step=1, **settings)
                assert ids[0] == 0, name
                assert 0 <= ids[1] < real, name


def _each_class_in_turn(rank: int, world: int) -> None:
    """The best class in every column of every shard: global ids come back, not columns. All others are equal."""
    by_id, tokens = torch.eye(VOCAB)[:REAL] * 50, torch.arange(REAL)
    second = torch.where(tokens == 0, 1, 0)
    for shard_map in _maps(world).values():
        local = _local(by_id, shard_map, rank)
        assert torch.equal(argmax(local, shard_map), tokens)
        assert torch.equal(vocab_parallel_topk(local, 2, shard_map)[1], torch.stack([tokens, second], dim=1))
        assert torch.equal(vocab_parallel_sample(local, shard_map, seed=1, step=1), tokens)


def _is_refused(rank: int, world: int) -> None:
    """Bad settings before anything is sent; a map for another number of ranks."""
    shard_map, larger = _maps(world)["balanced"], _maps(world + 1)["balanced"]
    local = torch.zeros(2, shard_map.home_slots)
    bad: list[dict[str, Any]] = [{"temperature": -1}, {"top_p": 0}, {"top_k": 0}, {"min_p": 2}]
    for settings in bad:
        with record_collectives() as calls, pytest.raises(DecodingError):
            vocab_parallel_sample(local, shard_map, seed=1, step=1, **settings)
        assert calls == []
    with pytest.raises(MapError, match=f"the map has {world + 1} shards"):
        argmax(torch.zeros(2, larger.home_slots), larger)


Calls = list[tuple[str, str, int]]


def _calls_of(function: Callable[..., object], *arguments: Any, **settings: Any) -> Calls:
    """Kind, name and bytes of the collectives of a call."""
    with record_collectives() as calls:
        function(*arguments, **settings)
    assert {(each.group_size, each.backend) for each in calls} <= {(dist.get_world_size(), "gloo")}
    return [(each.kind, each.what, each.payload_bytes) for each in calls]


def _sends(rank: int, world: int) -> None:
    """Every collective, for 6 rows, of 8 bytes a number and 16 a candidate."""
    shard_map, rows = _maps(world)["copies"], 6
    local = _local(torch.randn(2, 3, VOCAB, generator=torch.Generator().manual_seed(1)), shard_map, rank)

    def candidates(k: int) -> tuple[str, str, int]:
        return "all_gather", "candidates", 16 * rows * min(k, shard_map.home_slots)

    def numbers(what: str, per_row: int) -> tuple[str, str, int]:
        return "all_reduce", what, 8 * rows * per_row

    def sample(logits: Tensor, **settings: Any) -> Calls:
        return _calls_of(vocab_parallel_sample, logits, shard_map, seed=1, step=1, **settings)

    assert _calls_of(argmax, local, shard_map) == [candidates(1)]
    for k in (1, 5, 40):
        assert _calls_of(vocab_parallel_topk, local, k, shard_map) == [candidates(k)]
    assert sample(local) == sample(local, temperature=0) == [candidates(1)]
    assert sample(local, top_k=REAL, top_p=1.0, min_p=0.0) == [candidates(1)]
    for k in (5, 54):
        assert sample(local, top_k=k) == sample(local, top_k=k, top_p=0.9, min_p=0.1) == [candidates(k), candidates(1)]
    assert sample(local, min_p=0.1) == [numbers("maxima", 1), candidates(1)]
    search, start = numbers("masses", 15), [numbers("maxima", 1), numbers("masses", 1), numbers("masses", 1)]
    for dtype, rounds in ((torch.float64, 16), (torch.float32, 8), (torch.bfloat16, 4), (torch.float16, 4)):
        apart = _local(torch.arange(float(VOCAB)).expand(2, 3, VOCAB).to(dtype), shard_map, rank)
        found = [*start, *[search] * rounds, numbers("masses", 3)]
        assert sample(apart, top_p=0.9) == [*found, candidates(1)]
        equal = torch.zeros_like(apart)
        assert sample(equal, top_p=0.9) == [*found, *[search] * 8, candidates(1)]


def _all(rank: int, world: int) -> None:
    _equals_one_rank(rank, world)
    _alone_and_in_a_batch(rank, world)
    _one_history(rank, world)
    _small_vocabularies(rank, world)
    _each_class_in_turn(rank, world)
    _is_refused(rank, world)
    _sends(rank, world)


@pytest.mark.parametrize("world", WORLDS)
def test_results_do_not_depend_on_ranks_or_map(on_ranks: Ranks, world: int) -> None:
    """One spawn for all of the above: starting ranks takes longer than what they do."""
    on_ranks(world, _all)
