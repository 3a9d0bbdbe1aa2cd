"""Uneven all-to-all of rows, forward and backward.

Counts are known to all ranks beforehand, because the collectives do not check them: with gloo a rank that expects fewer
rows than are sent aborts, and one that expects more keeps stale memory without an error.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from skewtool.parallel.collectives import all_to_all
from skewtool.parallel.groups import Group, rank_of, size_of

__all__ = ["Counts", "exchange", "exchange_rows"]

_MOST_ELEMENTS = 2**31 - 1
"""Elements of one transfer that every backend takes; larger ones are split by rows."""


@dataclass(frozen=True)
class Counts:
    """Rows between all pairs of ranks: matrix[source][target], the same on every rank."""

    matrix: tuple[tuple[int, ...], ...]
    group: Group

    @property
    def sent(self) -> list[int]:
        """Rows this rank sends to each rank."""
        return list(self.matrix[rank_of(self.group)])

    @property
    def received(self) -> list[int]:
        """Rows this rank gets from each rank."""
        return [row[rank_of(self.group)] for row in self.matrix]

    @property
    def reversed(self) -> "Counts":
        """For the way back."""
        return Counts(tuple(zip(*self.matrix, strict=True)), self.group)


def exchange(rows: Tensor, counts: Counts, what: str = "rows") -> Tensor:
    """Sends rows [sum(sent), ...], ordered by target, and returns those received [sum(received), ...], ordered by source.

    One all_to_all_single over the group (none alone), or one for each part of at most 2^31 - 1 elements: as many on every
    rank, since all know all counts. Not differentiable; see `exchange_rows`.
    """
    if size_of(counts.group) == 1:
        return rows
    width = max(1, math.prod(rows.shape[1:]))
    most_rows = max(1, _MOST_ELEMENTS // (width * size_of(counts.group)))
    largest = max(max(row) for row in counts.matrix)
    if largest <= most_rows:
        return all_to_all(rows, counts.group, what, counts.sent, counts.received)
    received = rows.new_empty((sum(counts.received), *rows.shape[1:]))
    sent, got = torch.split(rows, counts.sent), torch.split(received, counts.received)
    for first in range(0, largest, most_rows):
        parts = [each[first : first + most_rows] for each in sent]
        places = [each[first : first + most_rows] for each in got]
        sizes = [len(place) for place in places]
        moved = all_to_all(torch.cat(parts), counts.group, what, [len(part) for part in parts], sizes)
        for place, part in zip(places, torch.split(moved, sizes), strict=True):
            place.copy_(part)
    return received


class _ExchangeRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, counts: Counts) -> Tensor:
        ctx.counts = counts
        return exchange(rows, counts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return exchange(gradients[0], ctx.counts.reversed, "gradients"), None


def exchange_rows(rows: Tensor, counts: Counts) -> Tensor:
    """`exchange` with gradients, which go the other way by one more all_to_all_single.

    Ranks that send or get nothing take part in both.
    """
    return _ExchangeRows.apply(rows, counts)  # type: ignore[no-any-return,no-untyped-call]
