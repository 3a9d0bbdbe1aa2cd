"""Rows read from a local weight, with gradients that lose nothing to 16-bit sums."""

from typing import Any

import torch
from torch import Tensor

__all__ = ["read_rows"]


class _ReadRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.shape = rows.shape
        return rows.index_select(0, places)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (places,) = ctx.saved_tensors
        wide = gradients[0].to(torch.promote_types(gradients[0].dtype, torch.float32))
        total = wide.new_zeros(ctx.shape).index_add_(0, places, wide)
        return total.to(gradients[0].dtype), None


def read_rows(rows: Tensor, places: Tensor) -> Tensor:
    """rows [m, H] at places int64 [n]: [n, H]. `index_select`, but 16-bit gradients of a row that is read often (the
    comma, ten thousand times a batch) are added up in float32 and rounded once."""
    return _ReadRows.apply(rows, places)  # type: ignore[no-any-return,no-untyped-call]
