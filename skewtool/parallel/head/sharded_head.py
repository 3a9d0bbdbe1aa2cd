"""`ShardedHead`: what both LM heads share: bias, squashing, and a weight that may be an embedding's."""

from typing import Any, Generic, TypeVar

from torch import nn

from skewtool.errors import MapError
from skewtool.parallel.embedding import HiddenParallelEmbedding, VocabShardedEmbedding
from skewtool.parallel.groups import Group
from skewtool.parallel.head.squashing import Squashing
from skewtool.parallel.sharded_table import ShardedTable
from skewtool.sharding import ShardMap

__all__ = ["ShardedHead"]

Embedding = TypeVar("Embedding", VocabShardedEmbedding, HiddenParallelEmbedding)


class ShardedHead(ShardedTable, Generic[Embedding]):
    """An LM head with a weight of its own, or tied to an embedding of the same map.

    A tied head has no weight among its parameters and nothing in its state_dict, so that moving, copying, loading or
    `to_empty` cannot part the two; gradients of lookups and head add up in the embedding's one parameter.
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        shard_map: ShardMap | None,
        group: Group,
        tied_to: Embedding | None,
        squashing: Squashing,
    ) -> None:
        if tied_to is not None:
            shard_map = tied_to.shard_map if shard_map is None else shard_map
            if shard_map != tied_to.shard_map:
                raise MapError(f"a tied head needs the map of its embedding, {tied_to.shard_map}; got {shard_map}")
        super().__init__(num_embeddings, embedding_dim, shard_map, group)
        self.squashing = squashing
        self._tied_to: tuple[Embedding | None] = (
            tied_to,
        )  # in a tuple, lest it become a submodule and its weight a second entry of state_dict

    def __getattr__(self, name: str) -> Any:
        # `head.weight` of a tied head is the embedding's, whichever parameter that has by now.
        if name == "weight" and self.tied_to is not None:
            return self.tied_to.weight
        return super().__getattr__(name)

    @property
    def tied_to(self) -> Embedding | None:
        return self._tied_to[0]
