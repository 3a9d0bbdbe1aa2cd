"""Labels over shards: checked on all ranks together, before any of them is used as an index."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from skewtool.errors import LabelError
from skewtool.parallel.collectives import all_gather, all_reduce
from skewtool.parallel.groups import Group
from skewtool.parallel.routing.route import first_bad_id

__all__ = ["Labels", "checked_labels", "mean_divisor"]


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of all N tokens, the same on every rank of the vocabulary's group.

    ids       int64 [N]   0 where ignored
    counted   bool [N]    false where ignored
    """

    ids: Tensor
    counted: Tensor


def checked_labels(labels: Tensor, ignore_index: int, real_vocab: int, group: Group, check: bool = True) -> Labels:
    """labels int [N] -> Labels. Ignored ones are told before all else: `ignore_index` may be any number.

    Collectives: one all_gather of two integers, for which the host waits; none with `check=False`, where a label out of
    range belongs to no rank and its loss is not defined. Errors: LabelError on every rank where any has a label that is
    neither ignored nor in [0, real_vocab), naming rank, label and position.
    """
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise LabelError(f"labels must be integers, got {labels.dtype}")
    flat = labels.reshape(-1).long()
    counted = flat != ignore_index
    if check:
        bad = counted & ((flat < 0) | (flat >= real_vocab))
        for rank, (where, label) in enumerate(all_gather(first_bad_id(flat, bad), group, "counts").tolist()):
            if where >= 0:
                raise LabelError(
                    f"rank {rank} has label {label} at position {where} (flattened); labels must be at least 0 and below "
                    f"{real_vocab}, or {ignore_index} to be ignored"
                )
    return Labels(flat.masked_fill(~counted, 0), counted)


def mean_divisor(counted: Tensor, data_parallel_group: Group, nan_if_empty: bool) -> Tensor:
    """What a mean divides by: the labels that count, over the data-parallel group too where one is given.

    At least 1, so that the mean of nothing is 0 with zero gradients; or 0 with `nan_if_empty`. Never read from losses,
    which may be 0 where a label counts. One all_reduce of one integer with a data-parallel group.
    """
    number = counted.sum()
    if data_parallel_group is not None:
        number = all_reduce(number, data_parallel_group, "counts", dist.ReduceOp.SUM)
    return number if nan_if_empty else number.clamp(min=1)
