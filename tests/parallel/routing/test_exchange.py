"""The uneven exchange: counts that all ranks know, zeros among them, and transfers in parts where they are too large."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from skewtool.parallel.collectives import record_collectives
from skewtool.parallel.routing import exchange as module
from skewtool.parallel.routing.exchange import Counts, exchange, exchange_rows
from tests.parallel.comparing import assert_equal, backward, drawn

Ranks = Callable[..., None]

MATRIX = ((2, 0, 5), (0, 0, 0), (4, 3, 1))
"""Rank 1 sends nothing, and gets something of rank 2 alone."""


def _sent(source: int, target: int) -> Tensor:
    return drawn(MATRIX[source][target], 3, seed=10 * source + target)


def _rows_arrive(rank: int, world: int) -> None:
    counts = Counts(MATRIX, None)
    for most_elements, number_of_parts in ((2**31 - 1, 1), (18, 3)):  # 5 rows by 2 of 3 columns for each of 3 ranks
        with pytest.MonkeyPatch.context() as patch, record_collectives() as calls:
            patch.setattr(module, "_MOST_ELEMENTS", most_elements)
            rows = torch.cat([_sent(rank, target) for target in range(world)]).requires_grad_()
            arrived = exchange_rows(rows, counts)
            expected = torch.cat([_sent(source, rank) for source in range(world)])
            assert torch.equal(arrived, expected)
            backward(arrived, 2 * expected)
            assert_equal(rows.grad, 2 * rows.detach(), "gradients go back to where their rows came from")
            kinds = [(call.kind, call.what) for call in calls]
            each = [("all_to_all", "rows"), ("all_to_all", "gradients")]
            assert kinds == [kind for kind in each for _ in range(number_of_parts)]


def test_rows_arrive_by_source_and_gradients_go_back(on_ranks: Ranks) -> None:
    """Also in parts, as above 2^31 - 1 elements; ranks that send nothing take part in each."""
    on_ranks(3, _rows_arrive)


def test_counts_are_known_both_ways() -> None:
    counts = Counts(MATRIX, None)
    assert (counts.sent, counts.received) == ([2, 0, 5], [2, 0, 4])
    assert (counts.reversed.sent, counts.reversed.received) == ([2, 0, 4], [2, 0, 5])


def test_more_than_2_31_elements_are_split_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """600,000 rows of 4,096: more elements than an int32 counts. Tensors without memory; the exchange is played."""
    to_others = 600_000
    moved: list[list[int]] = []

    def played(rows: Tensor, group: Any, what: str, sent: list[int], received: list[int]) -> Tensor:
        assert rows.numel() <= 2**31 - 1
        assert rows.size(0) == sum(sent)
        moved.append(sent)
        return rows.new_empty(sum(received), *rows.shape[1:])

    monkeypatch.setattr(module, "size_of", lambda group: 2)
    monkeypatch.setattr(module, "all_to_all", played)
    rows = torch.empty(to_others, 4096, dtype=torch.bfloat16, device="meta")
    assert rows.numel() > 2**31
    result = exchange(rows, Counts(((0, to_others), (7, 0)), None))
    assert result.shape == (7, 4096)
    assert sum(sent[1] for sent in moved) == to_others
    assert len(moved) == 3
    assert all(sent[1] >= later[1] for sent, later in pairwise(moved))
