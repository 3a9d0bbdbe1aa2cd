"""Norms of hidden states whose columns lie on ranks: `HiddenShardedRMSNorm` and `HiddenShardedLayerNorm`.

One small all_reduce of statistics per token, and one in backward, is all that a hidden-sharded embedding needs to stay
distributed up to the first linear layer.
"""

import torch
from torch import Tensor, nn

from skewtool.parallel.differentiable import sum_of_ranks
from skewtool.parallel.groups import Group, rank_of, size_of
from skewtool.parallel.hidden_columns import columns_of
from skewtool.parallel.sharded_module import ShardedModule

__all__ = ["HiddenShardedLayerNorm", "HiddenShardedRMSNorm"]


class HiddenShardedRMSNorm(ShardedModule):
    """``F.rms_norm(x, (H,), weight, eps)`` of x [..., H] of which each rank has its columns [..., H_r]; weight [H_r].

    Collectives: one all_reduce of one float32 (float64 for float64) per token, forward and backward.
    """

    def __init__(
        self,
        hidden: int,
        group: Group = None,
        *,
        eps: float | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(group)
        self.hidden, self.eps = hidden, eps
        self.columns = columns_of(hidden, size_of(group), rank_of(group))
        self.weight = nn.Parameter(torch.ones(len(self.columns), device=device, dtype=dtype))

    def counted_rows(self) -> dict[str, int]:
        return {"weight": len(self.columns)}

    def forward(self, states: Tensor) -> Tensor:
        """states [..., H_r] -> [..., H_r], of the same dtype."""
        eps = torch.finfo(states.dtype).eps if self.eps is None else self.eps
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        squares = sum_of_ranks(wide.square().sum(-1, keepdim=True), self.group)
        return (wide * torch.rsqrt(squares / self.hidden + eps) * self.weight).to(states.dtype)


class HiddenShardedLayerNorm(ShardedModule):
    """``F.layer_norm(x, (H,), weight, bias, eps)`` of x [..., H] of which each rank has its columns; weight, bias [H_r].

    The statistics are sums of values and squares, in float64, where their difference loses nothing that a float32 input
    has. Collectives: one all_reduce of two float64 per token, forward and backward.
    """

    def __init__(
        self,
        hidden: int,
        group: Group = None,
        *,
        eps: float = 1e-5,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(group)
        self.hidden, self.eps = hidden, eps
        self.columns = columns_of(hidden, size_of(group), rank_of(group))
        self.weight = nn.Parameter(torch.ones(len(self.columns), device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(len(self.columns), device=device, dtype=dtype)) if bias else None

    def counted_rows(self) -> dict[str, int]:
        return {name: len(self.columns) for name, _ in self.named_parameters(recurse=False)}

    def forward(self, states: Tensor) -> Tensor:
        """states [..., H_r] -> [..., H_r], of the same dtype."""
        wide = states.double()
        sums = torch.stack([wide.sum(-1), wide.square().sum(-1)], dim=-1)
        mean, square = (sum_of_ranks(sums, self.group) / self.hidden).unsqueeze(-2).unbind(-1)
        centred = (wide - mean) * torch.rsqrt((square - mean.square()).clamp(min=0) + self.eps)
        scaled = centred * self.weight
        return (scaled if self.bias is None else scaled + self.bias).to(states.dtype)
