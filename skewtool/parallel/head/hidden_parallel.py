"""`HiddenParallelLMHead`: every rank has all rows of the table and some of their columns; partial logits are summed."""

from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn

from skewtool.parallel.differentiable import own_part, replicated, scatter_sums, sum_of_partial
from skewtool.parallel.embedding import HiddenParallelEmbedding
from skewtool.parallel.groups import Group, rank_of, size_of
from skewtool.parallel.head.sharded_head import ShardedHead
from skewtool.parallel.head.squashing import Squashing
from skewtool.parallel.hidden_columns import columns_of
from skewtool.parallel.home_rows import home_rows_of
from skewtool.parallel.routing.rows import read_rows
from skewtool.parallel.weights import initialize_columns
from skewtool.parallel.wide_product import wide_linear
from skewtool.sharding import ShardMap

__all__ = ["HiddenParallelLMHead"]


@lru_cache(maxsize=16)
def _all_homes(shard_map: ShardMap, device: torch.device) -> Tensor:
    """The ids of all home slots, by shard: int64 [P * R], 0 where empty."""
    homes = torch.tensor(shard_map.token_at[:, : shard_map.home_slots], dtype=torch.int64)
    return homes.clamp(min=0).reshape(-1).to(device)


class HiddenParallelLMHead(ShardedHead[HiddenParallelEmbedding]):
    """Weight [V, H_r], rows in order of ids: columns `columns_of(H, P, rank)`. Logits are partial until they are summed,
    N V numbers on every rank: the memory that decides against this layout for large vocabularies.

    `output`: "replicated", all logits [..., V] on every rank, in order of ids; or "vocab", [..., R], the columns of this
    rank's home slots in `shard_map` (contiguous by default), for the sharded losses and sampling.
    `tied_to`: a `HiddenParallelEmbedding`, whose weight is then the head's; see `ShardedHead`.
    bias [V], the same on every rank; `soft_cap`, `temperature` as there.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        shard_map: ShardMap | None = None,
        group: Group = None,
        *,
        output: Literal["replicated", "vocab"] = "replicated",
        tied_to: HiddenParallelEmbedding | None = None,
        bias: bool = False,
        soft_cap: float | None = None,
        temperature: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        if output not in ("replicated", "vocab"):
            raise ValueError(f'output must be "replicated" or "vocab", got {output!r}')
        super().__init__(num_embeddings, embedding_dim, shard_map, group, tied_to, Squashing(soft_cap, temperature))
        self.output = output
        self.columns = columns_of(embedding_dim, size_of(group), rank_of(group))
        if tied_to is None:
            self.weight = nn.Parameter(torch.empty(num_embeddings, len(self.columns), device=device, dtype=dtype))
        self.bias = nn.Parameter(torch.zeros(num_embeddings, device=device, dtype=dtype)) if bias else None

    def counted_rows(self) -> dict[str, int]:
        return {"weight": self.num_embeddings} if self.tied_to is None else {}

    def reset_parameters(self, seed: int, std: float = 0.02) -> None:
        """As `VocabParallelLMHead.reset_parameters`: the same values by id and column."""
        if self.tied_to is None:
            initialize_columns(self.weight.data, self.columns.start, seed=seed, std=std)
        if self.bias is not None:
            self.bias.data.zero_()

    def load_table(self, table: Tensor, bias: Tensor | None = None) -> None:
        """Takes this rank's columns of a whole table [V, H], and a bias [V]. No collectives."""
        self.weight.data.copy_(table[:, self.columns.start : self.columns.stop])
        if self.bias is not None and bias is not None:
            self.bias.data.copy_(bias)

    def forward(self, hidden: Tensor, states: Literal["hidden", "replicated"] = "hidden") -> Tensor:
        """hidden [..., H_r], this rank's columns, or with `states="replicated"` [..., H], the same on every rank ->
        logits as `output` says, in hidden's dtype; summed in float32.

        Unsharded equivalent: ``F.linear(hidden, table, bias)``, capped and scaled. Collectives: forward one all_reduce of
        N V numbers, backward none; or for "vocab" one reduce_scatter of N P R, and one all_gather in backward. With
        `states="replicated"` one all_reduce of hidden's gradient more, with a bias and "vocab" one of the bias's.
        """
        if states == "replicated":
            hidden = own_part(hidden, self.columns.start, self.columns.stop, self.group)
        if self.output == "replicated":
            logits = sum_of_partial(wide_linear(hidden, self.weight), self.group, "logits").to(hidden.dtype)
            logits = self.squashing(logits if self.bias is None else logits + self.bias)
            no_class = torch.arange(self.shard_map.real_vocab, self.num_embeddings, device=logits.device)
        else:
            logits = self._of_own_slots(hidden)
            no_class = home_rows_of(self.shard_map, self.group, logits.device).no_class
        return logits.index_fill(-1, no_class, -torch.inf) if no_class.numel() else logits

    def _of_own_slots(self, hidden: Tensor) -> Tensor:
        num_ranks, slots = size_of(self.group), self.shard_map.home_slots
        homes = _all_homes(self.shard_map, hidden.device)
        partial = wide_linear(hidden, read_rows(self.weight, homes)).reshape(-1, num_ranks, slots)
        logits = scatter_sums(partial.movedim(1, 0), self.group, "logits").to(hidden.dtype)
        if self.bias is not None:
            own = homes.reshape(num_ranks, slots)[rank_of(self.group)]
            logits = logits + replicated(self.bias, self.group)[own]
        return self.squashing(logits).reshape(*hidden.shape[:-1], slots)
