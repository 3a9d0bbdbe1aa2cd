"""`ShardedTable`: what embeddings and LM heads share: a table of which each rank has a part, by one map."""

from skewtool.errors import MapError
from skewtool.parallel.groups import Group, size_of
from skewtool.parallel.home_rows import check_one_shard_per_rank
from skewtool.parallel.sharded_module import ShardedModule
from skewtool.parallel.weights import check_same_map
from skewtool.sharding import ShardMap

__all__ = ["ShardedTable"]


class ShardedTable(ShardedModule):
    """A table [num_embeddings, embedding_dim] of which each rank of `group` holds a part, by `shard_map` (contiguous by
    default). Construction compares the map over all ranks (one all_gather of 32 bytes).

    Errors, on every rank alike: MapError when the map is for another number of ids or ranks, or differs between ranks.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, shard_map: ShardMap | None = None, group: Group = None
    ) -> None:
        super().__init__(group)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.shard_map = ShardMap.contiguous(num_embeddings, size_of(group)) if shard_map is None else shard_map
        if self.shard_map.vocab_size != num_embeddings:
            raise MapError(f"the map has {self.shard_map.vocab_size} ids, but num_embeddings is {num_embeddings}")
        check_one_shard_per_rank(self.shard_map, group)
        check_same_map(self.shard_map, group)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, {self.shard_map}"
