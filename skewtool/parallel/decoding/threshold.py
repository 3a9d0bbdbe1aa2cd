"""`Threshold`: the last class of each row that stays, in the order of falling values and, among equals, rising ids.

Every filter of a distribution is one: top-k, top-p and min-p all keep the first classes of that order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from skewtool.parallel.decoding.candidates import Candidates
from skewtool.parallel.decoding.order import LOWEST

__all__ = ["LAST_ID", "Threshold"]

LAST_ID = 2**31 - 1
"""An id behind all: every class of the threshold's value stays."""


@dataclass(frozen=True, eq=False)
class Threshold:
    """keys int64 [N] of values, ids int64 [N]. A class stays if its key is higher, or equal and its id not higher."""

    keys: Tensor
    ids: Tensor

    @classmethod
    def none(cls, rows: int, device: torch.device) -> "Threshold":
        """All classes stay."""
        return cls(torch.full((rows,), LOWEST, device=device), torch.full((rows,), LAST_ID, device=device))

    @classmethod
    def at(cls, candidates: Candidates, number: Tensor) -> "Threshold":
        """The first `number` [N], at most k, of candidates [N, k] stay, which must be in order."""
        place = number[:, None] - 1
        return cls(candidates.keys.gather(1, place).squeeze(1), candidates.ids.gather(1, place).squeeze(1))

    @classmethod
    def joined(cls, parts: Sequence["Threshold"]) -> "Threshold":
        """Some rows after others."""
        return cls(torch.cat([each.keys for each in parts]), torch.cat([each.ids for each in parts]))

    def of_rows(self, rows: slice) -> "Threshold":
        """That of some rows."""
        return Threshold(self.keys[rows], self.ids[rows])

    def where(self, asked: Tensor) -> "Threshold":
        """This one in rows where `asked` bool [N], none in others."""
        return Threshold(self.keys.where(asked, LOWEST), self.ids.where(asked, LAST_ID))

    def and_also(self, other: "Threshold") -> "Threshold":
        """What stays under both."""
        behind = (self.keys < other.keys) | ((self.keys == other.keys) & (self.ids > other.ids))
        return Threshold(other.keys.where(behind, self.keys), other.ids.where(behind, self.ids))

    def keeps(self, keys: Tensor, ids: Tensor) -> Tensor:
        """Which classes stay: keys int64 [N, C], ids int64 [C] or [N, C] -> bool [N, C]."""
        last = self.keys[:, None]
        return (keys > last) | ((keys == last) & (ids <= self.ids[:, None]))
