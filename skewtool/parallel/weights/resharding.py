"""`reshard`: a table, or rows of an optimizer's state, from one map to another, and from P shards to P'."""

from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor

from skewtool.errors import MapError
from skewtool.parallel.groups import Group, device_of, rank_of, size_of
from skewtool.parallel.routing.exchange import Counts, exchange
from skewtool.parallel.weights.agreement import agreed_row_kind
from skewtool.parallel.weights.local_table import as_bytes, check_shards
from skewtool.parallel.weights.row_moves import check_same_ids, moves_between, moves_of_rank
from skewtool.sharding import ShardMap

__all__ = ["check_ranks_for_maps", "reshard"]


@overload
def reshard(weight: Tensor | None, old_map: ShardMap, new_map: ShardMap, group: Group = None) -> Tensor | None: ...


@overload
def reshard(weight: Sequence[Tensor], old_map: ShardMap, new_map: ShardMap, group: Group = None) -> list[Tensor]: ...


@torch.no_grad()
def reshard(
    weight: Tensor | Sequence[Tensor] | None, old_map: ShardMap, new_map: ShardMap, group: Group = None
) -> Tensor | list[Tensor] | None:
    """The local tables of a table under another map: [S', ...] for [S, ...], any trailing shape and dtype, bit for bit.

    `weight`: the local tables of all P shards, by rank (offline), which gives those of all P' new ones; or this rank's.
    On ranks, the group has at least max(P, P') of them, rank r has shard r of either map, those from P on hand in None
    and those from P' on get None. Rows [R, ...] of home slots alone do as well, since homes alone count. The result has
    all slots of the new map, copies filled and empty slots zero; for home slots alone hand in
    ``new_map.without_copies()``.

    Collectives, on every rank of the group: one all_gather of shapes, one all_to_all of rows; each row travels once for
    each new slot, unless its home is on that rank. Memory beside both tables: the rows sent and those received. Not
    differentiable.

    Unsharded equivalent: ``table``; per rank ``shard_weight(unshard_weight(weight, old_map), new_map, rank)``.
    Errors, on every rank alike: MapError where maps, group and local tables do not fit each other.
    """
    if weight is not None and not isinstance(weight, Tensor):
        return _offline(weight, old_map, new_map)
    check_same_ids(old_map, new_map)
    check_ranks_for_maps(old_map, new_map, group)
    kind = agreed_row_kind(weight, old_map, new_map, group)
    device = device_of(group) if weight is None else weight.device
    weight = kind.empty(0, device) if weight is None else weight
    moves = moves_of_rank(old_map, new_map, rank_of(group), size_of(group))
    counts = Counts(moves.matrix, group)
    arrived = exchange(as_bytes(weight[moves.sent.to(device)]), counts)
    if rank_of(group) >= new_map.num_shards:
        return None
    result = kind.zeros(new_map.num_slots, device)
    result[moves.kept_to.to(device)] = weight[moves.kept_from.to(device)]
    result[moves.arrived.to(device)] = kind.from_bytes(arrived)
    return result


def check_ranks_for_maps(old_map: ShardMap, new_map: ShardMap, group: Group) -> None:
    """Errors: MapError unless the group has a rank for each shard of both maps."""
    needed = max(old_map.num_shards, new_map.num_shards)
    if size_of(group) < needed:
        raise MapError(
            f"resharding {old_map.num_shards} shards to {new_map.num_shards} takes a group of {needed} ranks, this one has "
            f"{size_of(group)}; or give the local tables of all shards as a sequence"
        )


def _offline(shards: Sequence[Tensor], old_map: ShardMap, new_map: ShardMap) -> list[Tensor]:
    kind = check_shards(shards, old_map)
    moves = moves_between(old_map, new_map)
    device = shards[0].device
    result = [kind.zeros(new_map.num_slots, device) for _ in range(new_map.num_shards)]
    pairs, counts = torch.unique(moves.source * new_map.num_shards + moves.target, return_counts=True)
    slots = (torch.split(each.to(device), counts.tolist()) for each in (moves.old_slot, moves.new_slot))
    for each, old_slot, new_slot in zip(pairs.tolist(), *slots, strict=True):
        source, target = divmod(each, new_map.num_shards)
        result[target][new_slot] = shards[source][old_slot]
    return result
