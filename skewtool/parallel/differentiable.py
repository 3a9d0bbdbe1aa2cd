"""Collectives with gradients. The name says what the forward does; each states its backward.

A tensor is *replicated* where all ranks hold the same values, and so is its gradient; *partial* where the true value is
the sum over ranks. Forward and backward are each other's transposes under that reading, which is where most bugs of
tensor parallelism sit: a sum whose backward sums again counts every gradient P times.

Sums of 16-bit tensors are taken in float32 and rounded once. `wide=True` gives the result in float32, so that gradients
arrive in float32 too: what is summed must not be rounded before.
"""

from typing import Any

import torch
from torch import Tensor

from skewtool.parallel.collectives import all_gather, all_reduce, all_to_all, reduce_scatter
from skewtool.parallel.groups import Group, rank_of, size_of

__all__ = [
    "exchange_equal_parts",
    "gather_parts",
    "own_part",
    "replicated",
    "scatter_sums",
    "sum_of_partial",
    "sum_of_ranks",
    "summed",
]


def summed(tensor: Tensor, group: Group, what: str) -> Tensor:
    """The sum over ranks in at least float32, in the tensor's dtype; the tensor is left alone. Not differentiable."""
    if size_of(group) == 1:
        return tensor
    wide = tensor.to(torch.promote_types(tensor.dtype, torch.float32), copy=True)
    return all_reduce(wide, group, what).to(tensor.dtype)


def _widened(tensor: Tensor) -> Tensor:
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


class _Replicated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Group, wide: bool) -> Tensor:
        ctx.group, ctx.dtype = group, tensor.dtype
        return _widened(tensor).view_as(tensor) if wide else tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return summed(gradients[0], ctx.group, "gradients").to(ctx.dtype), None, None


def replicated(tensor: Tensor, group: Group, *, wide: bool = False) -> Tensor:
    """A replicated tensor, before ranks do different things with it: forward nothing, backward one all_reduce."""
    if size_of(group) == 1 and not wide:
        return tensor
    return _Replicated.apply(tensor, group, wide)  # type: ignore[no-any-return,no-untyped-call]


class _SumOfPartial(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Group, what: str, one_owner: bool) -> Tensor:
        return all_reduce(tensor.clone(), group, what) if one_owner else summed(tensor, group, what)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return gradients[0], None, None, None


def sum_of_partial(tensor: Tensor, group: Group, what: str = "rows", *, one_owner: bool = False) -> Tensor:
    """A partial tensor -> replicated: forward one all_reduce, backward nothing.

    `one_owner`: at most one rank is not zero in each element, so that no sum rounds and 16 bits travel as 16 bits.
    """
    if size_of(group) == 1:
        return tensor
    return _SumOfPartial.apply(tensor, group, what, one_owner)  # type: ignore[no-any-return,no-untyped-call]


class _SumOfRanks(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Group, what: str) -> Tensor:
        ctx.group, ctx.what = group, what
        return summed(tensor, group, what)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return summed(gradients[0], ctx.group, ctx.what), None, None


def sum_of_ranks(tensor: Tensor, group: Group, what: str = "statistics") -> Tensor:
    """A partial tensor -> the sum, of which each rank then makes something of its own: one all_reduce both ways."""
    return _SumOfRanks.apply(tensor, group, what) if size_of(group) > 1 else tensor  # type: ignore[no-untyped-call]


def _reduced_parts(parts: Tensor, group: Group, what: str, one_owner: bool) -> Tensor:
    if one_owner or size_of(group) == 1:
        return reduce_scatter(parts, group, what)
    return reduce_scatter(_widened(parts), group, what).to(parts.dtype)


class _ScatterSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, parts: Tensor, group: Group, what: str, one_owner: bool) -> Tensor:
        ctx.group = group
        return _reduced_parts(parts, group, what, one_owner)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        return all_gather(gradients[0], ctx.group, "gradients"), None, None, None


def scatter_sums(parts: Tensor, group: Group, what: str = "rows", *, one_owner: bool = False) -> Tensor:
    """A partial tensor [P, ...] -> part `rank` of the sum, [...]: forward one reduce_scatter, backward one all_gather.

    `one_owner` as in `sum_of_partial`.
    """
    return _ScatterSums.apply(parts, group, what, one_owner)  # type: ignore[no-any-return,no-untyped-call]


class _GatherParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: Group, what: str, same_use: bool, wide: bool) -> Tensor:
        ctx.group, ctx.same_use, ctx.dtype = group, same_use, tensor.dtype
        gathered = all_gather(tensor, group, what)
        return _widened(gathered) if wide else gathered

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        if ctx.same_use:
            own = gradients[0][rank_of(ctx.group)]
        else:
            own = _reduced_parts(gradients[0], ctx.group, "gradients", False)
        return own.to(ctx.dtype), None, None, None, None


def gather_parts(tensor: Tensor, group: Group, what: str = "rows", *, same_use: bool, wide: bool = False) -> Tensor:
    """Equal parts [...] of all ranks -> [P, ...]: forward one all_gather.

    `same_use`: all ranks go on with the whole in the same way, its gradient is replicated, and backward takes this rank's
    part of it. Otherwise gradients are partial, and backward is one reduce_scatter.
    """
    return _GatherParts.apply(tensor, group, what, same_use, wide)  # type: ignore[no-any-return,no-untyped-call]


class _OwnPart(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, start: int, stop: int, group: Group) -> Tensor:
        ctx.shape, ctx.start, ctx.stop, ctx.group = tensor.shape, start, stop, group
        return tensor[..., start:stop].contiguous()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        whole = gradients[0].new_zeros(ctx.shape)
        whole[..., ctx.start : ctx.stop] = gradients[0]
        return all_reduce(whole, ctx.group, "gradients"), None, None, None


def own_part(tensor: Tensor, start: int, stop: int, group: Group) -> Tensor:
    """Columns [start, stop) of a replicated tensor [..., H], different ones on each rank: forward nothing, backward one
    all_reduce, which brings every rank the gradient of all columns."""
    return _OwnPart.apply(tensor, start, stop, group)  # type: ignore[no-any-return,no-untyped-call]


class _ExchangeEqualParts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return all_to_all(rows, group, "rows")

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return all_to_all(gradients[0], ctx.group, "gradients"), None


def exchange_equal_parts(rows: Tensor, group: Group) -> Tensor:
    """rows [P c, ...], c for each rank -> [P c, ...], c of each rank: one all_to_all both ways."""
    return _ExchangeEqualParts.apply(rows, group)  # type: ignore[no-any-return,no-untyped-call]
