"""The naive twin: an LM head and its loss in plain torch, on one process, with all logits."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.parallel.comparing import backward, drawn

__all__ = ["OPTIONS", "Options", "Problem", "Solution", "logits_of", "loss_of", "solve"]


@dataclass(frozen=True)
class Options:
    """Of the head, and of the loss."""

    bias: bool = False
    soft_cap: float | None = None
    temperature: float = 1.0
    label_smoothing: float = 0.0
    z_loss: float = 0.0

    @property
    def head(self) -> dict[str, Any]:
        return {"bias": self.bias, "soft_cap": self.soft_cap, "temperature": self.temperature}

    @property
    def loss(self) -> dict[str, Any]:
        return {"label_smoothing": self.label_smoothing, "z_loss": self.z_loss}


OPTIONS = (
    Options(),
    Options(label_smoothing=0.1),
    Options(bias=True, z_loss=0.01),
    Options(bias=True, soft_cap=2.0, temperature=0.7),
    Options(bias=True, soft_cap=3.0, temperature=1.5, label_smoothing=0.2, z_loss=0.1),
)


@dataclass(frozen=True)
class Solution:
    """A loss, and the gradients of hidden states, table and bias for an upstream gradient."""

    loss: Tensor
    hidden: Tensor
    table: Tensor
    bias: Tensor


@dataclass(frozen=True, eq=False)
class Problem:
    """table [V, H], bias [V], hidden [N, H], labels [N]; weight [N] is the upstream gradient of per-token losses."""

    table: Tensor
    bias: Tensor
    hidden: Tensor
    labels: Tensor
    weight: Tensor
    real_vocab: int

    @classmethod
    def of(cls, vocab: int, real_vocab: int, width: int, tokens: int, dtype: torch.dtype = torch.float64) -> "Problem":
        """Drawn; the first and the last class are among the labels, and some are ignored, the first among them."""
        labels = torch.randint(0, real_vocab, (tokens,), generator=torch.Generator().manual_seed(4))
        labels[:5] = torch.tensor([-100, 0, real_vocab - 1, -100, 0])[:tokens]
        return cls(
            drawn(vocab, width, seed=1, dtype=dtype),
            drawn(vocab, seed=2, dtype=dtype),
            2 * drawn(tokens, width, seed=3, dtype=dtype),
            labels,
            drawn(tokens, seed=5, dtype=torch.promote_types(dtype, torch.float32)),
            real_vocab,
        )

    @property
    def vocab(self) -> int:
        return self.table.size(0)

    @property
    def width(self) -> int:
        return self.table.size(1)

    def upstream(self, reduction: str) -> Tensor:
        return self.weight if reduction == "none" else self.weight.new_tensor(3.0)

    def double(self) -> "Problem":
        """The same numbers in float64."""
        table, bias, hidden, weight = (each.double() for each in (self.table, self.bias, self.hidden, self.weight))
        return Problem(table, bias, hidden, self.labels, weight, self.real_vocab)


@lru_cache(maxsize=64)
def solve(problem: Problem, options: Options, reduction: str) -> Solution:
    hidden, table, bias = (each.clone().requires_grad_() for each in (problem.hidden, problem.table, problem.bias))
    logits = logits_of(hidden, table, bias, options)
    loss = loss_of(logits[:, : problem.real_vocab], problem.labels, reduction, **options.loss)
    backward(loss, problem.upstream(reduction).to(loss.dtype))
    gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in (hidden, table, bias)]
    return Solution(loss.detach(), *gradients)


def logits_of(hidden: Tensor, table: Tensor, bias: Tensor, options: Options) -> Tensor:
    logits = F.linear(hidden, table, bias if options.bias else None)
    if options.soft_cap is not None:
        logits = options.soft_cap * torch.tanh(logits / options.soft_cap)
    return logits / options.temperature


def loss_of(logits: Tensor, labels: Tensor, reduction: str, label_smoothing: float = 0.0, z_loss: float = 0.0) -> Tensor:
    """torch's own reduction where there is no z-loss."""
    if not z_loss:
        return F.cross_entropy(logits, labels, label_smoothing=label_smoothing, reduction=reduction)
    loss = F.cross_entropy(logits, labels, label_smoothing=label_smoothing, reduction="none")
    loss = loss + z_loss * torch.where(labels >= 0, torch.logsumexp(logits, dim=-1).square(), 0)
    return {"none": loss, "sum": loss.sum(), "mean": loss.sum() / (labels >= 0).sum()}[reduction]
