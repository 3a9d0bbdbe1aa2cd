"""What all ranks of a group hand in, compared before anything is sent, so that errors are raised on every rank alike.

Collectives do not check shapes and dtypes: a rank that raised alone would leave the others waiting, and one that went on
would read garbage.
"""

import torch
from torch import Tensor

from skewtool.errors import MapError
from skewtool.parallel.collectives import all_gather
from skewtool.parallel.groups import Group, device_of
from skewtool.parallel.weights.local_table import RowKind
from skewtool.sharding import ShardMap

__all__ = ["agreed_row_kind"]

_DTYPES = sorted({each for each in vars(torch).values() if isinstance(each, torch.dtype)}, key=str)

_MOST_DIMENSIONS = 8


def _header(table: Tensor | None, old_map: ShardMap, new_map: ShardMap) -> list[int]:
    """Two fingerprints, rows, dtype, number of dimensions and trailing dimensions; rows -1 where there is no table."""
    fingerprints = [int(each.fingerprint[:12], 16) for each in (old_map, new_map)]
    if table is None:
        return [*fingerprints, -1, 0, 0] + [0] * _MOST_DIMENSIONS
    sizes = ([*table.shape, *[0] * (_MOST_DIMENSIONS + 1)])[: _MOST_DIMENSIONS + 1]
    return [*fingerprints, sizes[0], _DTYPES.index(table.dtype), table.ndim, *sizes[1:]]


def agreed_row_kind(table: Tensor | None, old_map: ShardMap, new_map: ShardMap, group: Group) -> RowKind:
    """The kind of rows of the table that ranks of `old_map` hold, also on ranks that hold none of it.

    One all_gather of 13 integers. Errors, on every rank alike: MapError unless all ranks have the same two maps, ranks
    with a shard of the old one hand in its slots or its home slots, all of one kind, and the other ranks None.
    """
    mine = torch.tensor(_header(table, old_map, new_map), device=device_of(group))
    headers = all_gather(mine, group, "shapes").tolist()
    for rank, header in enumerate(headers):
        _check(rank, header, headers[0], old_map)
    _, _, _, dtype, dimensions, *sizes = headers[0]
    return RowKind(tuple(sizes[: dimensions - 1]), _DTYPES[dtype])


def _check(rank: int, header: list[int], first: list[int], old_map: ShardMap) -> None:
    if header[:2] != first[:2]:
        maps, others = ([f"{each:012x}" for each in maps] for maps in (header[:2], first[:2]))
        raise MapError(
            f"rank {rank} moves rows from map {' to '.join(maps)}, rank 0 from {' to '.join(others)}; "
            "give all ranks the same two maps"
        )
    rows, dimensions = header[2], header[4]
    if rank >= old_map.num_shards and rows >= 0:
        raise MapError(f"rank {rank} has no shard of the old map, which has {old_map.num_shards}; give None there")
    if rank >= old_map.num_shards:
        return
    allowed = (old_map.num_slots, old_map.home_slots)
    if rows not in allowed or not 1 <= dimensions <= _MOST_DIMENSIONS + 1:
        found = "None" if rows < 0 else f"{rows} rows in {dimensions} dimensions"
        raise MapError(
            f"rank {rank} must give its local table under the old map, {allowed[0]} rows, or {allowed[1]} of home slots, "
            f"in 1 to {_MOST_DIMENSIONS + 1} dimensions; got {found}"
        )
    if header[3:] != first[3:]:
        raise MapError(f"rank {rank} has rows of {_kind(header)}, rank 0 of {_kind(first)}; all must be parts of one table")


def _kind(header: list[int]) -> RowKind:
    return RowKind(tuple(header[5 : 4 + header[4]]), _DTYPES[header[3]])
