"""The collectives that each embedding makes: kind, number and bytes. That all are predicted: `test_predicted_traffic`."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from skewtool.parallel.collectives import Collective, record_collectives
from skewtool.parallel.embedding import (
    HiddenParallelEmbedding,
    RoutedEmbedding,
    ShardedEmbedding,
    VocabParallelEmbedding,
)
from skewtool.sharding import ShardMap, SlotTable, choose_slots
from tests.parallel.maps import REAL_VOCAB, VOCAB, maps_of

Ranks = Callable[..., None]

WIDTH = 6
"""Whole columns for 2 and 3 ranks."""
TOKENS = 12
ROW = WIDTH * 4


def _ids(rank: int) -> Tensor:
    ids = torch.randint(0, REAL_VOCAB, (TOKENS,), generator=torch.Generator().manual_seed(rank))
    return ids * ids // REAL_VOCAB


def _calls(embedding: ShardedEmbedding, ids: Tensor) -> tuple[list[Collective], list[Collective]]:
    """Those of forward, and of backward."""
    with record_collectives() as forward:
        rows = embedding(ids)
    with record_collectives() as backward:
        rows.sum().backward()
    return forward, backward


def _told(calls: list[Collective]) -> list[tuple[str, str, int]]:
    return [(call.kind, call.what, call.payload_bytes) for call in calls]


def _construction(rank: int, world: int) -> None:
    for make in (VocabParallelEmbedding, RoutedEmbedding, HiddenParallelEmbedding):
        with record_collectives() as calls:
            embedding = make(VOCAB, WIDTH)
            embedding.reset_parameters(seed=1)
        assert _told(calls) == [("all_gather", "fingerprints", 32)]


def _vocab_parallel(rank: int, world: int) -> None:
    ids = torch.cat([_ids(source) for source in range(world)])
    for dtype, row in ((torch.float32, ROW), (torch.bfloat16, ROW // 2)):
        embedding: ShardedEmbedding = VocabParallelEmbedding(VOCAB, WIDTH, dtype=dtype)
        embedding.reset_parameters(seed=1)
        forward, backward = _calls(embedding, ids)
        assert _told(forward) == [("all_reduce", "rows", len(ids) * row)]
        assert backward == []
        assert forward[0].sent_bytes == 2 * (world - 1) * TOKENS * row

        embedding = VocabParallelEmbedding(VOCAB, WIDTH, output="sequence", dtype=dtype)
        embedding.reset_parameters(seed=1)
        forward, backward = _calls(embedding, ids[:-1])  # padded to as many for each rank
        assert _told(forward) == [("reduce_scatter", "rows", len(ids) * row)]
        assert _told(backward) == [("all_gather", "gradients", TOKENS * row)]
        assert forward[0].sent_bytes == 2 * (world - 1) * TOKENS * row, "gloo makes it of an all_reduce"
        assert backward[0].sent_bytes == (world - 1) * TOKENS * row


def _asked(source: int, shard_map: ShardMap, distinct: bool) -> np.ndarray:
    """How many rows a rank asks of each shard; those on every shard are read in place."""
    tokens = _ids(source).numpy()
    ids, number = np.unique(tokens, return_counts=True)
    shards = choose_slots(ids, source, SlotTable.of(shard_map))
    asked = shard_map.num_copies[ids] < shard_map.num_shards - 1
    weights = np.ones_like(number) if distinct else number
    return np.bincount(shards[asked], weights[asked], minlength=shard_map.num_shards).astype(int)


def _routed(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    for name, shard_map in maps.items():
        for distinct in (True, False):
            asked = np.stack([_asked(source, shard_map, distinct) for source in range(world)])
            out = int(asked[rank].sum() - asked[rank, rank])
            served = int(asked[:, rank].sum() - asked[rank, rank])
            embedding = RoutedEmbedding(VOCAB, WIDTH, shard_map, distinct=distinct)
            embedding.reset_parameters(seed=1)
            forward, backward = _calls(embedding, _ids(rank))
            assert _told(forward) == [
                ("all_gather", "counts", (world + 2) * 8),
                ("all_to_all", "ids", out * 8),
                ("all_to_all", "rows", served * ROW),
            ], name
            # What a rank sends back is what others served it; what it served comes back.
            assert _told(backward) == [("all_to_all", "gradients", out * ROW)], name


def _hidden(rank: int, world: int) -> None:
    everyone = torch.cat([_ids(source) for source in range(world)])
    part = ROW // world
    nothing: list[tuple[str, str, int]] = []
    for output, forward_calls, backward_calls in (
        ("hidden", nothing, nothing),
        ("replicated", [("all_gather", "rows", len(everyone) * part)], nothing),
    ):
        embedding = HiddenParallelEmbedding(VOCAB, WIDTH, output=output)  # type: ignore[arg-type]
        embedding.reset_parameters(seed=1)
        forward, backward = _calls(embedding, everyone)
        assert _told(forward) == forward_calls
        assert _told(backward) == backward_calls
    for distinct in (True, False):
        lookups = [len(set(_ids(source).tolist())) if distinct else TOKENS for source in range(world)]
        of_others = sum(lookups) - lookups[rank]
        embedding = HiddenParallelEmbedding(VOCAB, WIDTH, output="tokens", distinct=distinct)
        embedding.reset_parameters(seed=1)
        forward, backward = _calls(embedding, _ids(rank))
        assert _told(forward) == [
            ("all_gather", "counts", 3 * 8),
            ("all_to_all", "ids", (world - 1) * lookups[rank] * 8),
            ("all_to_all", "rows", of_others * part),
        ]
        assert _told(backward) == [("all_to_all", "gradients", (world - 1) * lookups[rank] * part)]


def _all_layouts(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    _construction(rank, world)
    _vocab_parallel(rank, world)
    _routed(rank, world, maps)
    _hidden(rank, world)


@pytest.mark.parametrize("world", [2, 3])
def test_kind_number_and_bytes_are_those_promised(on_ranks: Ranks, world: int) -> None:
    on_ranks(world, _all_layouts, maps_of(world))


def test_a_single_process_makes_none() -> None:
    for make in (VocabParallelEmbedding, RoutedEmbedding, HiddenParallelEmbedding):
        with record_collectives() as calls:
            embedding = make(VOCAB, WIDTH)
            embedding.reset_parameters(seed=1)
            embedding(_ids(0)).sum().backward()
        assert calls == []
