"""The gradient of a tied table is that of all its uses, each once: on two ranks, and on two pairs with different data."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from skewtool.parallel.embedding import RoutedEmbedding, VocabParallelEmbedding
from skewtool.parallel.head import VocabParallelLMHead
from skewtool.sharding import ShardMap
from tests.parallel.comparing import assert_equal, backward, drawn

Ranks = Callable[..., None]

MAPS = {
    "contiguous": ShardMap(np.array([[0, 1, 2], [3, 4, 5]]), 3, 6, 6),
    "copies": ShardMap(np.array([[5, 0, 3, 1], [1, 2, 4, 3]]), 3, 6, 6),
}

IDS = torch.tensor([[1, 3, 0], [4, 1, 1], [5, 5, 2], [0, 3, 4]])
LABELS = torch.tensor([[3, 2, 3], [2, 0, 3], [1, -100, -100], [4, 4, -100]])
"""Of each rank. On rank 0 id 1 is input only, id 2 target only, id 3 both. Ranks 2 and 3 have fewer labels that count."""

BOTH_HAVE = torch.tensor([1, 5])
"""Ids that all ranks look up at once, as a third use."""


def _unsharded(table: nn.Parameter, ranks: list[int], pairs: int) -> Tensor:
    """The gradient of the mean loss over the tokens of all ranks, and of the third use, once by each pair of ranks."""
    table.grad = torch.zeros_like(table)
    rows = F.embedding(IDS[ranks], table).flatten(0, 1)
    backward(F.cross_entropy(rows @ table.t(), LABELS[ranks].flatten()) + pairs * table[BOTH_HAVE].sum())
    return table.grad


def _over_slots(gradient: Tensor, shard_map: ShardMap, group: Any) -> Tensor:
    """For each id the sum over its slots on the two ranks of the group."""
    parts = [torch.empty_like(gradient) for _ in range(2)]
    dist.all_gather(parts, gradient, group=group)
    tokens = torch.tensor(shard_map.token_at).long().flatten()
    return gradient.new_zeros(6, 2).index_add(0, tokens, torch.cat(parts))


def _train(rank: int, shard_map: ShardMap, group: Any, data_group: Any, ranks: list[int]) -> None:
    """Three Adam steps; `data_group` is None where ranks 2 and 3 do as ranks 0 and 1."""
    whole = nn.Parameter(drawn(6, 2, seed=1))
    embedding = RoutedEmbedding(6, 2, shard_map, group, dtype=torch.float64)
    embedding.load_table(whole.detach())
    head = VocabParallelLMHead(6, 2, group=group, tied_to=embedding)
    replicated = VocabParallelEmbedding(6, 2, shard_map, group, dtype=torch.float64)
    replicated.weight = embedding.weight
    ours, theirs = torch.optim.Adam(embedding.parameters(), lr=0.1), torch.optim.Adam([whole], lr=0.1)
    held = torch.tensor(shard_map.token_at[rank % 2]).long()
    own = rank % len(ranks)
    for step in range(3):
        what = f"{shard_map}, {ranks}, step {step}"
        embedding.zero_grad()
        backward(head.loss(embedding(IDS[own]), LABELS[own], tokens="partitioned", data_parallel_group=data_group))
        backward(replicated(BOTH_HAVE).sum())
        expected = _unsharded(whole, ranks, len(ranks) // 2)
        gradient = embedding.weight.grad
        assert gradient is not None
        if data_group is not None:
            dist.all_reduce(gradient, group=data_group)
        assert_equal(_over_slots(gradient, shard_map, group), expected, f"gradient, {what}")
        embedding.synchronize_copies()
        assert_equal(gradient, expected[held], f"gradient in every slot, {what}")
        ours.step()
        theirs.step()
        table = embedding.gather_table()
        assert_equal(table, whole.detach(), f"table, {what}")
        assert torch.equal(embedding.weight, table[held]), f"copies are their homes bit by bit, {what}"
    assert len(ours.state) == 1


def _both_uses(rank: int, world: int) -> None:
    pairs = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    slices = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    for shard_map in MAPS.values():
        _train(rank, shard_map, pairs[rank // 2], None, [0, 1])
        _train(rank, shard_map, pairs[rank // 2], slices[rank % 2], [0, 1, 2, 3])


def test_the_gradient_is_that_of_all_uses_once(on_ranks: Ranks) -> None:
    on_ranks(4, _both_uses)
