"""Tokens and columns split over ranks, and gathered again."""

from collections.abc import Callable

import pytest
import torch

from skewtool.parallel.hidden_columns import columns_of, joined_columns, most_columns
from skewtool.parallel.tokens import gather_tokens, own_tokens
from tests.parallel.comparing import assert_equal, backward, drawn

Ranks = Callable[..., None]


@pytest.mark.parametrize("split", [own_tokens, lambda number, rank, world: columns_of(number, world, rank)])
@pytest.mark.parametrize("number", [0, 1, 2, 7, 12])
@pytest.mark.parametrize("world", [1, 3, 4])
def test_every_one_is_on_one_rank_in_order(split: Callable[[int, int, int], range], number: int, world: int) -> None:
    parts = [split(number, rank, world) for rank in range(world)]
    assert [each for part in parts for each in part] == list(range(number))
    assert [len(part) for part in parts] == sorted((len(part) for part in parts), reverse=True)
    assert len(parts[0]) == -(-number // world)


def test_columns_are_joined_without_padding() -> None:
    whole = drawn(4, 7, seed=1)
    parts = torch.full((3, 4, most_columns(7, 3)), torch.nan, dtype=torch.float64)
    for rank in range(3):
        columns = columns_of(7, 3, rank)
        parts[rank, :, : len(columns)] = whole[:, columns.start : columns.stop]
    assert torch.equal(joined_columns(parts, 7), whole)


def _gathered(rank: int, world: int) -> None:
    whole, upstream = drawn(7, 3, seed=1), [drawn(7, 3, seed=10 + each) for each in range(world)]
    own = (slice(0, 5), slice(5, 5), slice(5, 7))[rank]
    values = whole[own].clone().requires_grad_()
    gathered = gather_tokens(values)
    assert torch.equal(gathered, whole)
    backward(gathered, upstream[rank])
    assert_equal(values.grad, torch.stack(upstream).sum(0)[own], "gradient")
    assert torch.equal(gather_tokens(torch.arange(7)[own]), torch.arange(7)), "of one dimension"


def test_tokens_are_gathered_from_ranks_with_any_number(on_ranks: Ranks) -> None:
    on_ranks(3, _gathered)
