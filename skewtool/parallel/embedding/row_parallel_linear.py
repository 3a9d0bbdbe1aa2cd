"""`RowParallelLinear`: the linear layer that takes hidden shards, and ends the sharding."""

import torch
from torch import Tensor, nn

from skewtool.parallel.differentiable import sum_of_partial
from skewtool.parallel.groups import Group, rank_of, size_of
from skewtool.parallel.hidden_columns import columns_of
from skewtool.parallel.sharded_module import ShardedModule
from skewtool.parallel.wide_product import wide_linear

__all__ = ["RowParallelLinear"]


class RowParallelLinear(ShardedModule):
    """``F.linear(x, weight, bias)`` with x [..., in_features] of which each rank has its columns.

    weight [out_features, in_r]: this rank's columns; bias [out_features], the same on every rank. Parameters start as
    zeros: load them (`weight.data.copy_(whole[:, layer.columns.start : layer.columns.stop])`).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        group: Group = None,
        *,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(group)
        self.columns = columns_of(in_features, size_of(group), rank_of(group))
        self.weight = nn.Parameter(torch.zeros(out_features, len(self.columns), device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(out_features, device=device, dtype=dtype)) if bias else None

    def counted_rows(self) -> dict[str, int]:
        return {"weight": self.weight.size(0)}

    def forward(self, states: Tensor) -> Tensor:
        """states [..., in_r] -> [..., out_features] on every rank. Collectives: forward one all_reduce, backward none."""
        whole = sum_of_partial(wide_linear(states, self.weight), self.group, "partial sums").to(states.dtype)
        return whole if self.bias is None else whole + self.bias
