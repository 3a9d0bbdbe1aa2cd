"""`synchronize_copies`: the gradients of all slots of an id become their sum.

Each slot's gradient holds the lookups that slot served. An optimizer must see the sum, and must see the same bits in
every slot, because then copies stay equal to their homes under any optimizer. Ids with a slot on every shard are summed
by one all_reduce; for all others the gradients of copies go to the home, and the sum comes back.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from skewtool.errors import MapError
from skewtool.parallel.collectives import all_reduce
from skewtool.parallel.groups import Group, rank_of
from skewtool.parallel.home_rows import check_one_shard_per_rank
from skewtool.parallel.routing.exchange import Counts, exchange
from skewtool.sharding import ShardMap

__all__ = ["synchronize_copies"]


@dataclass(frozen=True, eq=False)
class _Copies:
    """The slots of one shard whose ids have several.

    everywhere   int64 [E]   of the ids on every shard, by id
    copies       int64 [c]   copies of other ids, by the shard of their home, then id
    homes        int64 [h]   homes of other ids with copies, by id
    place        int64 [g]   for each gradient that comes for these, by the shard of the copy, then id: its home's place in
                             `homes`
    matrix       gradients that each shard sends to each
    """

    everywhere: Tensor
    copies: Tensor
    homes: Tensor
    place: Tensor
    matrix: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=16)
def _copies_of(shard_map: ShardMap, rank: int, device: torch.device) -> _Copies:
    num_shards, home_slots, vocab_size = shard_map.num_shards, shard_map.home_slots, shard_map.vocab_size
    number = torch.tensor(shard_map.num_copies)
    on_every_shard, some = number == num_shards - 1, (number > 0) & (number < num_shards - 1)
    home_shard = torch.tensor(shard_map.shard_of, dtype=torch.int64)
    held = torch.tensor(shard_map.token_at, dtype=torch.int64)
    slot_of = torch.full((vocab_size,), -1)
    slot_of[held[rank][held[rank] >= 0]] = (held[rank] >= 0).nonzero().squeeze(1)

    copy_ids = held[:, home_slots:]
    holder = torch.arange(num_shards)[:, None].expand_as(copy_ids)
    exchanged = (copy_ids >= 0) & some[copy_ids.clamp(min=0)]
    ids, holder = copy_ids[exchanged], holder[exchanged]
    order = (holder * vocab_size + ids).argsort()  # by the shard of the copy, then id
    ids, holder = ids[order], holder[order]
    target = home_shard[ids]
    matrix = torch.bincount(holder * num_shards + target, minlength=num_shards**2).view(num_shards, num_shards)

    sent = ids[holder == rank][target[holder == rank].argsort(stable=True)]
    owned = (some & (home_shard == rank)).nonzero().squeeze(1)
    return _Copies(
        everywhere=slot_of[on_every_shard].to(device),
        copies=slot_of[sent].to(device),
        homes=slot_of[owned].to(device),
        place=torch.searchsorted(owned, ids[target == rank]).to(device),
        matrix=tuple(tuple(row) for row in matrix.tolist()),
    )


@torch.no_grad()
def synchronize_copies(gradient: Tensor, shard_map: ShardMap, group: Group = None) -> Tensor:
    """gradient [S, ...], one row per slot: all slots of an id get the sum of their gradients, in place; returns it.

    Sums are taken once, in float32 for 16-bit gradients and in a fixed order (the home, then copies by ascending shard;
    ids on every shard in the order of the backend), rounded once, and the same bits are written to every slot. Rows of
    ids without copies, and empty slots, are left alone. A rank whose gradient is None hands in zeros.

    Call it once per optimizer step: after the last backward (with accumulation, the last micro-step's) and after any sum
    over data-parallel ranks, before norms, clipping and the step. A second call would add the sums up again.

    Collectives: none under a map without copies; else one all_reduce of E rows, in at least float32, where E ids are on
    every shard, and two all_to_all where other ids have copies, in the gradient's dtype: for each rank the rows of
    `skewtool.skew.copy_gradients.exchanged_rows`.

    Unsharded equivalent: ``table.grad``, rows ``shard_map.token_at[rank]`` of it. Errors: MapError where the map has not
    one shard per rank, or the gradient not one row per slot.
    """
    check_one_shard_per_rank(shard_map, group)
    if not gradient.ndim or gradient.size(0) != shard_map.num_slots:
        raise MapError(
            f"a gradient of shape {list(gradient.shape)} does not fit the map: one row is needed for each of its "
            f"{shard_map.num_slots} slots"
        )
    if not shard_map.has_copies:
        return gradient
    copies = _copies_of(shard_map, rank_of(group), gradient.device)
    wide = torch.promote_types(gradient.dtype, torch.float32)
    if len(copies.everywhere):
        sums = all_reduce(gradient[copies.everywhere].to(wide), group, "gradients").to(gradient.dtype)
        gradient[copies.everywhere] = sums
        del sums  # before the next takes as much
    if any(map(any, copies.matrix)):
        counts = Counts(copies.matrix, group)
        sums = _sums_at_homes(gradient, copies, counts, wide)
        gradient[copies.homes] = sums
        gradient[copies.copies] = exchange(sums[copies.place], counts.reversed, "gradients")
    return gradient


def _sums_at_homes(gradient: Tensor, copies: _Copies, counts: Counts, wide: torch.dtype) -> Tensor:
    arrived = exchange(gradient[copies.copies], counts, "gradients")
    total = gradient[copies.homes].to(wide)
    for place, rows in zip(*(torch.split(each, counts.received) for each in (copies.place, arrived)), strict=True):
        if len(place):  # an id has at most one copy on a shard, so no place occurs twice and the order is fixed
            total.index_add_(0, place, rows.to(wide))
    return total.to(gradient.dtype)
