"""The softmax over shards: maximum, sum and target of each token, from the logits that each shard has.

Two all_reduces per batch of tokens, one MAX and one SUM, of a few numbers per token; logits never travel. Every shard
adds its classes to the sum, whether or not it owns the target. A shard without classes adds exp(-inf) = 0 to the sum and
-inf to the maximum. NaN reaches the result through the sum, whatever the backend's MAX makes of it.

Source of the method: the online softmax of Milakov and Gimelshein (2018), merged over shards instead of over tiles.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from skewtool.parallel.collectives import all_reduce
from skewtool.parallel.groups import Group
from skewtool.parallel.head.labels import Labels
from skewtool.parallel.home_rows import HomeRows

__all__ = ["LocalSums", "SoftmaxStatistics", "own_targets", "statistics_of"]


def own_targets(labels: Labels, home: HomeRows) -> tuple[Tensor, Tensor]:
    """For labels [N]: their column here, 0 where they have none; and whether they have one and count."""
    column = home.column_of[labels.ids]
    return column.clamp(min=0), (column >= 0) & labels.counted


@dataclass(frozen=True, eq=False)
class LocalSums:
    """What one shard knows of each token, in at least float32: [N] each.

    maximum        of its classes, -inf where it has none
    exponentials   sum of exp(z - maximum)
    differences    sum of z - maximum over its classes, for label smoothing
    target         z of the target where it is here, else 0
    """

    maximum: Tensor
    exponentials: Tensor
    differences: Tensor | None
    target: Tensor

    @classmethod
    def reduce_(cls, logits: Tensor, targets: tuple[Tensor, Tensor], home: HomeRows, smoothing: bool) -> "LocalSums":
        """From logits [N, R] in at least float32, which become exp(z - maximum), and 0 in columns that are no class."""
        column, here = targets
        if home.no_class.numel():
            logits.index_fill_(1, home.no_class, -torch.inf)
        maximum = logits.amax(dim=1)
        target = torch.where(here, logits.gather(1, column[:, None]).squeeze(1), 0)
        logits.sub_(_finite(maximum)[:, None])
        differences = None
        if smoothing:
            classes = logits.index_fill(1, home.no_class, 0) if home.no_class.numel() else logits
            differences = classes.sum(dim=1)
        return cls(maximum, logits.exp_().sum(dim=1), differences, target)


def _finite(maximum: Tensor) -> Tensor:
    return torch.where(maximum == -torch.inf, 0, maximum)


@dataclass(frozen=True, eq=False)
class SoftmaxStatistics:
    """The softmax of each token over all shards, in at least float32: [N] each.

    maximum       m over all classes
    total         sum over all classes of exp(z - m)
    target        z_y - m of the target y; 0 where it is ignored
    differences   sum over all classes of z - m, for label smoothing
    local_scale   exp(local maximum - m): what turns local exponentials into global ones
    """

    maximum: Tensor
    total: Tensor
    target: Tensor
    differences: Tensor | None
    local_scale: Tensor

    @property
    def log_total(self) -> Tensor:
        return self.total.log()


def statistics_of(local: LocalSums, here: Tensor, home: HomeRows, group: Group) -> SoftmaxStatistics:
    """Merges local sums over the group; `here`: which targets this shard owns. Collectives: all_reduce MAX of N numbers,
    all_reduce SUM of 2 N (3 N with label smoothing)."""
    maximum = all_reduce(local.maximum.clone(), group, "statistics", dist.ReduceOp.MAX)
    scale = torch.where(local.maximum == -torch.inf, 0, (local.maximum - maximum).exp())
    sums = [local.exponentials * scale, torch.where(here, local.target - maximum, 0)]
    if local.differences is not None:
        shift = _finite(local.maximum) - maximum
        classes = int(home.is_class.numel() - home.no_class.numel())
        sums.append(local.differences + (classes * shift if classes else 0))
    total, target, *differences = all_reduce(torch.stack(sums), group, "statistics").unbind()
    return SoftmaxStatistics(maximum, total, target, differences[0] if differences else None, scale)
