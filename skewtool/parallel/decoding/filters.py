"""Top-k, top-p and min-p over shards: the classes of each row that can be drawn.

In the order of Hugging Face's generate: temperature, then top-k, then top-p among what is left, then min-p.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from skewtool.parallel.collectives import all_reduce
from skewtool.parallel.decoding.classes import Classes
from skewtool.parallel.decoding.nucleus import nucleus
from skewtool.parallel.decoding.order import LOWEST, key_bits, keys_of, values_of
from skewtool.parallel.decoding.settings import Settings
from skewtool.parallel.decoding.threshold import LAST_ID, Threshold
from skewtool.parallel.decoding.top_k import top_candidates
from skewtool.parallel.groups import Group

__all__ = ["filtered"]

_MOST_ELEMENTS = 2**22  # about eight 64-bit temporaries of so many elements at a time
_HIGHEST = 2**63 - 1


@dataclass(frozen=True)
class _Spread:
    """Where the classes of a row are: spread over the ranks of a group, or all of them on every rank."""

    group: Group
    everywhere: bool

    def total(self, tensor: Tensor) -> Tensor:
        return tensor if self.everywhere else all_reduce(tensor, self.group, "masses")

    def maximum(self, values: Tensor) -> Tensor:
        """values float64 [n, C] without NaN -> [n]."""
        largest = values.amax(1) if values.size(1) else values.new_full((values.size(0),), -torch.inf)
        return largest if self.everywhere else all_reduce(largest, self.group, "maxima", dist.ReduceOp.MAX)


def filtered(logits: Tensor, classes: Classes, settings: Settings, group: Group) -> Threshold:
    """The last class of each row that all filters leave: local logits [..., R] -> a threshold of N rows.

    It holds for this rank's classes: min-p puts it at the last of those that are likely enough.

    Collectives: with top-k, one all_gather of 16 min(k, R) bytes per row and rank, k the largest that any row asks for.
    With top-p or min-p, none more if every row that asks for them asks for top-k, because every rank then knows all
    classes that are left. Else, for each block of 2^22 / R rows: one all_reduce of maxima, 8 bytes a row, and with top-p
    those of `nucleus`.
    """
    threshold = Threshold.none(settings.temperature.numel(), logits.device)
    if settings.top_k is not None:
        candidates = top_candidates(logits, classes, settings.largest_k, group)
        asked = settings.top_k <= settings.largest_k
        threshold = Threshold.at(candidates, settings.top_k.clamp(max=settings.largest_k)).where(asked)
    if settings.top_p is None and settings.min_p is None:
        return threshold
    if settings.top_k is not None and settings.top_k_first:
        spread = _Spread(group, everywhere=True)
        return _by_probability(candidates.keys, candidates.ids, logits.dtype, threshold, settings, spread)
    spread, parts = _Spread(group, everywhere=False), []
    for rows, block in classes.blocks(logits, _MOST_ELEMENTS):
        left, asked_for = threshold.of_rows(rows), settings.of_rows(rows)
        parts.append(_by_probability(keys_of(block), classes.ids, logits.dtype, left, asked_for, spread))
    return Threshold.joined(parts)


def _by_probability(
    keys: Tensor, ids: Tensor, dtype: torch.dtype, threshold: Threshold, settings: Settings, spread: _Spread
) -> Threshold:
    """What top-p, and then min-p, leave of the classes that a threshold leaves."""
    left_out = ~threshold.keeps(keys, ids)
    values = values_of(keys, dtype).double()
    values = values.masked_fill_(left_out | values.isnan(), -torch.inf)  # a row with NaN has no token in the end
    keys = keys.masked_fill(left_out, LOWEST)
    weights = _relative(values, spread.maximum(values), settings.temperature)
    if settings.top_p is not None:
        mass = nucleus(keys, ids, weights, settings.top_p, key_bits(dtype), spread.total)
        threshold = threshold.and_also(mass.where(settings.top_p < 1))
    if settings.min_p is not None:
        threshold = threshold.and_also(_likely(keys, weights, settings.min_p).where(settings.min_p > 0))
    return threshold


def _relative(values: Tensor, maximum: Tensor, temperature: Tensor) -> Tensor:
    """exp((value - maximum) / temperature), [n, C]: the probabilities relative to the highest of the row.

    1 at the maximum also where it is infinite or the temperature 0; then nothing else has any.
    """
    weights = values.sub(maximum[:, None]).div_(temperature[:, None]).exp_()
    return weights.masked_fill_(values == maximum[:, None], 1.0)


def _likely(keys: Tensor, weights: Tensor, min_p: Tensor) -> Threshold:
    """Classes whose probability is at least min_p times the highest."""
    likely = keys.masked_fill(weights < min_p[:, None], _HIGHEST)
    last = likely.amin(1) if likely.size(1) else likely.new_full((likely.size(0),), _HIGHEST)
    return Threshold(last, torch.full_like(last, LAST_ID))
