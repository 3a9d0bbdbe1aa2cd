"""`Classes`: the classes among the columns of this rank's logits, by ascending id.

Padding ids and empty slots are no classes. They are left out here, once, so that nothing behind can choose one whatever
its logit; and since ids ascend, the first of equal columns is the one with the lowest id.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from skewtool.errors import DecodingError
from skewtool.parallel.groups import Group
from skewtool.parallel.home_rows import HomeRows, home_rows_of
from skewtool.sharding import ShardMap

__all__ = ["Classes"]

_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True, eq=False)
class Classes:
    """The classes of one shard.

    ids       int64 [C], ascending; C may be 0, and differs from rank to rank
    columns   int64 [C], the column of each in local logits; None where they are the first C
    """

    ids: Tensor
    columns: Tensor | None

    @classmethod
    def of(cls, logits: Tensor, shard_map: ShardMap, group: Group) -> "Classes":
        """The classes of local logits [..., R], R = shard_map.home_slots.

        Errors: DecodingError for logits of another shape or dtype; MapError where the map has not one shard per rank.
        """
        if logits.dtype not in _DTYPES:
            raise DecodingError(f"logits must be float16, bfloat16, float32 or float64, got {logits.dtype}")
        if logits.dim() < 1 or logits.size(-1) != shard_map.home_slots:
            raise DecodingError(
                f"logits must have one column for each of the {shard_map.home_slots} home slots of a shard, "
                f"[..., {shard_map.home_slots}], got {list(logits.shape)}"
            )
        return _classes(home_rows_of(shard_map, group, logits.device))

    def blocks(self, logits: Tensor, most_elements: int) -> Iterator[tuple[slice, Tensor]]:
        """Local logits [..., R] as (which rows, [n, C]), some rows after others; without rows, one block of none.

        n is such that n R is at most `most_elements`, but at least 1: the same on every rank. Blocks are views where the
        columns allow.
        """
        rows = logits.detach().reshape(logits.shape[:-1].numel(), logits.size(-1))
        first = 0
        for block in torch.split(rows, max(1, most_elements // logits.size(-1))):
            yield slice(first, first + block.size(0)), self._of_rows(block)
            first += block.size(0)

    def _of_rows(self, rows: Tensor) -> Tensor:
        return rows[:, : self.ids.numel()] if self.columns is None else rows.index_select(1, self.columns)


@lru_cache(maxsize=16)
def _classes(home_rows: HomeRows) -> Classes:
    columns = home_rows.is_class.nonzero().squeeze(1)
    ids, by_id = home_rows.ids[columns].sort()
    columns = columns[by_id]
    are_first = torch.equal(columns, torch.arange(columns.numel(), device=columns.device))
    return Classes(ids, None if are_first else columns)
