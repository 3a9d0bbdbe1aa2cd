"""Initial values by global id: `initialize_rows`, `initialize_columns` and the function both are made of.

Entry (id, column) of the table is a normal number that depends on the seed, the id and the column alone. So neither the
map, nor the number of shards, nor the layout, nor the amount of padding changes the model, and copies equal their homes.
"""

import torch
from torch import Tensor

from skewtool.errors import MapError, SkewtoolError
from skewtool.parallel.counter_hash import GOLDEN, as_int64, mix64, uniform_open
from skewtool.parallel.weights.local_table import check_rows, held_ids
from skewtool.sharding import ShardMap

__all__ = ["initial_rows", "initialize_columns", "initialize_rows"]

_ELEMENTS_AT_ONCE = 2**19
"""Temporaries take about 40 bytes for each."""


def initial_rows(ids: Tensor, start: int, stop: int, *, seed: int, std: float = 0.02) -> Tensor:
    """Columns [start, stop) of the initial rows of ids int64 [n]: float64 [n, stop - start], normal, mean 0.

    The inverse of the normal distribution function at a uniform number in (0, 1), which is output `column + 1` of a
    SplitMix64 stream of the row's own, hashed from seed and id. Seeds are taken modulo 2^64. Equal on all machines up to
    the last bits of that inverse. No collectives.
    """
    stream = mix64(mix64(torch.tensor([as_int64(seed + GOLDEN)], device=ids.device)) + (ids.long() + 1) * GOLDEN)
    columns = torch.arange(start + 1, stop + 1, device=ids.device)
    normal: Tensor = torch.special.ndtri(uniform_open(mix64(stream[:, None] + columns * GOLDEN)))
    return normal.mul_(std)


def initialize_rows(weight: Tensor, shard_map: ShardMap, rank: int, *, seed: int, std: float = 0.02) -> Tensor:
    """Fills the local table of a shard, [S, H] or [R, H] of home slots alone, in place, and returns it.

    Padding ids get rows by the same rule as others; empty slots are zero. Values are computed in float64 and rounded to
    the weight's dtype. On the meta device nothing happens. No collectives.

    Unsharded equivalent: ``table.copy_(initial_rows(torch.arange(V), 0, H, seed=seed, std=std))``.
    Errors: MapError where the weight does not fit the map; SkewtoolError for a negative std.
    """
    check_rows(weight, shard_map)
    return _fill(weight, held_ids(shard_map, rank, weight.device)[: weight.size(0)], 0, seed, std)


def initialize_columns(weight: Tensor, start: int, *, seed: int, std: float = 0.02) -> Tensor:
    """Fills a hidden shard in place and returns it: weight [V, H / P] with rows in id order, columns from `start` of H.

    Otherwise as `initialize_rows`; takes no map, since all shards hold all ids.
    Unsharded equivalent: columns ``[:, start : start + weight.size(1)]`` of the same table.
    """
    return _fill(weight, torch.arange(len(weight), device=weight.device), start, seed, std)


@torch.no_grad()
def _fill(weight: Tensor, ids: Tensor, start: int, seed: int, std: float) -> Tensor:
    if weight.ndim != 2:
        raise MapError(f"initial values are for tables [rows, columns], got shape {list(weight.shape)}")
    if not std >= 0:
        raise SkewtoolError(f"std must be at least 0, got {std}")
    if weight.is_meta:
        return weight
    stop = start + weight.size(1)
    rows_at_once = max(1, _ELEMENTS_AT_ONCE // max(1, weight.size(1)))
    for part, part_ids in zip(torch.split(weight, rows_at_once), torch.split(ids, rows_at_once), strict=True):
        values = initial_rows(part_ids, start, stop, seed=seed, std=std)
        part.copy_(values.masked_fill_(part_ids[:, None] < 0, 0))
    return weight
