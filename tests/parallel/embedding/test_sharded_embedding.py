"""What all embedding layouts promise: maps that fit, ids in range, values that no map changes, tables in and out."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from skewtool.errors import MapError, RouteError
from skewtool.parallel.embedding import (
    HiddenParallelEmbedding,
    RoutedEmbedding,
    ShardedEmbedding,
    VocabParallelEmbedding,
)
from skewtool.sharding import ShardMap
from tests.parallel.comparing import backward, drawn, sum_by_id
from tests.parallel.maps import VOCAB, maps_of

Ranks = Callable[..., None]
Make = Callable[..., ShardedEmbedding]

OWN_IDS: dict[str, Make] = {
    "routed": RoutedEmbedding,
    "routed, raw": partial(RoutedEmbedding, distinct=False),
    "routed, fixed capacity": partial(RoutedEmbedding, capacity=2),
    "hidden, tokens": partial(HiddenParallelEmbedding, output="tokens"),
}
SAME_IDS: dict[str, Make] = {
    "vocab, replicated": VocabParallelEmbedding,
    "vocab, sequence": partial(VocabParallelEmbedding, output="sequence"),
    "hidden": HiddenParallelEmbedding,
    "hidden, replicated": partial(HiddenParallelEmbedding, output="replicated"),
}

WIDTH = 5


def _bad_ids_are_refused(rank: int, world: int) -> None:
    """32 ids, and 4 rows of padding."""
    shard_map = ShardMap.contiguous(36, world, real_vocab=32)
    table = drawn(36, WIDTH, seed=1)
    for ids, bad, position in (([0, 31, 32], 32, 2), ([-1], -1, 0), ([5, 2**31], 2**31, 1), ([33], 33, 0)):
        for name, make in (OWN_IDS | SAME_IDS).items():
            embedding = make(36, WIDTH, shard_map, dtype=torch.float64)
            embedding.load_table(table)
            alone = name in OWN_IDS  # the last rank alone has the bad id; with the same ids all have it
            asked = torch.tensor([7] if alone and rank < world - 1 else ids)
            who = f"rank {world - 1}" if alone else "every rank"
            message = f"^{who} has id {bad} at position {position} .flattened.; ids must be at least 0 and below 32$"
            with pytest.raises(RouteError, match=message):
                embedding(asked)
            embedding(torch.tensor([0, 31]))  # nobody was left in a collective


@pytest.mark.parametrize("world", [1, 2, 4])
def test_bad_ids_are_refused_on_every_rank_alike(on_ranks: Ranks, world: int) -> None:
    """Whatever the number of shards: one shard must not crash where several give zeros."""
    on_ranks(world, _bad_ids_are_refused)


def test_ids_are_integers() -> None:
    for make in (OWN_IDS | SAME_IDS).values():
        with pytest.raises(RouteError, match=r"int32 or int64, got torch\.float32"):
            make(4, WIDTH)(torch.tensor([1.0]))


def _maps_must_fit(rank: int, world: int, own: dict[str, ShardMap]) -> None:
    for make in (OWN_IDS | SAME_IDS).values():
        with pytest.raises(MapError, match="the map has 60 ids, but num_embeddings is 61"):
            make(61, WIDTH, ShardMap.contiguous(60, world))
        with pytest.raises(MapError, match=f"the map has 5 shards, but the group {world} ranks"):
            make(61, WIDTH, ShardMap.contiguous(61, 5))
        with pytest.raises(MapError, match="ranks have different maps"):
            make(VOCAB, WIDTH, own["strided" if rank else "contiguous"])
    dist.barrier()


def test_maps_must_fit_the_table_the_group_and_each_other(on_ranks: Ranks) -> None:
    on_ranks(2, _maps_must_fit, maps_of(2))


def test_outputs_have_names() -> None:
    with pytest.raises(ValueError, match='"replicated" or "sequence", got \'hidden\''):
        VocabParallelEmbedding(4, WIDTH, output="hidden")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="hidden, replicated, tokens, got 'sequence'"):
        HiddenParallelEmbedding(4, WIDTH, output="sequence")  # type: ignore[arg-type]


def _tables_go_in_and_out(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    table = drawn(VOCAB, WIDTH, seed=3)
    seeded: Tensor | None = None
    for make in (OWN_IDS | SAME_IDS).values():
        for shard_map in maps.values():
            embedding = make(VOCAB, WIDTH, shard_map, dtype=torch.float64)
            embedding.load_table(table)
            assert torch.equal(embedding.gather_table(), table)
            embedding.reset_parameters(seed=8)
            values = embedding.gather_table()
            seeded = values if seeded is None else seeded
            assert torch.equal(values, seeded)
            assert f"{VOCAB}, {WIDTH}, {shard_map}" in repr(embedding)


@pytest.mark.parametrize("world", [1, 3])
def test_tables_go_in_and_out_and_initial_values_depend_on_ids_alone(on_ranks: Ranks, world: int) -> None:
    on_ranks(world, _tables_go_in_and_out, maps_of(world))


def test_a_single_process_needs_no_group_and_no_map() -> None:
    table = drawn(VOCAB, WIDTH, seed=3, dtype=torch.float32)
    ids = torch.tensor([[3, 3], [60, 0]], dtype=torch.int32)
    for name, make in (OWN_IDS | SAME_IDS).items():
        embedding = make(VOCAB, WIDTH)
        embedding.load_table(table)
        rows = embedding(ids)
        assert torch.equal(rows, table[ids.long()].flatten(0, 1 if name == "vocab, sequence" else 0)), name


def _two_tables_twice(rank: int, world: int) -> None:
    few, many = torch.tensor([60, 0, 0]), torch.arange(VOCAB)
    for name, make in (OWN_IDS | SAME_IDS).items():
        one, two = (make(VOCAB, WIDTH, dtype=torch.float64) for _ in range(2))
        one.load_table(drawn(VOCAB, WIDTH, seed=1))
        two.load_table(drawn(VOCAB, WIDTH, seed=2))
        outputs = [one(few), two(many), one(many), two(few)]
        for factor, rows in enumerate(outputs, start=1):
            backward((factor * rows).sum())
        for embedding, of_few, of_many in ((one, 1, 3), (two, 4, 2)):
            expected = of_many * torch.ones(VOCAB, WIDTH) + of_few * few.bincount(minlength=VOCAB)[:, None]
            if name in OWN_IDS:
                expected *= world  # each rank asked
            gradient = embedding.weight.grad
            assert gradient is not None
            by_id = gradient if isinstance(embedding, HiddenParallelEmbedding) else sum_by_id(gradient, one.shard_map)
            assert torch.equal(by_id, expected[:, : by_id.size(1)].double()), name


def test_two_tables_of_one_size_may_be_read_twice_before_backward(on_ranks: Ranks) -> None:
    on_ranks(2, _two_tables_twice)
