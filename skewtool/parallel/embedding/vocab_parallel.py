"""`VocabParallelEmbedding`: the usual layout. Ids on every rank, rows from their home, summed over ranks."""

from typing import Literal

import torch
from torch import Tensor

from skewtool.parallel.differentiable import scatter_sums, sum_of_partial
from skewtool.parallel.embedding.vocab_sharded import VocabShardedEmbedding
from skewtool.parallel.groups import Group, rank_of, size_of
from skewtool.parallel.home_rows import home_rows_of
from skewtool.parallel.routing.requests import flat_ids
from skewtool.parallel.routing.rows import read_rows
from skewtool.parallel.tokens import own_tokens
from skewtool.sharding import ShardMap

__all__ = ["VocabParallelEmbedding"]


class VocabParallelEmbedding(VocabShardedEmbedding):
    """Rows for ids that every rank has alike. Every rank moves the same bytes whatever the map: skew does not matter here.

    `output`: "replicated", all rows on every rank; or "sequence", this rank's tokens only, of the flattened ids the r-th
    ceil(N / P), the last ranks fewer. `check_ids=False` spares the wait for the device; ids out of range then have an
    undefined result.

    Unsharded equivalent: ``F.embedding(ids, table)``, and for "sequence" ``.flatten(0, -2)[rank * c : (rank + 1) * c]``.
    Copies, where the map has any, are not read.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        shard_map: ShardMap | None = None,
        group: Group = None,
        *,
        output: Literal["replicated", "sequence"] = "replicated",
        check_ids: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, shard_map, group, device=device, dtype=dtype)
        if output not in ("replicated", "sequence"):
            raise ValueError(f'output must be "replicated" or "sequence", got {output!r}')
        self.output, self.check_ids = output, check_ids

    def forward(self, ids: Tensor) -> Tensor:
        """ids int32 or int64 of any shape, the same on every rank -> [*shape, H], or [n, H] for "sequence".

        Collectives: forward one all_reduce of N rows, backward none; or one reduce_scatter and one all_gather.
        Errors: RouteError for ids out of range; every rank raises, since all have the same ids.
        """
        flat = flat_ids(ids)
        if self.check_ids:
            self._refuse_bad_ids(flat)
        column = home_rows_of(self.shard_map, self.group, flat.device).column_of[flat]
        # Foreign ids read row 0, whose values and gradients `where` then leaves out.
        rows = torch.where((column >= 0)[:, None], read_rows(self.weight, column.clamp(min=0)), 0)
        if self.output == "replicated":
            return sum_of_partial(rows, self.group, one_owner=True).reshape(*ids.shape, self.embedding_dim)
        tokens = own_tokens(flat.numel(), rank_of(self.group), size_of(self.group))
        most = -(-flat.numel() // size_of(self.group))
        padded = torch.nn.functional.pad(rows, (0, 0, 0, most * size_of(self.group) - flat.numel()))
        parts = padded.reshape(size_of(self.group), most, self.embedding_dim)
        return scatter_sums(parts, self.group, one_owner=True)[: len(tokens)]
