"""`RowMoves`: which rows go from which slot to which, from one map to another.

The new slot of an id gets its row from the old home, the only slot that counts. Rows whose old home and new slot are on
the same rank stay there; all others are sent once for each new slot.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from skewtool.errors import MapError
from skewtool.sharding import ShardMap

__all__ = ["MovesOfRank", "RowMoves", "check_same_ids", "moves_between", "moves_of_rank"]


@dataclass(frozen=True, eq=False)
class RowMoves:
    """One entry per new slot that is not empty, ordered by source, then target, then new slot.

    source, target        int64 [n]   the old home's shard, and the new slot's
    old_slot, new_slot    int64 [n]   on these shards
    """

    source: Tensor
    target: Tensor
    old_slot: Tensor
    new_slot: Tensor


@dataclass(frozen=True, eq=False)
class MovesOfRank:
    """What one rank does.

    kept_from, kept_to   int64 [k]   old and new slots of its rows that stay
    sent                 int64 [s]   old slots of its rows for other ranks, by target
    arrived              int64 [a]   new slots that other ranks fill, by source
    matrix               rows that each rank sends to each, the same on all ranks
    """

    kept_from: Tensor
    kept_to: Tensor
    sent: Tensor
    arrived: Tensor
    matrix: tuple[tuple[int, ...], ...]


def check_same_ids(old_map: ShardMap, new_map: ShardMap) -> None:
    """Errors: MapError unless both maps place the same number of ids."""
    if old_map.vocab_size != new_map.vocab_size:
        raise MapError(
            f"the old map has {old_map.vocab_size} ids, the new one {new_map.vocab_size}; both must be maps of one table"
        )


def moves_between(old_map: ShardMap, new_map: ShardMap) -> RowMoves:
    """The moves of all rows. Errors: MapError unless the maps have as many ids."""
    check_same_ids(old_map, new_map)
    held = torch.tensor(new_map.token_at, dtype=torch.int64)
    target, new_slot = (held >= 0).nonzero(as_tuple=True)
    ids = held[target, new_slot]
    source = torch.tensor(old_map.shard_of, dtype=torch.int64)[ids]
    old_slot = torch.tensor(old_map.slot_of, dtype=torch.int64)[ids]
    order = source.argsort(stable=True)
    return RowMoves(source[order], target[order], old_slot[order], new_slot[order])


@lru_cache(maxsize=4)
def moves_of_rank(old_map: ShardMap, new_map: ShardMap, rank: int, num_ranks: int) -> MovesOfRank:
    """The moves of one rank of a group, which has ranks for all shards of both maps. Kept for the next table."""
    moves = moves_between(old_map, new_map)
    leaves, comes = moves.source == rank, moves.target == rank
    pairs = (moves.source * num_ranks + moves.target)[moves.source != moves.target]
    matrix = torch.bincount(pairs, minlength=num_ranks**2).view(num_ranks, num_ranks)
    return MovesOfRank(
        kept_from=moves.old_slot[leaves & comes],
        kept_to=moves.new_slot[leaves & comes],
        sent=moves.old_slot[leaves & ~comes],
        arrived=moves.new_slot[comes & ~leaves],
        matrix=tuple(tuple(row) for row in matrix.tolist()),
    )
