"""`HiddenParallelEmbedding`: every rank has all rows, and some of their columns. Even by construction."""

from typing import Literal

import torch
from torch import Tensor, nn

from skewtool.parallel.collectives import all_gather
from skewtool.parallel.differentiable import gather_parts
from skewtool.parallel.embedding.sharded_embedding import ShardedEmbedding
from skewtool.parallel.groups import Group, rank_of, size_of
from skewtool.parallel.hidden_columns import columns_of, joined_columns, most_columns
from skewtool.parallel.routing.hidden_route import HiddenRoute
from skewtool.parallel.routing.requests import flat_ids
from skewtool.parallel.routing.rows import read_rows
from skewtool.parallel.weights import initialize_columns
from skewtool.sharding import ShardMap

__all__ = ["HiddenParallelEmbedding"]

_OUTPUTS = ("hidden", "replicated", "tokens")


class HiddenParallelEmbedding(ShardedEmbedding):
    """Weight [V, H_r], rows in order of ids: columns `columns_of(H, P, rank)`. The map says which ids there are.

    `output`:
      "hidden"      ids the same on every rank -> this rank's columns [*shape, H_r]; no collectives
      "replicated"  ids the same on every rank -> [*shape, H] on every rank; forward one all_gather, backward none
      "tokens"      each rank its own ids -> [*shape, H]; a `HiddenRoute`: one all_gather of counts, all_to_all of ids and
                    rows, and of gradients in backward. `distinct`: each distinct id of a rank once.

    Unsharded equivalent: ``F.embedding(ids, table)``, its columns for "hidden".
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        shard_map: ShardMap | None = None,
        group: Group = None,
        *,
        output: Literal["hidden", "replicated", "tokens"] = "hidden",
        distinct: bool = True,
        check_ids: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, shard_map, group)
        if output not in _OUTPUTS:
            raise ValueError(f"output must be one of {', '.join(_OUTPUTS)}, got {output!r}")
        self.output, self.distinct, self.check_ids = output, distinct, check_ids
        self.columns = columns_of(embedding_dim, size_of(group), rank_of(group))
        self.weight = nn.Parameter(torch.empty(num_embeddings, len(self.columns), device=device, dtype=dtype))

    def counted_rows(self) -> dict[str, int]:
        return {"weight": self.num_embeddings}

    def reset_parameters(self, seed: int, std: float = 0.02) -> None:
        initialize_columns(self.weight.data, self.columns.start, seed=seed, std=std)

    def load_table(self, table: Tensor) -> None:
        self.weight.data.copy_(table[:, self.columns.start : self.columns.stop])

    def gather_table(self) -> Tensor:
        return self._joined(all_gather(self._padded(self.weight.detach()), self.group, "rows"))

    def forward(self, ids: Tensor, route: HiddenRoute | None = None) -> Tensor:
        """ids int32 or int64 of any shape -> see `output`. `route`: built ahead, for "tokens".

        Errors: RouteError for ids out of range, on every rank.
        """
        if self.output == "tokens":
            return (self.route(ids) if route is None else route).lookup(self.weight, self.embedding_dim)
        flat = flat_ids(ids)
        if self.check_ids:
            self._refuse_bad_ids(flat)
        rows = read_rows(self.weight, flat)
        if self.output == "replicated":
            rows = self._joined(gather_parts(self._padded(rows), self.group, same_use=True))
        return rows.reshape(*ids.shape, rows.size(1))

    def route(self, ids: Tensor) -> HiddenRoute:
        """The route of a batch for "tokens", which may be built ahead."""
        return HiddenRoute.build(ids, self.shard_map.real_vocab, self.group, distinct=self.distinct)

    def _padded(self, rows: Tensor) -> Tensor:
        most = most_columns(self.embedding_dim, size_of(self.group))
        return nn.functional.pad(rows, (0, most - rows.size(1)))

    def _joined(self, parts: Tensor) -> Tensor:
        return joined_columns(parts, self.embedding_dim)
