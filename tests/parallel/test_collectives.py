"""Counting collectives: what is told of each call, and what a wire sees of it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from skewtool.parallel.collectives import (
    Collective,
    all_gather,
    all_reduce,
    all_to_all,
    record_collectives,
    reduce_scatter,
)

Ranks = Callable[..., None]


@pytest.mark.parametrize(
    ("kind", "backend", "sent"),
    [
        ("all_reduce", "gloo", 150),
        ("all_reduce", "nccl", 150),
        ("all_gather", "gloo", 300),
        ("reduce_scatter", "gloo", 150),  # made of an all_reduce
        ("reduce_scatter", "nccl", 75),
        ("all_to_all", "gloo", 100),
    ],
)
def test_sent_bytes(kind: Any, backend: str, sent: int) -> None:
    """Of 100 bytes on one of 4 ranks."""
    assert Collective(kind, "rows", 100, 4, backend).sent_bytes == sent
    assert Collective(kind, "rows", 0, 4, backend).sent_bytes == 0


def test_sent_bytes_are_rounded_up() -> None:
    assert Collective("all_reduce", "rows", 4, 3, "gloo").sent_bytes == 6  # 16 / 3


def _what_they_do(rank: int, world: int) -> None:
    with record_collectives() as outer:
        total = all_reduce(torch.tensor([[1, rank]]).t(), None, "sums")  # not contiguous
        assert total.tolist() == [[3], [3]]
        with record_collectives() as inner:
            parts = all_gather(torch.full((2, 1), rank), None, "parts")
            assert parts.tolist() == [[[0], [0]], [[1], [1]], [[2], [2]]]
            sums = reduce_scatter(torch.arange(3)[:, None] * torch.ones(3, 2) + rank, None, "sums")
            assert sums.tolist() == [3 * rank + 3] * 2
        rows = all_to_all(torch.full((sum(range(3)), 4), rank, dtype=torch.int32), None, "rows", [0, 1, 2], [rank] * 3)
        assert rows[:, 0].tolist() == [source for source in range(3) for _ in range(rank)]
        equal = all_to_all(10 * rank + torch.arange(3), None, "ids")
        assert equal.tolist() == [rank, 10 + rank, 20 + rank]
    all_reduce(torch.zeros(1), None, "sums")
    assert [(call.kind, call.what, call.payload_bytes) for call in inner] == [
        ("all_gather", "parts", 2 * 8),
        ("reduce_scatter", "sums", 3 * 2 * 4),
    ]
    assert [(call.kind, call.what, call.payload_bytes) for call in outer] == [
        ("all_reduce", "sums", 2 * 8),
        *[(call.kind, call.what, call.payload_bytes) for call in inner],
        ("all_to_all", "rows", (3 - rank) * 4 * 4),  # what is for others
        ("all_to_all", "ids", 2 * 8),
    ]
    assert {(call.group_size, call.backend) for call in outer} == {(3, "gloo")}


def test_they_are_recorded_as_they_were_made(on_ranks: Ranks) -> None:
    on_ranks(3, _what_they_do)


def test_a_single_process_moves_nothing() -> None:
    rows = torch.arange(6).view(1, 6)
    with record_collectives() as calls:
        assert all_reduce(rows, None, "rows") is rows
        assert torch.equal(all_gather(rows, None, "rows"), rows[None])
        assert torch.equal(reduce_scatter(rows, None, "rows"), rows[0])
        assert torch.equal(all_to_all(rows, None, "rows"), rows)
    assert calls == []
