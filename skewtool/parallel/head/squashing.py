"""`Squashing`: what happens to the products of an LM head before the softmax: soft-cap, then temperature."""

from dataclasses import dataclass

from torch import Tensor

from skewtool.errors import LabelError

__all__ = ["Squashing"]


@dataclass(frozen=True)
class Squashing:
    """z -> cap * tanh(z / cap) / temperature; without a cap z / temperature. Errors: LabelError unless both are above 0."""

    soft_cap: float | None = None
    temperature: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("soft_cap", self.soft_cap), ("temperature", self.temperature)):
            if value is not None and not value > 0:
                raise LabelError(f"{name} must be above 0, got {value}")

    def __call__(self, products: Tensor) -> Tensor:
        """Differentiable, of any shape."""
        capped = products if self.soft_cap is None else (products / self.soft_cap).tanh() * self.soft_cap
        return capped if self.temperature == 1 else capped / self.temperature

    def apply_(self, products: Tensor) -> tuple[Tensor, Tensor | None]:
        """The same in place of `products`, and tanh(z / cap) for `backward_`."""
        squashed = None
        if self.soft_cap is not None:
            squashed = products.div_(self.soft_cap).tanh_()
            products = squashed * self.soft_cap
        return (products if self.temperature == 1 else products.div_(self.temperature)), squashed

    def backward_(self, gradient: Tensor, squashed: Tensor | None) -> Tensor:
        """The gradient of the products from that of the logits, in place of both."""
        if squashed is not None:
            gradient.mul_(squashed.square_().neg_().add_(1))
        return gradient if self.temperature == 1 else gradient.div_(self.temperature)
