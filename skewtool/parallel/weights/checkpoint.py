"""Tables in `torch.distributed.checkpoint`: saved in id order, as one plain tensor, without copies.

    state = {"embedding": to_checkpoint(embedding.weight, shard_map, group)}
    dcp.save(state, checkpoint_id=path)

    state = {"embedding": to_checkpoint(embedding.weight, new_map, group)}    # any map, any number of ranks
    dcp.load(state, checkpoint_id=path)
    embedding.weight.data = from_checkpoint(state["embedding"], new_map, group)

What is saved knows nothing of maps: without skewtool it loads into a tensor [V, ...], or into any DTensor of that shape.
Rows of an optimizer's state are tables too: ``{name: to_checkpoint(rows, shard_map, group), ...}``.
"""

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor

from skewtool.errors import MapError
from skewtool.parallel.groups import Group, rank_of, size_of
from skewtool.parallel.home_rows import check_one_shard_per_rank
from skewtool.parallel.weights.local_table import RowKind
from skewtool.parallel.weights.resharding import reshard
from skewtool.parallel.weights.whole_table import shard_weight, unshard_weight
from skewtool.sharding import ShardMap

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

__all__ = ["from_checkpoint", "to_checkpoint"]


@torch.no_grad()
def to_checkpoint(weight: Tensor, shard_map: ShardMap, group: Group = None) -> "DTensor | Tensor":
    """This rank's local table [S, ...], or [R, ...] of home slots -> the table [V, ...] in id order, as a DTensor.

    Its placement is ``Shard(0)`` over the group, ceil(V / P) rows a rank, the last ranks fewer or none. It holds a copy of
    the rows, of the same dtype and device. A single rank without a process group gets a plain tensor. Collectives: those of
    `reshard`. Unsharded equivalent: ``table``. Errors: MapError as `reshard`, and unless each rank has a shard.
    """
    check_one_shard_per_rank(shard_map, group)
    if not dist.is_initialized():
        return unshard_weight([weight], shard_map)
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor, Shard

    contiguous = ShardMap.contiguous(shard_map.vocab_size, shard_map.num_shards)
    rows = reshard(weight, shard_map, contiguous, group)
    assert rows is not None  # each rank has a shard
    rows = rows[: contiguous.home_rows[rank_of(group)]]
    shape = torch.Size((shard_map.vocab_size, *rows.shape[1:]))
    ranks = group or dist.group.WORLD
    assert ranks is not None  # a default group is initialised
    mesh = DeviceMesh.from_group(ranks, rows.device.type)
    return DTensor.from_local(rows, mesh, [Shard(0)], run_check=False, shape=shape, stride=_stride(shape))


@torch.no_grad()
def from_checkpoint(table: "DTensor | Tensor", shard_map: ShardMap, group: Group = None) -> Tensor:
    """What `to_checkpoint` gave, its rows loaded -> this rank's local table [S, ...], copies filled, empty slots zero.

    A plain tensor [V, ...], the same on every rank, does as well. For home slots alone hand in
    ``shard_map.without_copies()``. Collectives: those of `reshard`, for a plain tensor none.
    Unsharded equivalent: ``table``. Errors: MapError unless the table has a row for each id, is sharded as `to_checkpoint`
    does, and each rank has a shard.
    """
    check_one_shard_per_rank(shard_map, group)
    from torch.distributed.tensor import DTensor, Shard

    if not isinstance(table, DTensor):
        return shard_weight(table, shard_map, rank_of(group))
    if table.size(0) != shard_map.vocab_size:
        raise MapError(f"the checkpoint's table has {table.size(0)} rows, the map {shard_map.vocab_size} ids")
    if table.placements != (Shard(0),) or table.device_mesh.size() != size_of(group):
        raise MapError(
            f"the checkpoint's table must be Shard(0) over the {size_of(group)} ranks of the group, "
            f"got {table.placements} over {table.device_mesh.size()}"
        )
    contiguous = ShardMap.contiguous(shard_map.vocab_size, shard_map.num_shards)
    held = table.to_local()
    rows = RowKind.of(held).zeros(contiguous.num_slots, held.device)
    rows[: len(held)] = held
    weight = reshard(rows, contiguous, shard_map, group)
    assert weight is not None
    return weight


def _stride(shape: torch.Size) -> tuple[int, ...]:
    return tuple(shape[place + 1 :].numel() for place in range(len(shape)))
