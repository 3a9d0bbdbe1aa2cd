"""`RoutedEmbedding`: ids split over ranks, rows by all-to-all, distinct ids only, copies of hot rows."""

import torch
from torch import Tensor

from skewtool.parallel.embedding.vocab_sharded import VocabShardedEmbedding
from skewtool.parallel.groups import Group
from skewtool.parallel.routing import FixedCapacityRoute, Route
from skewtool.sharding import ShardMap

__all__ = ["RoutedEmbedding"]


class RoutedEmbedding(VocabShardedEmbedding):
    """Rows for each rank's own ids. This is where the map decides: the busiest shard sets the step.

    `capacity`: room for that many requests from each rank to each shard, so that the host never waits for the device;
    see `FixedCapacityRoute`. `distinct=False` asks for every occurrence, for comparison.

    Unsharded equivalent: ``F.embedding(ids, table)``. With copies, gradients of the slots of an id are partial until
    `synchronize_copies`.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        shard_map: ShardMap | None = None,
        group: Group = None,
        *,
        distinct: bool = True,
        capacity: int | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, shard_map, group, device=device, dtype=dtype)
        self.distinct, self.capacity = distinct, capacity

    def route(self, ids: Tensor) -> Route | FixedCapacityRoute:
        """The route of a batch, which may be built ahead and used by any table with the same map."""
        if self.capacity is not None:
            return FixedCapacityRoute.build(ids, self.shard_map, self.group, capacity=self.capacity)
        return Route.build(ids, self.shard_map, self.group, distinct=self.distinct)

    def forward(self, ids: Tensor, route: Route | FixedCapacityRoute | None = None) -> Tensor:
        """ids int32 or int64 of any shape -> [*shape, H]. `route`: built ahead for the same ids.

        Collectives: those of `Route.build` unless a route is given, and of `Route.lookup`. Errors: RouteError as
        `Route.build`, on every rank.
        """
        return (self.route(ids) if route is None else route).lookup(self.weight)
