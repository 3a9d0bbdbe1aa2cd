"""`VocabParallelLMHead`: logits whose columns lie on shards, from the home rows of a table."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from skewtool.parallel.differentiable import replicated
from skewtool.parallel.embedding import VocabShardedEmbedding
from skewtool.parallel.groups import Group, rank_of
from skewtool.parallel.head.linear_cross_entropy import linear_cross_entropy
from skewtool.parallel.head.sharded_head import ShardedHead
from skewtool.parallel.head.squashing import Squashing
from skewtool.parallel.home_rows import home_rows_of
from skewtool.parallel.tokens import gather_tokens
from skewtool.parallel.weights import initialize_rows, shard_weight
from skewtool.parallel.wide_product import linear_of_wide
from skewtool.sharding import ShardMap

__all__ = ["VocabParallelLMHead"]


class VocabParallelLMHead(ShardedHead[VocabShardedEmbedding]):
    """The LM head of `shard_map` (contiguous by default): each rank has the rows of its home slots, weight [R, H].

    `tied_to`: an embedding of the same map, whose home rows `weight[:R]` are then the head's; see `ShardedHead`.

    bias [R]; `soft_cap` and `temperature` as `Squashing`: bias, cap, temperature, and only then padding ids and empty
    slots become -inf. Products are dense: the map does not change the work, but for the number of rows.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        shard_map: ShardMap | None = None,
        group: Group = None,
        *,
        tied_to: VocabShardedEmbedding | None = None,
        bias: bool = False,
        soft_cap: float | None = None,
        temperature: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, shard_map, group, tied_to, Squashing(soft_cap, temperature))
        if tied_to is None:
            self.weight = nn.Parameter(torch.empty(self.shard_map.home_slots, embedding_dim, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(self.shard_map.home_slots, device=device, dtype=dtype)) if bias else None

    def counted_rows(self) -> dict[str, int]:
        own = ["bias"] if self.bias is not None else []
        return dict.fromkeys([*own, "weight"] if self.tied_to is None else own, self.shard_map.home_slots)

    def reset_parameters(self, seed: int, std: float = 0.02) -> None:
        """Normal values as a function of (seed, id, column) alone; bias 0. A tied head has no values of its own."""
        if self.tied_to is None:
            initialize_rows(self.weight.data, self.shard_map, rank_of(self.group), seed=seed, std=std)
        if self.bias is not None:
            self.bias.data.zero_()

    def load_table(self, table: Tensor, bias: Tensor | None = None) -> None:
        """Takes this rank's rows of a whole table [V, H], and of a bias [V]. No collectives."""
        for parameter, whole in ((self.weight, table), (self.bias, bias)):
            if parameter is not None and whole is not None:
                parameter.data.copy_(shard_weight(whole, self.shard_map, rank_of(self.group))[: parameter.size(0)])

    def forward(self, hidden: Tensor, tokens: Literal["replicated", "partitioned"] = "replicated") -> Tensor:
        """hidden [..., H], the same on every rank -> logits [..., R] of this rank's home slots, in hidden's dtype.

        `tokens="partitioned"`: each rank its own tokens [n, H], any number -> [N, R] of all, by rank (`gather_tokens`).
        Unsharded equivalent: ``F.linear(hidden, table, bias)``, capped and scaled, its columns of the home slots.
        Collectives: forward none, backward one all_reduce of hidden's gradient; partitioned: those of `gather_tokens`.
        """
        if tokens == "partitioned":
            everyone = gather_tokens(hidden, self.group, wide=True)
        elif tokens == "replicated":
            everyone = replicated(hidden, self.group, wide=True)
        else:
            raise ValueError(f'tokens must be "replicated" or "partitioned", got {tokens!r}')
        rows = self.weight[: self.shard_map.home_slots]
        logits = self.squashing(linear_of_wide(everyone, rows, self.bias, hidden.dtype))
        no_class = home_rows_of(self.shard_map, self.group, logits.device).no_class
        return logits.index_fill_(-1, no_class, -torch.inf) if no_class.numel() else logits

    def loss(self, hidden: Tensor, labels: Tensor, **options: Any) -> Tensor:
        """`linear_cross_entropy` with this head's weight, bias, cap and temperature; see there for the options."""
        return linear_cross_entropy(
            hidden, self.weight, labels, self.shard_map, self.group,
            bias=self.bias, soft_cap=self.squashing.soft_cap, temperature=self.squashing.temperature, **options,
        )  # fmt: skip
