"""Routes of hidden shards: every rank asks all others for the columns they have."""

from collections.abc import Callable

import pytest
import torch

from skewtool.errors import RouteError
from skewtool.parallel.collectives import record_collectives
from skewtool.parallel.hidden_columns import columns_of
from skewtool.parallel.routing.hidden_route import HiddenRoute
from tests.parallel.comparing import drawn

Ranks = Callable[..., None]

VOCAB, WIDTH = 20, 7


def _rows_arrive_whole(rank: int, world: int) -> None:
    table = drawn(VOCAB, WIDTH, seed=1)
    columns = columns_of(WIDTH, world, rank)
    weight = table[:, columns.start : columns.stop]
    batches = [torch.tensor([[3, 3, 19]]), torch.empty(0, 2, dtype=torch.int64), torch.tensor([5, 5, 5, 5, 0])]
    for distinct, lookups in ((True, (2, 0, 2)), (False, (3, 0, 5))):
        with record_collectives() as calls:
            route = HiddenRoute.build(batches[rank], VOCAB, distinct=distinct)
            rows = route.lookup(weight, WIDTH)
        assert torch.equal(rows, table[batches[rank]])
        assert route.lookups == lookups
        of_others = sum(lookups) - lookups[rank]
        assert [(call.kind, call.what, call.payload_bytes) for call in calls] == [
            ("all_gather", "counts", 3 * 8),
            ("all_to_all", "ids", (world - 1) * lookups[rank] * 8),
            ("all_to_all", "rows", of_others * len(columns) * 8),
        ]


def test_rows_arrive_whole(on_ranks: Ranks) -> None:
    """From ranks with 3, 2 and 2 of 7 columns, for ranks with several tokens and with none."""
    on_ranks(3, _rows_arrive_whole)


def test_bad_ids_are_refused() -> None:
    with pytest.raises(RouteError, match="rank 0 has id 20 at position 1"):
        HiddenRoute.build(torch.tensor([19, 20]), VOCAB)
