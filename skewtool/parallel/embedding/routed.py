"""`RoutedEmbedding`: an embedding split by vocabulary, for ids that are split over ranks."""

import torch
from torch import Tensor, nn

from skewtool.parallel.groups import Group, rank_of
from skewtool.parallel.routing.route import Route
from skewtool.sharding import ShardMap

__all__ = ["RoutedEmbedding"]


class RoutedEmbedding(nn.Module):
    """Rows of an [V, H] table for each rank's own ids; this rank holds weight [S, H], the slots of its shard.

    Unsharded equivalent: ``F.embedding(ids, table)`` with ``table[shard_map.token_at[rank]] == weight`` (empty slots
    left out). Rows of the home slots are ``weight[:shard_map.home_slots]``, which is what a tied head multiplies with.
    With copies, gradients of the slots of an id are partial and must be summed before an optimizer step.
    """

    def __init__(
        self,
        shard_map: ShardMap,
        embedding_dim: int,
        group: Group = None,
        *,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.shard_map, self.group = shard_map, group
        self.weight = nn.Parameter(torch.empty(shard_map.num_slots, embedding_dim, device=device, dtype=dtype))

    def load_table(self, table: Tensor) -> None:
        """Copies this shard's rows from a whole table [V, H]; empty slots become zero."""
        held = torch.tensor(self.shard_map.token_at[rank_of(self.group)], dtype=torch.int64, device=table.device)
        with torch.no_grad():
            self.weight.copy_(table[held.clamp(min=0)] * (held >= 0)[:, None])

    def forward(self, ids: Tensor, route: Route | None = None) -> Tensor:
        """ids int32 or int64 of any shape -> [*shape, H]. `route`: built ahead for the same ids.

        Collectives: those of `Route.build` unless a route is given, and of `Route.lookup`. Errors: RouteError as
        `Route.build`, on every rank.
        """
        if route is None:
            route = Route.build(ids, self.shard_map, self.group)
        return route.lookup(self.weight)
