"""`log_prob` and `entropy` equal the unsharded ones, with their gradients."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from skewtool.parallel.collectives import record_collectives
from skewtool.parallel.head import entropy, log_prob
from skewtool.parallel.home_rows import home_rows_of
from skewtool.sharding import ShardMap
from tests.parallel.comparing import assert_equal, backward, drawn
from tests.parallel.maps import REAL_VOCAB, VOCAB, maps_of

Ranks = Callable[..., None]


def _entropy_of(logits: Tensor) -> Tensor:
    logarithm = torch.log_softmax(logits, dim=-1)
    return -(logarithm.exp() * logarithm.masked_fill(logarithm == -torch.inf, 0)).sum(dim=-1)


def _equal_the_unsharded(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    drawn_logits = 4 * drawn(2, 3, VOCAB, seed=1)
    drawn_logits[0, 0, 5] = -torch.inf  # a banned token
    drawn_logits[0, 1, :20] = 1e4
    ids = torch.tensor([[0, 58, 7], [30, -100, 7]])
    upstream = drawn(2, 3, seed=2)
    for name, shard_map in maps.items():
        home = home_rows_of(shard_map, None, torch.device("cpu"))
        own_columns = drawn_logits[..., home.ids.clamp(min=0)]
        for function in ("log_prob", "entropy"):
            whole = drawn_logits[..., :REAL_VOCAB].clone().requires_grad_()
            own = own_columns.clone().requires_grad_()
            with record_collectives() as calls:
                if function == "entropy":
                    expected, found = _entropy_of(whole), entropy(own, shard_map)
                else:
                    every = torch.log_softmax(whole, -1).gather(-1, ids.clamp(min=0)[..., None]).squeeze(-1)
                    expected, found = torch.where(ids >= 0, every, 0), log_prob(own, ids, shard_map)
                backward(found, upstream)
            backward(expected, upstream)
            assert whole.grad is not None
            assert own.grad is not None
            assert_equal(found.detach(), expected.detach(), f"{function}, {name}")
            classes = home.ids[home.is_class]
            assert_equal(own.grad[..., home.is_class], whole.grad[..., classes], f"gradient, {function}, {name}")
            assert not own.grad[..., home.no_class].any()
            statistics = [("all_reduce", "statistics", 6 * 8), ("all_reduce", "statistics", 2 * 6 * 8)]
            more = statistics[:1] if function == "entropy" else []
            first = [] if function == "entropy" else [("all_gather", "counts", 16)]
            if world > 1:
                assert [(call.kind, call.what, call.payload_bytes) for call in calls] == first + statistics + more


@pytest.mark.parametrize("world", [1, 2, 4])
def test_they_equal_the_unsharded(on_ranks: Ranks, world: int) -> None:
    """Gradients too: a gradient that is P times too large keeps every value right."""
    on_ranks(world, _equal_the_unsharded, maps_of(world))


def _no_numbers(rank: int, world: int, shard_map: ShardMap) -> None:
    for token in (0, 58):
        logits = drawn(2, VOCAB, seed=3)
        logits[0, token] = torch.nan
        own = logits[:, home_rows_of(shard_map, None, logits.device).ids.clamp(min=0)]
        assert entropy(own, shard_map).isnan().tolist() == [True, False]
        assert log_prob(own, torch.tensor([3, 4]), shard_map).isnan().tolist() == [True, False]


def test_nan_on_one_rank_is_known_to_all(on_ranks: Ranks) -> None:
    on_ranks(2, _no_numbers, maps_of(2)["contiguous"])


def test_results_are_at_least_float32() -> None:
    shard_map = ShardMap.contiguous(5, 1)
    logits = drawn(2, 5, seed=1, dtype=torch.bfloat16)
    assert entropy(logits, shard_map).dtype == torch.float32
    assert log_prob(logits, torch.tensor([1, 2]), shard_map).dtype == torch.float32
