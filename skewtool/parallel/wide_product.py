"""Matrix products of 16-bit operands with results in float32: what is summed further must not be rounded before."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

__all__ = ["linear_of_wide", "wide_linear", "wide_product"]

_BLOCK_COLUMNS = 2**13


def wide_product(left: Tensor, right: Tensor, room: Tensor | None = None) -> Tensor:
    """left [m, k] @ right [k, n] in at least float32, [m, n]. Not differentiable.

    A GPU multiplies 16-bit operands and accumulates in float32; elsewhere blocks of columns are widened first. `room`: at
    least [m, n] of the result's dtype, which a CPU may write it to.
    """
    if left.dtype not in (torch.float16, torch.bfloat16):
        return torch.mm(left, right, out=None if room is None else room[: left.size(0)])
    if left.is_cuda:
        try:
            return torch.mm(left, right, out_dtype=torch.float32)
        except TypeError:  # a torch that has no out_dtype
            return (left @ right).float()
    result = torch.empty(left.size(0), right.size(1), device=left.device) if room is None else room[: left.size(0)]
    wide = left.float()
    blocks = zip(torch.split(result, _BLOCK_COLUMNS, dim=1), torch.split(right, _BLOCK_COLUMNS, dim=1), strict=True)
    for block, columns in blocks:
        block.copy_(wide @ columns.float())
    return result


class _WideLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return wide_product(rows, weight.t())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        rows, weight = ctx.saved_tensors
        gradient = gradients[0].to(rows.dtype)
        return wide_product(gradient, weight).to(rows.dtype), wide_product(gradient.t(), rows).to(weight.dtype)


def wide_linear(rows: Tensor, weight: Tensor) -> Tensor:
    """rows [..., k], weight [n, k] -> [..., n] in at least float32: F.linear whose result is not rounded to 16 bits."""
    flat = rows.reshape(rows.shape[:-1].numel(), rows.size(-1))  # not -1, for k may be 0
    return _WideLinear.apply(flat, weight).reshape(*rows.shape[:-1], weight.size(0))  # type: ignore[no-any-return,no-untyped-call]


class _LinearOfWide(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
        narrow = rows.to(dtype)
        ctx.save_for_backward(narrow, weight)
        return F.linear(narrow, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        narrow, weight = ctx.saved_tensors
        of_rows, of_weight, of_bias, _ = ctx.needs_input_grad
        return (
            wide_product(gradients[0], weight) if of_rows else None,
            gradients[0].t() @ narrow if of_weight else None,
            gradients[0].sum(dim=0) if of_bias else None,
            None,
        )


def linear_of_wide(rows: Tensor, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> Tensor:
    """``F.linear(rows.to(dtype), weight, bias)`` of rows [..., k] in at least float32 that hold values of `dtype`.

    The gradient of rows is not rounded to `dtype`, for it is a part of a sum over ranks.
    """
    flat = rows.reshape(rows.shape[:-1].numel(), rows.size(-1))
    product: Tensor = _LinearOfWide.apply(flat, weight, bias, dtype)  # type: ignore[no-untyped-call]
    return product.reshape(*rows.shape[:-1], weight.size(0))
