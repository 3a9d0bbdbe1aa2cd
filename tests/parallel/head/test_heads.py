"""The two LM heads as modules: maps that fit, tables in, initial values, options, and the collectives they make."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from skewtool.errors import LabelError, MapError
from skewtool.parallel.collectives import Collective, record_collectives
from skewtool.parallel.embedding import RoutedEmbedding
from skewtool.parallel.head import HiddenParallelLMHead, VocabParallelLMHead
from skewtool.parallel.hidden_columns import columns_of
from skewtool.parallel.home_rows import home_rows_of
from skewtool.sharding import ShardMap
from tests.parallel.comparing import assert_equal, backward, drawn
from tests.parallel.maps import REAL_VOCAB, VOCAB, maps_of

Ranks = Callable[..., None]

WIDTH = 5
TOKENS = 6

Told = list[tuple[str, str, int]]

HEADS: tuple[Any, ...] = (VocabParallelLMHead, HiddenParallelLMHead)


def _maps_must_fit(rank: int, world: int, own: dict[str, ShardMap]) -> None:
    for make in HEADS:
        with pytest.raises(MapError, match="the map has 60 ids, but num_embeddings is 61"):
            make(61, WIDTH, ShardMap.contiguous(60, world))
        with pytest.raises(MapError, match=f"the map has 5 shards, but the group {world} ranks"):
            make(61, WIDTH, ShardMap.contiguous(61, 5))
        with pytest.raises(MapError, match="ranks have different maps"):
            make(VOCAB, WIDTH, own["strided" if rank else "contiguous"])
    dist.barrier()


def test_maps_must_fit_the_table_the_group_and_each_other(on_ranks: Ranks) -> None:
    on_ranks(2, _maps_must_fit, maps_of(2))


def test_options_are_checked() -> None:
    for make in HEADS:
        for name in ("soft_cap", "temperature"):
            with pytest.raises(LabelError, match=f"{name} must be above 0, got -1"):
                make(4, WIDTH, **{name: -1})
    with pytest.raises(ValueError, match='"replicated" or "vocab", got \'hidden\''):
        HiddenParallelLMHead(4, WIDTH, output="hidden")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match='"replicated" or "partitioned", got \'mine\''):
        VocabParallelLMHead(4, WIDTH)(torch.zeros(1, WIDTH), "mine")


def _initial_values(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    table: Tensor | None = None
    for shard_map in maps.values():
        embedding = RoutedEmbedding(VOCAB, WIDTH, shard_map, dtype=torch.float64)
        embedding.reset_parameters(seed=4)
        table = embedding.gather_table() if table is None else table
        for bias in (False, True):
            head = VocabParallelLMHead(VOCAB, WIDTH, shard_map, bias=bias, dtype=torch.float64)
            head.reset_parameters(seed=4)
            held = torch.tensor(shard_map.token_at[rank, : shard_map.home_slots]).long()
            assert torch.equal(head.weight, torch.where((held >= 0)[:, None], table[held.clamp(min=0)], 0))
            assert head.counted_rows() == dict.fromkeys(["bias", "weight"] if bias else ["weight"], shard_map.home_slots)
        hidden = HiddenParallelLMHead(VOCAB, WIDTH, shard_map, dtype=torch.float64)
        hidden.reset_parameters(seed=4)
        columns = columns_of(WIDTH, world, rank)
        assert torch.equal(hidden.weight, table[:, columns.start : columns.stop])


def test_initial_values_depend_on_ids_and_columns_alone(on_ranks: Ranks) -> None:
    """The same numbers in both heads as in an embedding, under every map."""
    on_ranks(2, _initial_values, maps_of(2))


def _shapes(rank: int, world: int, shard_map: ShardMap) -> None:
    """Hidden states of any shape, none, and of a rank without tokens."""
    table, hidden = drawn(VOCAB, WIDTH, seed=1), drawn(2, 3, WIDTH, seed=2)
    whole = hidden @ table.t()
    head = VocabParallelLMHead(VOCAB, WIDTH, shard_map, dtype=torch.float64)
    head.load_table(table)
    home = home_rows_of(shard_map, None, hidden.device)
    for states in (hidden, hidden[0], hidden[0, 0], hidden[:, :0]):
        logits = head(states)
        assert logits.shape == (*states.shape[:-1], shard_map.home_slots)
        assert_equal(logits[..., home.is_class], (states @ table.t())[..., home.ids[home.is_class]], "logits")
    share = hidden.flatten(0, 1)[: 6 if rank == 1 else 0]
    logits = head(share, "partitioned")
    assert_equal(logits[:, home.is_class], whole.flatten(0, 1)[:, home.ids[home.is_class]], "logits of all tokens")
    for output in ("replicated", "vocab"):
        columns = columns_of(WIDTH, world, rank)
        parallel = HiddenParallelLMHead(VOCAB, WIDTH, shard_map, output=output, dtype=torch.float64)
        parallel.load_table(table)
        for states in (hidden, hidden[0, 0], hidden[:, :0]):
            logits = parallel(states[..., columns.start : columns.stop])
            ids = home.ids[home.is_class] if output == "vocab" else torch.arange(REAL_VOCAB)
            found = logits[..., home.is_class] if output == "vocab" else logits[..., :REAL_VOCAB]
            assert_equal(found, (states @ table.t())[..., ids], f"{output} logits")


def test_hidden_states_may_have_any_shape(on_ranks: Ranks) -> None:
    on_ranks(2, _shapes, maps_of(2)["balanced"])


def _told(calls: list[Collective]) -> Told:
    return [(call.kind, call.what, call.payload_bytes) for call in calls]


def _calls(head: Any, hidden: Tensor, *options: str) -> tuple[Told, Told]:
    """Those of forward, and of backward."""
    with record_collectives() as forward:
        logits = head(hidden.requires_grad_(), *options)
    with record_collectives() as back:
        backward(logits.masked_fill(logits == -torch.inf, 0).sum())
    return _told(forward), _told(back)


def _collectives(rank: int, world: int, shard_map: ShardMap) -> None:
    dtype = torch.bfloat16  # travels as 2 bytes where nothing is added up, else as 4
    kind: dict[str, Any] = {"shard_map": shard_map, "bias": True, "dtype": dtype}
    columns = columns_of(WIDTH, world, rank)
    whole, part = drawn(TOKENS, WIDTH, seed=1, dtype=dtype), drawn(TOKENS, len(columns), seed=1, dtype=dtype)

    head = VocabParallelLMHead(VOCAB, WIDTH, **kind)
    head.reset_parameters(seed=1)
    assert _calls(head, whole) == ([], [("all_reduce", "gradients", TOKENS * WIDTH * 4)])
    share = whole.detach()[: 4 if rank == 0 else 2].clone()
    assert _calls(head, share, "partitioned") == (
        [("all_gather", "counts", 8), ("all_gather", "rows", 4 * WIDTH * 2)],
        [("reduce_scatter", "gradients", world * 4 * WIDTH * 4)],
    )

    of_states = ("all_reduce", "gradients", TOKENS * WIDTH * 2)
    hidden = HiddenParallelLMHead(VOCAB, WIDTH, **kind)
    hidden.reset_parameters(seed=1)
    logits = [("all_reduce", "logits", TOKENS * VOCAB * 4)]
    assert _calls(hidden, part) == (logits, [])
    assert _calls(hidden, whole, "replicated") == (logits, [of_states])

    hidden = HiddenParallelLMHead(VOCAB, WIDTH, output="vocab", **kind)
    hidden.reset_parameters(seed=1)
    logits = [("reduce_scatter", "logits", TOKENS * world * shard_map.home_slots * 4)]
    of_bias = ("all_reduce", "gradients", VOCAB * 4)
    of_logits = ("all_gather", "gradients", TOKENS * shard_map.home_slots * 4)
    forward, back = _calls(hidden, part)
    assert (forward, sorted(back)) == (logits, sorted([of_bias, of_logits]))
    forward, back = _calls(hidden, whole, "replicated")
    assert (forward, sorted(back)) == (logits, sorted([of_bias, of_logits, of_states]))


def test_kind_number_and_bytes_of_collectives_are_those_promised(on_ranks: Ranks) -> None:
    on_ranks(2, _collectives, maps_of(2)["balanced"])
