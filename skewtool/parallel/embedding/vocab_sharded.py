"""`VocabShardedEmbedding`: what the layouts split by vocabulary share: a local weight of home and copy slots."""

import torch
from torch import Tensor, nn

from skewtool.parallel.embedding.sharded_embedding import ShardedEmbedding
from skewtool.parallel.groups import Group, rank_of
from skewtool.parallel.weights import initialize_rows, shard_weight, synchronize_copies, unshard_weight
from skewtool.sharding import ShardMap

__all__ = ["VocabShardedEmbedding"]


class VocabShardedEmbedding(ShardedEmbedding):
    """Weight [S, H]: the slots of this rank's shard. The first `shard_map.home_slots` are the rows of a tied LM head."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        shard_map: ShardMap | None = None,
        group: Group = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, shard_map, group)
        self.weight = nn.Parameter(torch.empty(self.shard_map.num_slots, embedding_dim, device=device, dtype=dtype))

    def counted_rows(self) -> dict[str, int]:
        return {"weight": self.shard_map.home_slots}

    def reset_parameters(self, seed: int, std: float = 0.02) -> None:
        initialize_rows(self.weight.data, self.shard_map, rank_of(self.group), seed=seed, std=std)

    def load_table(self, table: Tensor) -> None:
        self.weight.data.copy_(shard_weight(table, self.shard_map, rank_of(self.group)))

    def gather_table(self) -> Tensor:
        return unshard_weight(self.weight.detach(), self.shard_map, self.group)

    def synchronize_copies(self) -> None:
        """Gives all slots of an id the sum of their gradients: once, after backward, before clipping and the optimizer.

        Without copies it does nothing. A rank without a gradient takes part with zeros. Collectives: those of
        `skewtool.parallel.synchronize_copies`.
        """
        if self.shard_map.has_copies:
            if self.weight.grad is None:
                self.weight.grad = torch.zeros_like(self.weight)
            synchronize_copies(self.weight.grad, self.shard_map, self.group)
