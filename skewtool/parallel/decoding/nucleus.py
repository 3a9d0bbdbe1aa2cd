"""Top-p over shards (nucleus sampling, Holtzman et al. 2020, https://arxiv.org/abs/1904.09751), exact and without gathering.

Probabilities are whole numbers here, because sums of floats depend on their order, and so on the number of shards, the map
and the batch. Those of a row add up to about 2^52, so that p times the sum is good to the last bit, and each is rounded
once: the set can differ from that of unlimited precision only where p is within about V 2^-53 of a boundary.
"""

import torch
from torch import Tensor

from skewtool.parallel.decoding.selection import Total, weighted_select
from skewtool.parallel.decoding.threshold import LAST_ID, Threshold

__all__ = ["nucleus"]

_COARSE = 2.0**31  # for each of fewer than 2^31 classes: sums are below 2^62, and no more than a third too small
_MASS = 2.0**52  # then masses add up to less than 2^53
_ID_BITS = 32


def nucleus(keys: Tensor, ids: Tensor, weights: Tensor, top_p: Tensor, bits: int, total: Total) -> Threshold:
    """The smallest set of most probable classes whose mass reaches top_p of all; ties go to the lowest ids.

    keys int64 [n, C] of `bits` bits; ids int64 [C] or [n, C]; weights float64 [n, C], the probabilities relative to that
    of the most probable class; top_p float64 [n], above 0. Classes left out before have weight 0 and the key LOWEST.

    Collectives, each a `total`: 2 of [n], bits / 4 of [n, 15], 1 of [n, 3], and 8 of [n, 15] if in any row some but not
    all classes of equal value stay, to find which (on a GPU the host waits once, to know).
    """
    masses = _whole_masses(weights, total)
    everything = total(masses.sum(1))
    needed = (top_p * everything).round().long().clamp(min=1)
    last = weighted_select(keys, masses, needed, bits, total)
    return Threshold(last, _last_id(keys, ids, masses, needed, last, total))


def _whole_masses(weights: Tensor, total: Total) -> Tensor:
    """int64 [n, C]: weights scaled so that a row adds up to about 2^52 over all shards, whatever their number."""
    about = total((weights * _COARSE).round_().long().sum(1))
    return (weights * (_MASS * _COARSE / about)[:, None]).round_().long()


def _last_id(keys: Tensor, ids: Tensor, masses: Tensor, needed: Tensor, last: Tensor, total: Total) -> Tensor:
    """The highest id that stays among classes of the value `last`, int64 [n]."""
    tied = keys == last[:, None]
    parts = ((masses * (keys > last[:, None])).sum(1), (masses * tied).sum(1), tied.sum(1))
    above, mass, number = total(torch.stack(parts, dim=1)).unbind(1)
    each = (mass // number.clamp(min=1)).clamp(min=1)
    stay = (needed - above + each - 1) // each
    if not bool((stay < number).any()):
        return torch.full_like(last, LAST_ID)
    return -weighted_select(-ids.expand_as(keys), tied.long(), stay, _ID_BITS, total)
