"""`ShardedEmbedding`: what all embedding layouts share. One interface, so that a layout is a choice of class."""

from torch import Tensor, nn

from skewtool.errors import MapError, RouteError
from skewtool.parallel.groups import Group, size_of
from skewtool.parallel.home_rows import check_one_shard_per_rank
from skewtool.parallel.sharded_module import ShardedModule
from skewtool.parallel.weights import check_same_map
from skewtool.sharding import ShardMap

__all__ = ["ShardedEmbedding"]


class ShardedEmbedding(ShardedModule):
    """An embedding [num_embeddings, embedding_dim] of which each rank of `group` holds a part, by `shard_map`.

    `shard_map`: contiguous by default. `weight` is this rank's part; see the layout for its shape. Construction compares
    the map over all ranks (one all_gather of 32 bytes). Values are not set: call `reset_parameters` or `load_table`.

    Errors, on every rank alike: MapError when the map is for another number of ids or ranks, or differs between ranks.
    """

    weight: nn.Parameter

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

    def reset_parameters(self, seed: int, std: float = 0.02) -> None:
        """Normal values as a function of (seed, id, column) alone: the map and P never change the model. No collectives."""
        raise NotImplementedError

    def load_table(self, table: Tensor) -> None:
        """Takes this rank's part of a whole table [V, H]; empty slots become zero. No collectives."""
        raise NotImplementedError

    def gather_table(self) -> Tensor:
        """The whole table [V, H] on every rank, from homes: one all_gather."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, {self.shard_map}"

    def _refuse_bad_ids(self, flat: Tensor) -> None:
        """For ids that every rank has alike: all raise. Waits for the device."""
        bad = (flat < 0) | (flat >= self.shard_map.real_vocab)
        if bad.any():
            position = int(bad.long().argmax())
            raise RouteError(
                f"every rank has id {int(flat[position])} at position {position} (flattened); ids must be at least 0 and "
                f"below {self.shard_map.real_vocab}"
            )
