"""Uneven all-to-all of rows, forward and backward.

Counts are known to all ranks beforehand, because the collectives do not check them: with gloo a rank that expects fewer
rows than are sent aborts, and one that expects more keeps stale memory without an error.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from skewtool.parallel.groups import Group, rank_of, size_of

__all__ = ["Counts", "exchange", "gather_rows"]

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


def exchange(rows: Tensor, counts: Counts) -> Tensor:
    """Sends rows [sum(sent), ...], ordered by target, and returns those received [sum(received), ...], ordered by source.

    One all_to_all_single over the group (none alone), or one for each part of at most 2^31 - 1 elements: as many on every
    rank, since all know all counts. Not differentiable; see `gather_rows`.
    """
    if size_of(counts.group) == 1:
        return rows
    width = max(1, math.prod(rows.shape[1:]))
    most_rows = max(1, _MOST_ELEMENTS // (width * size_of(counts.group)))
    largest = max(max(row) for row in counts.matrix)
    if largest <= most_rows:
        return _transfer(rows, counts.sent, counts.received, counts.group)
    received = rows.new_empty((sum(counts.received), *rows.shape[1:]))
    sent, got = torch.split(rows, counts.sent), torch.split(received, counts.received)
    for first in range(0, largest, most_rows):
        parts = [each[first : first + most_rows] for each in sent]
        places = [each[first : first + most_rows] for each in got]
        moved = _transfer(torch.cat(parts), [len(p) for p in parts], [len(p) for p in places], counts.group)
        for place, part in zip(places, torch.split(moved, [len(p) for p in places]), strict=True):
            place.copy_(part)
    return received


def _transfer(rows: Tensor, sent: list[int], received: list[int], group: Group) -> Tensor:
    result = rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(result, rows.contiguous(), received, sent, group=group)
    return result


class _GatherRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, slots: Tensor, counts: Counts) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.counts, ctx.shape = counts, weight.shape
        return exchange(weight.index_select(0, slots), counts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (slots,) = ctx.saved_tensors
        rows = exchange(gradients[0], ctx.counts.reversed)
        return rows.new_zeros(ctx.shape).index_add_(0, slots, rows), None, None


def gather_rows(weight: Tensor, slots: Tensor, counts: Counts) -> Tensor:
    """Rows weight[slots] of this rank sent to those who asked: weight [S, H], slots int64 [sum(sent)], by target.

    Returns [sum(received), H], by source. The backward exchanges gradients the other way and adds them up per slot, so
    it is one more all_to_all_single. Ranks that send or get nothing take part in both.
    """
    return _GatherRows.apply(weight, slots, counts)  # type: ignore[no-any-return,no-untyped-call]
