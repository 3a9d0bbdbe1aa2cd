"""`shard_weight` and `unshard_weight`: between a whole table [V, ...], in id order, and the local tables of shards."""

from collections.abc import Sequence

import torch
from torch import Tensor

from skewtool.errors import MapError
from skewtool.parallel.collectives import all_gather
from skewtool.parallel.groups import Group
from skewtool.parallel.home_rows import check_one_shard_per_rank
from skewtool.parallel.weights.local_table import RowKind, as_bytes, check_rows, check_shards, held_ids
from skewtool.sharding import ShardMap

__all__ = ["shard_weight", "unshard_weight"]


@torch.no_grad()
def shard_weight(table: Tensor, shard_map: ShardMap, rank: int) -> Tensor:
    """The local table of a shard, [S, ...], from a whole table [V, ...] of any trailing shape and dtype, on its device.

    Copies are filled, empty slots are zero. For rows of home slots alone (an untied head, its bias) hand in
    ``shard_map.without_copies()``. Unsharded equivalent: ``table``, of which this is
    ``table[shard_map.token_at[rank]]`` (empty slots left out). No collectives, not differentiable. Errors: MapError
    unless the table has vocab_size rows and rank is a shard.
    """
    if not table.ndim or table.size(0) != shard_map.vocab_size:
        raise MapError(
            f"a table of shape {list(table.shape)} does not fit the map: its first dimension must be "
            f"{shard_map.vocab_size}, the vocabulary with its padding ids"
        )
    ids = held_ids(shard_map, rank, table.device)
    full = ids >= 0
    weight = RowKind.of(table).zeros(len(ids), table.device)
    weight[full] = table[ids[full]]
    return weight


@torch.no_grad()
def unshard_weight(weight: Tensor | Sequence[Tensor], shard_map: ShardMap, group: Group = None) -> Tensor:
    """The whole table [V, ...] in id order, from local tables [S, ...], or [R, ...] of home slots, of any dtype.

    `weight`: the local tables of all shards, by rank (offline, without a process group); or this rank's, and then all
    ranks of `group` must call it, and all get the table. Homes alone count, copies are not looked at. Takes the memory
    of two tables. Collectives: one all_gather of home rows; none offline. Not differentiable.

    Unsharded equivalent: ``table``; ``unshard_weight([shard_weight(table, m, p) for p in range(P)], m)`` is its bits.
    Errors: MapError where map, group and local tables do not fit each other.
    """
    if not isinstance(weight, Tensor):
        check_shards(weight, shard_map)
        return _in_id_order(weight, shard_map)
    check_one_shard_per_rank(shard_map, group)
    check_rows(weight, shard_map)
    homes = all_gather(as_bytes(weight[: shard_map.home_slots]), group, "rows")
    return _in_id_order(RowKind.of(weight).from_bytes(homes), shard_map)


def _in_id_order(shards: Tensor | Sequence[Tensor], shard_map: ShardMap) -> Tensor:
    table = RowKind.of(shards[0]).empty(shard_map.vocab_size, shards[0].device)
    for rank in range(shard_map.num_shards):
        ids = held_ids(shard_map, rank, table.device)[: shard_map.home_slots]
        table[ids[ids >= 0]] = shards[rank][: shard_map.home_slots][ids >= 0]
    return table
