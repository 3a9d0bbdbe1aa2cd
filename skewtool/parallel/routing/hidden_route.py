"""`HiddenRoute`: ids split over ranks, columns of rows on every rank. Each rank asks all others for its ids.

The honest rival of a routed embedding: asked once per distinct id, every rank does the same work under any corpus.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from skewtool.parallel.collectives import all_gather
from skewtool.parallel.groups import Group, rank_of, size_of
from skewtool.parallel.hidden_columns import columns_of
from skewtool.parallel.routing.exchange import Counts, exchange, exchange_rows
from skewtool.parallel.routing.requests import flat_ids
from skewtool.parallel.routing.route import first_bad_id, refuse_bad_ids
from skewtool.parallel.routing.rows import read_rows

__all__ = ["HiddenRoute"]


@dataclass(frozen=True, eq=False)
class HiddenRoute:
    """The way of one batch of ids to all shards and back.

    shape     of the ids
    place     int64 [n]        for each token its lookup
    asked     int64 [sum u]    the ids of all ranks, by rank
    lookups   u of each rank: its tokens, or its distinct ids
    """

    shape: torch.Size
    place: Tensor
    asked: Tensor
    lookups: tuple[int, ...]
    group: Group

    @classmethod
    def build(cls, ids: Tensor, real_vocab: int, group: Group = None, *, distinct: bool = True) -> "HiddenRoute":
        """Routes ids, int32 or int64 of any shape. Collectives: one all_gather of 3 integers, one all_to_all of ids, the
        same to every rank. Errors: RouteError for ids outside [0, real_vocab), on every rank, as `Route.build`."""
        flat = flat_ids(ids)
        bad = (flat < 0) | (flat >= real_vocab)
        unique, place = flat, torch.arange(flat.numel(), device=flat.device)
        if distinct:
            unique, place = torch.unique(flat, return_inverse=True)
        mine = torch.cat([flat.new_tensor([unique.numel()]), first_bad_id(flat, bad)])
        by_rank = all_gather(mine, group, "counts").tolist()
        refuse_bad_ids([row[1:] for row in by_rank], real_vocab)
        lookups = tuple(row[0] for row in by_rank)
        to_all = Counts(tuple((number,) * size_of(group) for number in lookups), group)
        asked = exchange(unique.repeat(size_of(group)), to_all, "ids")
        return cls(ids.shape, place, asked, lookups, group)

    def lookup(self, weight: Tensor, hidden: int) -> Tensor:
        """The rows of all ids, [*shape, hidden], from this rank's columns of them, weight [V, H_r]. Differentiable.

        Collectives: one all_to_all of rows, and one of gradients in backward.
        """
        num_ranks = size_of(self.group)
        widths = [len(columns_of(hidden, num_ranks, rank)) for rank in range(num_ranks)]
        # Ranks have different numbers of columns, so elements are exchanged, not rows.
        elements = Counts(tuple(tuple(width * number for number in self.lookups) for width in widths), self.group)
        got = exchange_rows(read_rows(weight, self.asked).reshape(-1), elements)
        number = self.lookups[rank_of(self.group)]
        parts = torch.split(got, [number * width for width in widths])
        rows = torch.cat([part.reshape(number, width) for part, width in zip(parts, widths, strict=True)], dim=1)
        return read_rows(rows, self.place).reshape(*self.shape, hidden)
