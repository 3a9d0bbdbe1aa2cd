"""`Candidates`: a few classes of each row, as (key, id) pairs; how a shard picks them, and how those of all shards merge.

A better candidate has the higher value, among equals the lower id. That order is total and knows nothing of shards, so the
best k of the union of every shard's best k are the best k of all. Values travel as the keys of
`skewtool.parallel.decoding.order`, 64 bits beside 64 of the id: neither is rounded.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from skewtool.parallel.collectives import all_gather
from skewtool.parallel.decoding.order import LOWEST, keys_of
from skewtool.parallel.groups import Group

__all__ = ["Candidates", "best", "most"]


@dataclass(frozen=True, eq=False)
class Candidates:
    """k classes of each of N rows.

    keys    int64 [N, k]    of the values; LOWEST where there is no candidate
    ids     int64 [N, k]    global; -1 where there is no candidate
    """

    keys: Tensor
    ids: Tensor

    @staticmethod
    def none(rows: int, number: int, device: torch.device) -> "Candidates":
        """Places without a candidate."""
        shape = (rows, number)
        return Candidates(torch.full(shape, LOWEST, device=device), torch.full(shape, -1, device=device))

    @staticmethod
    def joined(parts: Sequence["Candidates"], dim: int = 0) -> "Candidates":
        """The rows (dim 0) or the candidates (dim 1) of all parts."""
        return Candidates(torch.cat([each.keys for each in parts], dim), torch.cat([each.ids for each in parts], dim))

    def first(self, number: int) -> "Candidates":
        """The best `number` of each row, best first. Two stable sorts: by id, then by falling value."""
        ids, by_id = self.ids.sort(dim=1, stable=True)
        keys, by_key = self.keys.gather(1, by_id).sort(dim=1, descending=True, stable=True)
        return Candidates(keys[:, :number], ids.gather(1, by_key)[:, :number])

    def of_all_ranks(self, group: Group) -> "Candidates":
        """[N, k] on each rank -> [N, P k]: one all_gather of 16 N k bytes."""
        gathered = all_gather(torch.stack([self.keys, self.ids]), group, "candidates")
        return Candidates(*gathered.permute(1, 2, 0, 3).flatten(2))


def best(values: Tensor, ids: Tensor) -> Candidates:
    """The best class of each row: values [n, C] of classes int64 [C] of ascending ids -> [n, 1]."""
    if not ids.numel():
        return Candidates.none(values.size(0), 1, values.device)
    place = values.argmax(dim=1, keepdim=True)  # the first of equals
    return Candidates(keys_of(values.gather(1, place)), ids[place])


def most(values: Tensor, ids: Tensor, number: int) -> Candidates:
    """The best `number` classes of each row, in any order; values and ids as for `best` -> [n, number].

    `torch.topk` promises no order among equals. So only its last value is taken, and a second topk, over integers that
    all differ, finds those above it and as many of the first equal to it as are needed.
    """
    keys, classes = keys_of(values), ids.numel()
    taken = min(number, classes)
    threshold = keys.topk(taken, dim=1).values[:, -1:]
    first_is_largest = torch.arange(classes, 0, -1, device=ids.device)
    rank = torch.where(keys < threshold, 0, first_is_largest + classes * (keys > threshold))
    place = rank.topk(taken, dim=1).indices
    missing = Candidates.none(values.size(0), number - taken, values.device)
    return Candidates.joined([Candidates(keys.gather(1, place), ids[place]), missing], dim=1)
