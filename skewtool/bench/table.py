"""The one table that all layouts of a bench hold: cheap to make, and different in every row and column.

A bench need not wait for normal numbers. Entry (id, column) is a hash of both in [-1, 1), the same in every layout.
"""

import torch
from torch import Tensor

from skewtool.sharding import ShardMap

__all__ = ["fill_columns", "fill_slots", "table_rows"]

_ROWS_AT_ONCE = 4096


def table_rows(ids: Tensor, columns: range) -> Tensor:
    """The columns of rows for ids int64 [n]: float32 [n, columns], multiples of 1/128, which bfloat16 holds exactly."""
    mixed = ids[:, None] * 40_503 + torch.arange(columns.start, columns.stop, device=ids.device) * 9_973
    return ((mixed ^ (mixed >> 7)) % 256 - 128).float() / 128


def fill_slots(weight: Tensor, shard_map: ShardMap, rank: int) -> None:
    """Fills the local table of a shard, [S, H] or [R, H], in place; empty slots become zero."""
    held = torch.tensor(shard_map.token_at[rank, : weight.size(0)], dtype=torch.int64, device=weight.device)
    _fill(weight, held, range(weight.size(1)))


def fill_columns(weight: Tensor, columns: range) -> None:
    """Fills a hidden shard [V, columns] in place."""
    _fill(weight, torch.arange(weight.size(0), device=weight.device), columns)


@torch.no_grad()
def _fill(weight: Tensor, ids: Tensor, columns: range) -> None:
    for rows, part in zip(torch.split(weight, _ROWS_AT_ONCE), torch.split(ids, _ROWS_AT_ONCE), strict=True):
        rows.copy_(torch.where((part >= 0)[:, None], table_rows(part, columns), 0))
