"""A mean over data-parallel ranks with different numbers of labels is the mean over all of them, on 2 x 2 ranks."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from skewtool.parallel.collectives import record_collectives
from skewtool.parallel.head import VocabParallelLMHead, vocab_parallel_cross_entropy
from skewtool.sharding import ShardMap
from tests.parallel.comparing import assert_equal, backward, drawn
from tests.parallel.maps import REAL_VOCAB, VOCAB, maps_of

Ranks = Callable[..., None]

WIDTH, TOKENS = 3, 5

SLICES: dict[str, tuple[list[int], list[int]]] = {
    "one slice ignores all": ([-100] * 5, [7, -100, 58, -100, 0]),
    "one label and four": ([-100, -100, 3, -100, -100], [7, 1, 58, -100, 0]),
    "both ignore all": ([-100] * 5, [-100] * 5),
}


def _groups(rank: int) -> tuple[Any, Any]:
    """Of ranks 0 to 3: the vocabulary is split over {0, 1} and {2, 3}, data over {0, 2} and {1, 3}."""
    tensor = [dist.new_group(ranks) for ranks in ([0, 1], [2, 3])]
    data = [dist.new_group(ranks) for ranks in ([0, 2], [1, 3])]
    return tensor[rank // 2], data[rank % 2]


def _summed(tensor: Tensor, group: Any) -> Tensor:
    total = tensor.detach().clone()
    dist.all_reduce(total, group=group)
    return total


def _losses(head: VocabParallelLMHead, hidden: Tensor, labels: Tensor, **options: Any) -> dict[str, Callable[[], Tensor]]:
    """The same loss in three ways; `hidden` and `labels` are those of the data-parallel slice."""
    own = slice(0, 2) if dist.get_rank(head.group) == 0 else slice(2, None)
    return {
        "logits": lambda: vocab_parallel_cross_entropy(head(hidden), labels, head.shard_map, head.group, **options),
        "hidden states": lambda: head.loss(hidden, labels, **options),
        "partitioned": lambda: head.loss(hidden[own], labels[own], tokens="partitioned", **options),
    }


def _shares_add_up(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    tensor_group, data_group = _groups(rank)
    table, states = drawn(VOCAB, WIDTH, seed=1), drawn(2, TOKENS, WIDTH, seed=2)
    for what, slices in SLICES.items():
        labels = torch.tensor(slices)
        whole, whole_states = table.clone().requires_grad_(), states.clone().requires_grad_()
        logits = F.linear(whole_states, whole)[..., :REAL_VOCAB].flatten(0, 1)
        divisor = (labels >= 0).sum().clamp(min=1)
        expected = F.cross_entropy(logits, labels.flatten(), reduction="sum") / divisor
        backward(expected)
        assert whole.grad is not None
        assert whole_states.grad is not None
        for name in ("balanced", "empty slots"):
            shard_map = maps[name].without_copies()
            head = VocabParallelLMHead(VOCAB, WIDTH, shard_map, tensor_group, dtype=torch.float64)
            head.load_table(table)
            held = torch.tensor(shard_map.token_at[rank % 2]).long()
            row_gradients = torch.where((held >= 0)[:, None], whole.grad[held.clamp(min=0)], 0)
            hidden = states[rank // 2].clone().requires_grad_()
            for way, loss_of in _losses(head, hidden, labels[rank // 2], data_parallel_group=data_group).items():
                head.zero_grad()
                hidden.grad = torch.zeros_like(hidden)
                with record_collectives() as calls:
                    share = loss_of()
                    backward(share)
                about = f"{what}, from {way}, {name}"
                assert_equal(_summed(share, data_group), expected.detach(), f"sum of the shares, {about}")
                assert head.weight.grad is not None
                assert_equal(_summed(head.weight.grad, data_group), row_gradients, f"gradient of the weight, {about}")
                assert hidden.grad is not None
                of_states = _summed(hidden.grad, tensor_group) if way == "partitioned" else hidden.grad
                assert_equal(of_states, whole_states.grad[rank // 2], f"gradient of the states, {about}")
                assert [call.payload_bytes for call in calls if call.what == "counts"][-1] == 8, (
                    "one integer for the divisor"
                )
                numbers: list[int] = [0] * 4
                dist.all_gather_object(numbers, len(calls))
                assert len(set(numbers)) == 1, "no rank leaves out a collective"


def test_shares_add_up_to_the_mean_over_all_slices(on_ranks: Ranks) -> None:
    """Also where one slice, or both, have no label that counts. Averaging the slices' own means is another objective."""
    on_ranks(4, _shares_add_up, maps_of(2))


def _nan_where_nothing_counts(rank: int, world: int, shard_map: ShardMap) -> None:
    tensor_group, data_group = _groups(rank)
    head = VocabParallelLMHead(VOCAB, WIDTH, shard_map, tensor_group, dtype=torch.float64)
    head.load_table(drawn(VOCAB, WIDTH, seed=1))
    hidden = drawn(TOKENS, WIDTH, seed=2).requires_grad_()
    for what, all_nan in (("both ignore all", True), ("one slice ignores all", False)):
        labels = torch.tensor(SLICES[what][rank // 2])
        for loss_of in _losses(head, hidden, labels, data_parallel_group=data_group, nan_if_empty=True).values():
            loss = loss_of()
            assert loss.isnan() == all_nan
            backward(loss)
    assert hidden.grad is not None
    assert torch.isfinite(hidden.grad).all()


def test_nan_on_demand_is_for_no_label_on_any_slice(on_ranks: Ranks) -> None:
    on_ranks(4, _nan_where_nothing_counts, maps_of(2)["balanced"])
