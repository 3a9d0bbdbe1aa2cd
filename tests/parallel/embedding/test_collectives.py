"""The collectives that each embedding makes: kind, number and bytes, and that they are the bytes of the cost formulas."""

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
from skewtool.skew.layout_bytes import (
    Sizes,
    all_reduce_bytes,
    hidden_backward_bytes,
    hidden_forward_bytes,
    reduce_scatter_bytes,
    routed_backward_bytes,
    routed_forward_bytes,
)
from tests.parallel.comparing import backward
from tests.parallel.maps import REAL_VOCAB, VOCAB, maps_of

Ranks = Callable[..., None]

WIDTH = 6
"""Whole columns for 2 and 3 ranks; the formulas round columns up."""
TOKENS = 12
ROW = WIDTH * 4


def _ids(rank: int) -> Tensor:
    ids = torch.randint(0, REAL_VOCAB, (TOKENS,), generator=torch.Generator().manual_seed(rank))
    return ids * ids // REAL_VOCAB


def _calls(embedding: ShardedEmbedding, ids: Tensor) -> tuple[list[Collective], list[Collective]]:
    """Those of forward, and of backward."""
    with record_collectives() as forward:
        rows = embedding(ids)
    with record_collectives() as back:
        backward(rows.sum())
    return forward, back


def _told(calls: list[Collective]) -> list[tuple[str, str, int]]:
    return [(call.kind, call.what, call.payload_bytes) for call in calls]


def _sent(calls: list[Collective], *what: str) -> int:
    return sum(call.sent_bytes for call in calls if call.what in what)


def _construction(rank: int, world: int) -> None:
    for make in (VocabParallelEmbedding, RoutedEmbedding, HiddenParallelEmbedding):
        with record_collectives() as calls:
            embedding = make(VOCAB, WIDTH)
            embedding.reset_parameters(seed=1)
        assert _told(calls) == [("all_gather", "fingerprints", 32)]


def _vocab_parallel(rank: int, world: int, sizes: Sizes) -> None:
    ids = torch.cat([_ids(source) for source in range(world)])
    for dtype, row in ((torch.float32, ROW), (torch.bfloat16, ROW // 2)):
        embedding: ShardedEmbedding = VocabParallelEmbedding(VOCAB, WIDTH, dtype=dtype)
        embedding.reset_parameters(seed=1)
        forward, back = _calls(embedding, ids)
        assert _told(forward) == [("all_reduce", "rows", len(ids) * row)]
        assert back == []
        if dtype == torch.float32:
            assert _sent(forward, "rows") == all_reduce_bytes(sizes)

        embedding = VocabParallelEmbedding(VOCAB, WIDTH, output="sequence", dtype=dtype)
        embedding.reset_parameters(seed=1)
        forward, back = _calls(embedding, ids[:-1])  # padded to as many for each rank
        assert _told(forward) == [("reduce_scatter", "rows", len(ids) * row)]
        assert _told(back) == [("all_gather", "gradients", TOKENS * row)]
        if dtype == torch.float32:
            assert forward[0].payload_bytes * (world - 1) // world == reduce_scatter_bytes(sizes)
            assert forward[0].sent_bytes == all_reduce_bytes(sizes), "gloo makes it of an all_reduce"
            assert _sent(back, "gradients") == reduce_scatter_bytes(sizes)


def _asked(source: int, shard_map: ShardMap, distinct: bool) -> np.ndarray:
    """How many rows a rank asks of each shard; those on every shard are read in place."""
    tokens = _ids(source).numpy()
    ids, number = np.unique(tokens, return_counts=True)
    shards = choose_slots(ids, source, SlotTable.of(shard_map))
    asked = shard_map.num_copies[ids] < shard_map.num_shards - 1
    weights = np.ones_like(number) if distinct else number
    return np.bincount(shards[asked], weights[asked], minlength=shard_map.num_shards).astype(int)


def _routed(rank: int, world: int, sizes: Sizes, maps: dict[str, ShardMap]) -> None:
    for name, shard_map in maps.items():
        for distinct in (True, False):
            asked = np.stack([_asked(source, shard_map, distinct) for source in range(world)])
            out = int(asked[rank].sum() - asked[rank, rank])
            served = int(asked[:, rank].sum() - asked[rank, rank])
            embedding = RoutedEmbedding(VOCAB, WIDTH, shard_map, distinct=distinct)
            embedding.reset_parameters(seed=1)
            forward, back = _calls(embedding, _ids(rank))
            assert _told(forward) == [
                ("all_gather", "counts", (world + 2) * 8),
                ("all_to_all", "ids", out * 8),
                ("all_to_all", "rows", served * ROW),
            ], name
            assert _told(back) == [("all_to_all", "gradients", out * ROW)], name
            assert _sent(forward, "ids", "rows") == routed_forward_bytes(sizes, served, out)
            # What a rank sends back is what others served it; what it served comes back.
            assert _sent(back, "gradients") == routed_backward_bytes(sizes, out)


def _hidden(rank: int, world: int, sizes: Sizes) -> None:
    everyone = torch.cat([_ids(source) for source in range(world)])
    part = ROW // world
    kept, gathered = (HiddenParallelEmbedding(VOCAB, WIDTH, output=output) for output in ("hidden", "replicated"))
    for embedding, expected in ((kept, []), (gathered, [("all_gather", "rows", len(everyone) * part)])):
        embedding.reset_parameters(seed=1)
        forward, back = _calls(embedding, everyone)
        assert _told(forward) == expected
        assert back == []
    assert _sent(forward, "rows") == reduce_scatter_bytes(sizes)
    for distinct in (True, False):
        lookups = [len(torch.unique(_ids(source))) if distinct else TOKENS for source in range(world)]
        of_others = sum(lookups) - lookups[rank]
        embedding = HiddenParallelEmbedding(VOCAB, WIDTH, output="tokens", distinct=distinct)
        embedding.reset_parameters(seed=1)
        forward, back = _calls(embedding, _ids(rank))
        assert _told(forward) == [
            ("all_gather", "counts", 3 * 8),
            ("all_to_all", "ids", (world - 1) * lookups[rank] * 8),
            ("all_to_all", "rows", of_others * part),
        ]
        assert _told(back) == [("all_to_all", "gradients", (world - 1) * lookups[rank] * part)]
        assert _sent(forward, "ids", "rows") == hidden_forward_bytes(sizes, lookups[rank], of_others)
        assert _sent(back, "gradients") == hidden_backward_bytes(sizes, (world - 1) * lookups[rank])


def _all_layouts(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    sizes = Sizes(world, VOCAB, WIDTH, 4, TOKENS)
    _construction(rank, world)
    _vocab_parallel(rank, world, sizes)
    _routed(rank, world, sizes, maps)
    _hidden(rank, world, sizes)


@pytest.mark.parametrize("world", [2, 3])
def test_kind_number_and_bytes_are_those_promised(on_ranks: Ranks, world: int) -> None:
    on_ranks(world, _all_layouts, maps_of(world))


def test_a_single_process_makes_none() -> None:
    for make in (VocabParallelEmbedding, RoutedEmbedding, HiddenParallelEmbedding):
        with record_collectives() as calls:
            embedding = make(VOCAB, WIDTH)
            embedding.reset_parameters(seed=1)
            backward(embedding(_ids(0)).sum())
        assert calls == []
