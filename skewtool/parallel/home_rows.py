"""`HomeRows`: what the home slots of this rank's shard hold, as tensors. The columns of its part of the logits.

Column c of local logits [..., R] belongs to home slot c: to id ids[c], or to none. Only ids below real_vocab are classes;
padding ids have a row in the table and a column in the logits, but no probability, and empty slots have neither.
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from skewtool.errors import MapError
from skewtool.parallel.groups import Group, rank_of, size_of
from skewtool.sharding import ShardMap

__all__ = ["HomeRows", "check_one_shard_per_rank", "home_rows_of"]


@dataclass(frozen=True, eq=False)
class HomeRows:
    """The home slots of one shard.

    ids         int64 [R]   the id in each, -1 where empty
    is_class    bool [R]    whether it is a class: not empty, no padding id
    no_class    int64 [..]  the columns that are none
    column_of   int64 [V]   the column of each id, -1 where its home is on another shard
    """

    ids: Tensor
    is_class: Tensor
    no_class: Tensor
    column_of: Tensor


def check_one_shard_per_rank(shard_map: ShardMap, group: Group) -> None:
    """Errors: MapError unless the map has one shard per rank of the group."""
    if shard_map.num_shards != size_of(group):
        raise MapError(
            f"the map has {shard_map.num_shards} shards, but the group {size_of(group)} ranks; there must be one each"
        )


def home_rows_of(shard_map: ShardMap, group: Group, device: torch.device) -> HomeRows:
    """The home rows of this rank. Errors: MapError where the map has not one shard per rank of the group."""
    check_one_shard_per_rank(shard_map, group)
    return _home_rows(shard_map, rank_of(group), device)


@lru_cache(maxsize=16)
def _home_rows(shard_map: ShardMap, rank: int, device: torch.device) -> HomeRows:
    ids = torch.tensor(shard_map.token_at[rank, : shard_map.home_slots], dtype=torch.int64)
    is_class = (ids >= 0) & (ids < shard_map.real_vocab)
    column_of = torch.full((shard_map.vocab_size,), -1)
    column_of[ids[ids >= 0]] = (ids >= 0).nonzero().squeeze(1)
    no_class = (~is_class).nonzero().squeeze(1)
    return HomeRows(ids.to(device), is_class.to(device), no_class.to(device), column_of.to(device))
