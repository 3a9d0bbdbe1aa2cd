"""`Settings` of a draw, one of each per row, checked before anything is sent. Also how other numbers per row are read."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from skewtool.errors import DecodingError

__all__ = ["Settings", "real_per_row", "whole_number", "whole_per_row"]


@dataclass(frozen=True, eq=False)
class Settings:
    """Settings of N rows. A filter is None where no row asks for it; rows that do not ask have a value that keeps all.

    temperature   float64 [N]
    top_k         int64 [N], at most real_vocab, which keeps all
    largest_k     the largest top_k below that
    top_p         float64 [N], 1 and more keeps all
    min_p         float64 [N], 0 keeps all
    top_k_first   whether every row that asks for top_p or min_p asks for top_k too
    """

    temperature: Tensor
    top_k: Tensor | None
    largest_k: int
    top_p: Tensor | None
    min_p: Tensor | None
    top_k_first: bool

    @classmethod
    def checked(
        cls,
        shape: torch.Size,
        device: torch.device,
        real_vocab: int,
        *,
        temperature: float | Tensor,
        top_k: int | Tensor | None,
        top_p: float | Tensor | None,
        min_p: float | Tensor | None,
    ) -> "Settings":
        """Numbers, or tensors that broadcast to the `shape` of rows. Errors: DecodingError for values out of range."""
        heat = real_per_row("temperature", temperature, shape)
        _refuse("temperature", heat, ~((heat >= 0) & heat.isfinite()), "must be finite and at least 0")
        k = whole_per_row("top_k", real_vocab if top_k is None else top_k, shape).clamp(max=real_vocab)
        _refuse("top_k", k, k < 1, "must be at least 1")
        p = real_per_row("top_p", 1.0 if top_p is None else top_p, shape)
        _refuse("top_p", p, ~(p > 0), "must be above 0")
        least = real_per_row("min_p", 0.0 if min_p is None else min_p, shape)
        _refuse("min_p", least, ~((least >= 0) & (least <= 1)), "must be 0 to 1")
        by_k, by_p, by_least = k < real_vocab, p < 1, least > 0
        return cls(
            temperature=heat.to(device),
            top_k=k.to(device) if by_k.any() else None,
            largest_k=int(k[by_k].amax()) if by_k.any() else real_vocab,
            top_p=p.to(device) if by_p.any() else None,
            min_p=least.to(device) if by_least.any() else None,
            top_k_first=bool((by_k | ~(by_p | by_least)).all()),
        )

    @property
    def filters(self) -> bool:
        """Whether any row asks for any."""
        return not (self.top_k is None and self.top_p is None and self.min_p is None)

    def of_rows(self, rows: slice) -> "Settings":
        """Those of some rows; what is said of all rows stays."""
        return replace(
            self,
            temperature=self.temperature[rows],
            top_k=None if self.top_k is None else self.top_k[rows],
            top_p=None if self.top_p is None else self.top_p[rows],
            min_p=None if self.min_p is None else self.min_p[rows],
        )


def whole_number(name: str, value: int) -> int:
    """Errors: DecodingError where it is none."""
    try:
        return operator.index(value)
    except TypeError:
        raise DecodingError(f"{name} must be a whole number, got {value!r}") from None


def real_per_row(name: str, value: float | Tensor, shape: torch.Size) -> Tensor:
    """A number, or a tensor that broadcasts to `shape` -> float64 [N] on the CPU. Errors: DecodingError for others."""
    return _per_row(name, value, shape, lambda: torch.as_tensor(value, dtype=torch.float64, device="cpu"))


def whole_per_row(name: str, value: int | Tensor, shape: torch.Size) -> Tensor:
    """A whole number, or a tensor of them that broadcasts to `shape` -> int64 [N] on the CPU. Errors: DecodingError."""
    if isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool):
        raise DecodingError(f"{name} must be whole numbers, got {value.dtype}")
    number = value if isinstance(value, Tensor) else whole_number(name, value)
    return _per_row(name, value, shape, lambda: torch.as_tensor(number, dtype=torch.int64, device="cpu"))


def _per_row(name: str, value: object, shape: torch.Size, tensor: Callable[[], Tensor]) -> Tensor:
    try:
        return tensor().expand(shape).reshape(shape.numel())
    except (RuntimeError, TypeError, ValueError, OverflowError):
        found = f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else repr(value)
        rule = f"must be a number or a tensor that broadcasts to the rows {list(shape)}"
        raise DecodingError(f"{name} {rule}, got {found}") from None


def _refuse(name: str, values: Tensor, bad: Tensor, rule: str) -> None:
    if bad.any():
        row = int(bad.long().argmax())
        raise DecodingError(f"{name} {rule}, got {values[row].item()} in row {row} (flattened)")
