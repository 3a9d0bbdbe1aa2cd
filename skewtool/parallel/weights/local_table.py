"""Local tables: the rows of one shard, [S, ...] by slot, or [R, ...] where only home slots have one.

Rows have any trailing shape and any dtype, here called their *kind*. They travel as bytes, because backends do not know
every dtype (gloo: no int16, no float8), and nothing is computed with them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from skewtool.errors import MapError
from skewtool.sharding import ShardMap

__all__ = ["RowKind", "as_bytes", "check_rows", "check_shards", "held_ids"]


@dataclass(frozen=True)
class RowKind:
    """What the rows of a table are: their trailing shape and dtype."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, table: Tensor) -> "RowKind":
        return cls(tuple(table.shape[1:]), table.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of one row."""
        return self.dtype.itemsize * torch.Size(self.shape).numel()

    def empty(self, rows: int, device: torch.device) -> Tensor:
        """[rows, *shape], not filled."""
        return torch.empty(rows, *self.shape, dtype=self.dtype, device=device)

    def zeros(self, rows: int, device: torch.device) -> Tensor:
        """[rows, *shape] of zeros."""
        return torch.zeros(rows, *self.shape, dtype=self.dtype, device=device)

    def from_bytes(self, rows: Tensor) -> Tensor:
        """uint8 [..., nbytes], as of `as_bytes` -> [..., *shape]."""
        shape = (*rows.shape[:-1], *self.shape)
        return rows.view(self.dtype).reshape(shape) if self.nbytes else rows.new_empty(shape, dtype=self.dtype)

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


def as_bytes(rows: Tensor) -> Tensor:
    """rows [n, ...] -> uint8 [n, bytes of a row]."""
    flat = rows.flatten(1) if rows.ndim > 1 else rows[:, None]
    return flat.contiguous().view(torch.uint8)


def held_ids(shard_map: ShardMap, rank: int, device: torch.device | None = None) -> Tensor:
    """The id in each slot of a shard, -1 where empty: int64 [S]. Errors: MapError for a rank that is no shard."""
    if not 0 <= rank < shard_map.num_shards:
        raise MapError(f"rank must be 0 to {shard_map.num_shards - 1}, a shard of the map, got {rank}")
    return torch.tensor(shard_map.token_at[rank], dtype=torch.int64, device=device)


def check_rows(table: Tensor, shard_map: ShardMap) -> None:
    """Errors: MapError unless a local table has a row for each slot, or for each home slot."""
    rows = table.size(0) if table.ndim else 0
    if rows not in (shard_map.num_slots, shard_map.home_slots):
        raise MapError(
            f"a local table of shape {list(table.shape)} does not fit the map: the first dimension must be "
            f"{shard_map.num_slots}, its slots, or {shard_map.home_slots}, its home slots"
        )


def check_shards(shards: Sequence[Tensor], shard_map: ShardMap) -> RowKind:
    """The kind of rows of all local tables, by shard. Errors: MapError unless there is one for each shard, of one kind."""
    if len(shards) != shard_map.num_shards:
        raise MapError(f"the map has {shard_map.num_shards} shards, got {len(shards)} local tables; give one each, by rank")
    for shard in shards:
        check_rows(shard, shard_map)
    kinds = [RowKind.of(shard) for shard in shards]
    for rank, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise MapError(f"shard {rank} has rows of {kind}, shard 0 of {kinds[0]}; all shards must be parts of one table")
    return kinds[0]
