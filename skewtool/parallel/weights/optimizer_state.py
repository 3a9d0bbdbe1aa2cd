"""`reshard_state`: what an optimizer keeps for a table (moments, masters, counters), from one map to another."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any, overload

import torch.distributed as dist
from torch import Tensor

from skewtool.errors import MapError
from skewtool.parallel.groups import Group, rank_of, size_of
from skewtool.parallel.weights.resharding import check_ranks_for_maps, reshard
from skewtool.sharding import ShardMap

__all__ = ["reshard_state"]

State = Mapping[str, Any]
Outline = list[tuple[str, bool, Any]]


@overload
def reshard_state(
    state: State | None, old_map: ShardMap, new_map: ShardMap, group: Group = None
) -> dict[str, Any] | None: ...


@overload
def reshard_state(
    state: Sequence[State], old_map: ShardMap, new_map: ShardMap, group: Group = None
) -> list[dict[str, Any]]: ...


def reshard_state(
    state: State | Sequence[State] | None, old_map: ShardMap, new_map: ShardMap, group: Group = None
) -> dict[str, Any] | list[dict[str, Any]] | None:
    """The state of a table's optimizer under another map, as ``optimizer.state[weight]``: name -> tensor or plain value.

    Tensors whose first dimension is the slots, or the home slots, of the old map are rows and go with them, as `reshard`
    moves a table; all else (step counters) is passed along. Offline, a sequence of the states of all shards gives a list
    of those of all new ones. On ranks, this rank's state, or None from rank P on; None comes back from rank P' on.

    Ranks without an old shard get names and passed values (tensors on the CPU) from rank 0: outlines of the states, a few
    hundred bytes, are gathered as pickled objects among these ranks, and compared. Collectives: one all_gather_object,
    then those of `reshard` for each row tensor. Unsharded equivalent: the same state, its rows in id order.

    Errors, on every rank alike: MapError where names or row tensors differ between ranks, and those of `reshard`.
    """
    if state is not None and not isinstance(state, Mapping):
        return _offline(state, old_map, new_map)
    check_ranks_for_maps(old_map, new_map, group)
    outlines = _gathered(None if state is None else _outline(state, old_map), group)
    outline = _common(outlines[: old_map.num_shards], old_map)
    held = state or {}
    result = {}
    for name, is_row, value in outline:
        if is_row:
            result[name] = reshard(held.get(name), old_map, new_map, group)
        else:
            result[name] = held.get(name, value)
    return result if rank_of(group) < new_map.num_shards else None


def _outline(state: State, old_map: ShardMap) -> Outline:
    """(name, whether it is rows, else the value) of all that is in a state."""
    sizes = (old_map.num_slots, old_map.home_slots)
    outline: Outline = []
    for name, value in state.items():
        if isinstance(value, Tensor) and value.ndim and value.size(0) in sizes:
            outline.append((name, True, None))
        else:
            outline.append((name, False, value.cpu() if isinstance(value, Tensor) else value))
    return outline


def _gathered(outline: Outline | None, group: Group) -> list[Outline | None]:
    """The outlines of all ranks: the one place where objects travel, because only states know their names."""
    if size_of(group) == 1:
        return [outline]
    outlines: list[Outline | None] = [None] * size_of(group)
    dist.all_gather_object(outlines, outline, group=group)
    return outlines


def _common(outlines: Sequence[Outline | None], old_map: ShardMap) -> Outline:
    """The outline of rank 0. Errors: MapError unless all shards have one, with the same names and rows."""
    for rank, outline in enumerate(outlines):
        if outline is None:
            raise MapError(f"rank {rank} has shard {rank} of {old_map.num_shards} of the old map, but gives no state")
    first, *_ = complete = [outline for outline in outlines if outline is not None]
    for rank, outline in enumerate(complete):
        if [each[:2] for each in outline] != [each[:2] for each in first]:
            names, others = (", ".join(name + " (rows)" * is_row for name, is_row, _ in each) for each in (outline, first))
            raise MapError(f"the state of rank {rank} is {names}, that of rank 0 {others}; all must be of one optimizer")
    return first


def _offline(states: Sequence[State], old_map: ShardMap, new_map: ShardMap) -> list[dict[str, Any]]:
    if len(states) != old_map.num_shards:
        raise MapError(f"the old map has {old_map.num_shards} shards, got {len(states)} states; give one each, by rank")
    result: list[dict[str, Any]] = [{} for _ in range(new_map.num_shards)]
    for name, is_row, _ in _common([_outline(state, old_map) for state in states], old_map):
        rows = reshard([state[name] for state in states], old_map, new_map) if is_row else None
        for rank, each in enumerate(result):
            each[name] = deepcopy(states[0][name]) if rows is None else rows[rank]
    return result
