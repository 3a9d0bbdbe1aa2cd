"""`Objective`: the loss of each token from its softmax statistics, and its gradient with respect to logits.

    loss = log(total) - (1 - s) (z_y - m) - s / K sum over classes of (z - m) + w (m + log(total))^2

with m and total as in `SoftmaxStatistics`, K classes, label smoothing s in torch's convention (s / K on every class, the
target among them), z-loss weight w (Chowdhery et al., 2022, section 5). The gradient for class c is

    p_c (1 + 2 w (m + log(total))) - (1 - s) [c = y] - s / K,     p_c = exp(z_c - m) / total
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from skewtool.errors import LabelError
from skewtool.parallel.head.labels import Labels
from skewtool.parallel.head.softmax_statistics import SoftmaxStatistics
from skewtool.parallel.home_rows import HomeRows

__all__ = ["REDUCTIONS", "Objective", "reduced"]

REDUCTIONS = ("mean", "sum", "none")


@dataclass(frozen=True)
class Objective:
    """Label smoothing in [0, 1], z-loss weight, and the number of classes of the whole vocabulary."""

    num_classes: int
    label_smoothing: float = 0.0
    z_loss: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing <= 1:
            raise LabelError(f"label_smoothing must be 0 to 1, got {self.label_smoothing}")

    @property
    def smooths(self) -> bool:
        return self.label_smoothing > 0

    def loss(self, statistics: SoftmaxStatistics, labels: Labels) -> Tensor:
        """The loss of each token [N], 0 where ignored."""
        loss = statistics.log_total - (1 - self.label_smoothing) * statistics.target
        if statistics.differences is not None:
            loss = loss - self.label_smoothing / self.num_classes * statistics.differences
        if self.z_loss:
            loss = loss + self.z_loss * (statistics.maximum + statistics.log_total).square()
        return torch.where(labels.counted, loss, 0)

    def gradient_(
        self,
        exponentials: Tensor,
        statistics: SoftmaxStatistics,
        targets: tuple[Tensor, Tensor],
        upstream: Tensor,
        home: HomeRows,
    ) -> Tensor:
        """The gradient of the logits [N, R] in place of `exponentials` exp(z - local maximum), 0 where no class.

        `upstream` [N] is the gradient of each token's loss, 0 where ignored; such rows become 0 whatever they held.
        """
        column, here = targets
        factor = statistics.local_scale / statistics.total
        if self.z_loss:
            factor = factor * (1 + 2 * self.z_loss * (statistics.maximum + statistics.log_total))
        gradient = exponentials.mul_((factor * upstream)[:, None])
        ignored = upstream == 0
        if ignored.is_cuda or ignored.any():  # to ask would make a GPU wait longer than to fill
            gradient.masked_fill_(ignored[:, None], 0)  # 0 times NaN is NaN
        of_target = torch.where(here, -(1 - self.label_smoothing) * upstream, 0)
        gradient.scatter_add_(1, column[:, None], of_target[:, None])
        if self.smooths:
            gradient.sub_((self.label_smoothing / self.num_classes * upstream)[:, None])
            if home.no_class.numel():
                gradient.index_fill_(1, home.no_class, 0)
        return gradient


def reduced(losses: Tensor, divisor: Tensor | None, reduction: str) -> Tensor:
    """losses [N] as they are ("none"), their sum, or the sum by the divisor ("mean")."""
    if reduction == "none":
        return losses
    return losses.sum() if divisor is None else losses.sum() / divisor
