"""`VocabParallelLMHead`: logits whose columns lie on shards, from the home rows of a table."""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from skewtool.errors import MapError
from skewtool.parallel.differentiable import replicated
from skewtool.parallel.embedding import VocabShardedEmbedding
from skewtool.parallel.groups import Group, rank_of, size_of
from skewtool.parallel.head.linear_cross_entropy import linear_cross_entropy
from skewtool.parallel.head.squashing import Squashing
from skewtool.parallel.home_rows import check_one_shard_per_rank, home_rows_of
from skewtool.parallel.sharded_module import ShardedModule
from skewtool.parallel.tokens import gather_tokens
from skewtool.parallel.weights import check_same_map, initialize_rows, shard_weight
from skewtool.parallel.wide_product import linear_of_wide
from skewtool.sharding import ShardMap

__all__ = ["VocabParallelLMHead"]


class VocabParallelLMHead(ShardedModule):
    """The LM head of `shard_map` (contiguous by default): each rank has the rows of its home slots, weight [R, H].

    `tied_to`: an embedding of the same map, whose home rows `weight[:R]` are then the head's. There is one parameter, in
    the embedding: the head has none and nothing in its state_dict, so that moving, copying, loading or `to_empty` cannot
    part them; gradients of lookups and head add up in it.

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
        super().__init__(group)
        if shard_map is None:
            shard_map = ShardMap.contiguous(num_embeddings, size_of(group)) if tied_to is None else tied_to.shard_map
        if shard_map.vocab_size != num_embeddings:
            raise MapError(f"the map has {shard_map.vocab_size} ids, but num_embeddings is {num_embeddings}")
        if tied_to is not None and tied_to.shard_map != shard_map:
            raise MapError(f"a tied head needs the map of its embedding, {tied_to.shard_map}; got {shard_map}")
        check_one_shard_per_rank(shard_map, group)
        check_same_map(shard_map, group)
        self.shard_map, self.squashing = shard_map, Squashing(soft_cap, temperature)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self._tied_to = (tied_to,)  # in a tuple, lest it become a submodule and its weight a second entry of state_dict
        if tied_to is None:
            self.weight = nn.Parameter(torch.empty(shard_map.home_slots, embedding_dim, device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(shard_map.home_slots, device=device, dtype=dtype)) if bias else None

    def __getattr__(self, name: str) -> Any:
        # `head.weight` of a tied head is the embedding's, whichever parameter that has by now.
        if name == "weight" and self.tied_to is not None:
            return self.tied_to.weight
        return super().__getattr__(name)

    @property
    def tied_to(self) -> VocabShardedEmbedding | None:
        return self._tied_to[0]

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
