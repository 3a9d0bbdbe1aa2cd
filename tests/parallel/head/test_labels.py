"""Labels: refused on every rank, ignored before anything else, counted whatever their loss."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

from skewtool.errors import LabelError
from skewtool.parallel.head import linear_cross_entropy, vocab_parallel_cross_entropy
from skewtool.sharding import ShardMap
from tests.parallel.comparing import assert_equal, backward, close, drawn
from tests.parallel.head.own_columns import check, own_columns
from tests.parallel.maps import REAL_VOCAB, VOCAB, maps_of

Ranks = Callable[..., None]

BAD = (REAL_VOCAB, VOCAB - 1, VOCAB, -1, 2**40)
"""The first and the last row of the padded tail, none at all, and further off."""


def _bad_labels(rank: int, world: int, maps: list[ShardMap]) -> None:
    hidden = drawn(4, 3, seed=2)
    for shard_map in maps:
        logits = own_columns(drawn(4, VOCAB, seed=1), shard_map)
        rows = drawn(shard_map.home_slots, 3, seed=4)
        for bad in BAD:
            for guilty in ([0], [world - 1], range(world)):
                labels = torch.tensor([1, -100, 2, bad if rank in guilty else 3])
                message = rf"^rank {guilty[0]} has label {bad} at position 3 .* below {REAL_VOCAB}, or -100 to be ignored$"
                with pytest.raises(LabelError, match=message):
                    vocab_parallel_cross_entropy(logits, labels, shard_map)
                for tokens in ("replicated", "partitioned"):
                    with pytest.raises(LabelError, match=message):
                        linear_cross_entropy(hidden, rows, labels, shard_map, tokens=tokens)
        vocab_parallel_cross_entropy(logits, torch.tensor([1, -100, 2, 3]), shard_map)  # nobody was left behind


@pytest.mark.parametrize("world", [1, 3])
def test_bad_labels_raise_on_every_rank(on_ranks: Ranks, world: int) -> None:
    """Also where one rank alone has them."""
    maps = maps_of(world)
    on_ranks(world, _bad_labels, [maps["contiguous"], maps["empty slots"]])


def _ignored(rank: int, world: int, shard_map: ShardMap) -> None:
    logits = drawn(1, 5, VOCAB, seed=3)
    for number in (5, 0):
        nothing = torch.full((1, number), -100)
        for reduction, expected in (
            ("mean", torch.tensor(0.0)),
            ("sum", torch.tensor(0.0)),
            ("none", torch.zeros(1, number)),
        ):
            own = own_columns(logits[:, :number], shard_map)
            loss = vocab_parallel_cross_entropy(own, nothing, shard_map, reduction=reduction)  # type: ignore[arg-type]
            assert torch.equal(loss, expected.double())
            backward(loss.sum())
            assert torch.equal(own.grad, torch.zeros_like(own)), reduction  # type: ignore[arg-type]
        own = own_columns(logits[:, :number], shard_map)
        loss = vocab_parallel_cross_entropy(own, nothing, shard_map, nan_if_empty=True)
        assert loss.isnan()
        backward(loss)
        assert torch.equal(own.grad, torch.zeros_like(own))  # type: ignore[arg-type]


@pytest.mark.parametrize("world", [1, 3])
def test_where_no_label_counts_the_mean_is_zero(on_ranks: Ranks, world: int) -> None:
    """All ignored, or none at all: 0 with zero gradients, or on demand NaN as in torch, with torch's zero gradients."""
    on_ranks(world, _ignored, maps_of(world)["contiguous"])


def test_torch_gives_nan_and_zero_gradients_where_no_label_counts() -> None:
    logits = drawn(2, 3, seed=1).requires_grad_()
    loss = F.cross_entropy(logits, torch.tensor([-100, -100]))
    backward(loss)
    assert loss.isnan()
    assert torch.equal(logits.grad, torch.zeros(2, 3).double())  # type: ignore[arg-type]


def _any_ignore_index(rank: int, world: int, shard_map: ShardMap) -> None:
    logits = drawn(6, VOCAB, seed=4)
    for ignore_index in (-100, -1, 0, 7, 2**40):  # a class, too
        labels = torch.tensor([ignore_index, 7, 58, ignore_index, 0, 3])
        check(logits, labels, shard_map, f"ignore {ignore_index}", ignore_index=ignore_index)
    logits[0] = torch.nan  # of an ignored token
    labels = torch.tensor([-100, 7, 58, 1, 0, 3])
    own = own_columns(logits, shard_map)
    loss = vocab_parallel_cross_entropy(own, labels, shard_map)
    backward(loss)
    assert close(loss.detach(), F.cross_entropy(logits[1:, :REAL_VOCAB], labels[1:]))
    assert own.grad is not None
    assert torch.isfinite(own.grad).all()


def test_ignored_labels_are_told_before_anything_else(on_ranks: Ranks) -> None:
    """Whatever number says so, and whatever their logits are."""
    on_ranks(2, _any_ignore_index, maps_of(2)["balanced"])


def _a_loss_of_zero_counts(rank: int, world: int, shard_map: ShardMap) -> None:
    """Pitfall 23: one token is predicted with certainty, its loss is exactly 0, and it is one of three."""
    logits = drawn(3, VOCAB, seed=5)
    logits[0, 17] = 1e6
    labels = torch.tensor([17, 2, 3])
    own = own_columns(logits, shard_map)
    losses = vocab_parallel_cross_entropy(own, labels, shard_map, reduction="none").detach()
    mean = vocab_parallel_cross_entropy(own, labels, shard_map).detach()
    assert losses[0] == 0
    assert_equal(mean, losses.sum() / 3, "mean")


def test_a_token_counts_though_its_loss_is_zero(on_ranks: Ranks) -> None:
    on_ranks(2, _a_loss_of_zero_counts, maps_of(2)["balanced"])
