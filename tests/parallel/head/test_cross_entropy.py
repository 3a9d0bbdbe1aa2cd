"""`vocab_parallel_cross_entropy` where others went wrong: extreme logits, padding, labels, reductions, NaN."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from skewtool.errors import LabelError
from skewtool.parallel.collectives import record_collectives
from skewtool.parallel.head import VocabParallelLMHead, linear_cross_entropy, vocab_parallel_cross_entropy
from skewtool.parallel.home_rows import home_rows_of
from skewtool.parallel.weights import shard_weight
from skewtool.sharding import ShardMap
from tests.parallel.comparing import assert_equal, backward, close, drawn
from tests.parallel.maps import REAL_VOCAB, VOCAB, maps_of

Ranks = Callable[..., None]


def _own_columns(logits: Tensor, shard_map: ShardMap, padding: float = 0.0) -> Tensor:
    """From logits [..., V] by id those of this rank's home slots; `padding` where there is no class."""
    home = home_rows_of(shard_map, None, logits.device)
    own = logits[..., home.ids.clamp(min=0)].clone()
    own[..., home.no_class] = padding
    return own.requires_grad_()


def _check(logits: Tensor, labels: Tensor, shard_map: ShardMap, what: str, tolerance: float = 1e-10, **options: Any) -> None:
    """Loss and local gradient against `F.cross_entropy` of logits [N, V] in float64."""
    whole = logits[:, : shard_map.real_vocab].clone().requires_grad_()
    expected = F.cross_entropy(whole, labels, **options)
    backward(expected.sum())
    assert whole.grad is not None
    own = _own_columns(logits, shard_map, padding=100.0)
    loss = vocab_parallel_cross_entropy(own, labels, shard_map, **options)
    backward(loss.sum())
    assert own.grad is not None
    assert torch.isfinite(loss).all(), what
    assert_equal(loss.detach(), expected.detach(), f"loss, {what}", tolerance)
    home = home_rows_of(shard_map, None, logits.device)
    assert_equal(own.grad[:, home.is_class], whole.grad[:, home.ids[home.is_class]], f"gradient, {what}", tolerance)
    assert not own.grad[:, home.no_class].any(), what


EIGHT = {
    1: {"one shard": [[0, 1, 2, 3, 4, 5, 6, 7]]},
    2: {
        "4 and 4": [[0, 1, 2, 3], [4, 5, 6, 7]],
        "5 and 3": [[0, 1, 2, 3, 4], [5, 6, 7, -1, -1]],
        "explicit": [[0, 3, 5, -1, -1], [1, 2, 4, 6, 7]],
    },
}


def _label_smoothing(rank: int, world: int) -> None:
    for name, token_at in EIGHT[world].items():
        shard_map = ShardMap(np.array(token_at), len(token_at[0]), 8, 8)
        for factor in (1, 1000):
            for smoothing in (0.0, 0.1, 1.0):
                logits = factor * drawn(6, 8, seed=0)
                labels = torch.tensor([0, 7, 3, 4, 5, 2])
                what = f"{name}, times {factor}, smoothing {smoothing}"
                _check(logits, labels, shard_map, what, 1e-10 * factor, label_smoothing=smoothing)
                identity = shard_weight(torch.eye(8).double(), shard_map, rank)  # whose products are the logits
                fused = linear_cross_entropy(logits, identity, labels, shard_map, label_smoothing=smoothing)
                expected = F.cross_entropy(logits, labels, label_smoothing=smoothing)
                assert_equal(fused, expected, f"fused loss, {what}", 1e-10 * factor)


@pytest.mark.parametrize("world", [1, 2])
def test_label_smoothing_is_over_all_classes(on_ranks: Ranks, world: int) -> None:
    """Of 8 classes on uneven shards, also with logits a thousand times as large, of which no probability may underflow to
    log(0)."""
    on_ranks(world, _label_smoothing)


def _targets_everywhere(rank: int, world: int, maps: dict[str, ShardMap]) -> None:
    for name, shard_map in maps.items():
        homes = shard_map.token_at[:, : shard_map.home_slots]
        classes = [[token for token in shard if 0 <= token < REAL_VOCAB] for shard in homes.tolist()]
        ends = torch.tensor([token for shard in classes for token in (shard[0], shard[-1])])
        logits = drawn(len(ends), VOCAB, seed=2)
        _check(logits, ends, shard_map, f"first and last class of each shard, {name}", reduction="none")
        for winner in (shard[0] for shard in classes):  # the largest logit on each shard in turn
            peaked = logits.clone()
            peaked[:, winner] = 50.0
            _check(peaked, ends, shard_map, f"the largest logit at {winner}, {name}", reduction="none")


def test_targets_at_shard_boundaries_and_largest_logits_elsewhere(on_ranks: Ranks) -> None:
    on_ranks(3, _targets_everywhere, maps_of(3))


def _padding_never_counts(rank: int, world: int) -> None:
    """3.5, and 4, 5 and 6 of the pitfalls: five classes, rows padded to 8, whatever the padded rows hold."""
    shard_map = ShardMap.contiguous(8, world, real_vocab=5)
    labels = torch.arange(5)
    for cap in (30.0, 1.0, None):
        for padded_row in (0.0, 5.0):
            table = torch.full((8, 2), padded_row, dtype=torch.float64)
            table[:5] = torch.tensor([-5.0, 0.0])
            table[5, 0] = 100.0
            head = VocabParallelLMHead(8, 2, shard_map, soft_cap=cap, dtype=torch.float64)
            head.load_table(table)
            hidden = torch.tensor([[5.0, 1.0]], dtype=torch.float64).repeat(5, 1)  # real logits are all -25
            logits = head(hidden)
            home = home_rows_of(shard_map, None, logits.device)
            assert (logits[:, home.no_class] == -torch.inf).all()
            assert (logits[:, home.is_class] < 0).all()
            for loss in (vocab_parallel_cross_entropy(logits, labels, shard_map), head.loss(hidden, labels)):
                assert_equal(loss.detach(), torch.tensor(5.0).double().log(), f"cap {cap}, padded rows {padded_row}")


@pytest.mark.parametrize("world", [1, 2, 4])
def test_padding_never_takes_probability(on_ranks: Ranks, world: int) -> None:
    """After soft-cap, scale and bias, not before: a cap would make -inf finite, and a zero row has logit 0."""
    on_ranks(world, _padding_never_counts)


def _amount_of_padding(rank: int, world: int) -> None:
    logits, labels = drawn(9, 64, seed=3), torch.arange(9)
    losses = []
    for rows in (11, 12, 16, 64):
        shard_map = ShardMap.contiguous(rows, world, real_vocab=11).padded(8)
        own = _own_columns(logits[:, :rows], shard_map)
        losses.append(vocab_parallel_cross_entropy(own, labels, shard_map, reduction="none").detach())
    for loss in losses:
        assert_equal(loss, losses[0], "loss", 1e-14)


def test_the_amount_of_padding_changes_nothing(on_ranks: Ranks) -> None:
    on_ranks(3, _amount_of_padding)


BAD = (REAL_VOCAB, VOCAB - 1, VOCAB, -1, 2**40)
"""The first and the last row of the padded tail, none at all, and further off."""


def _bad_labels(rank: int, world: int, maps: list[ShardMap]) -> None:
    hidden = drawn(4, 3, seed=2)
    for shard_map in maps:
        logits = _own_columns(drawn(4, VOCAB, seed=1), shard_map)
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
            own = _own_columns(logits[:, :number], shard_map)
            loss = vocab_parallel_cross_entropy(own, nothing, shard_map, reduction=reduction)  # type: ignore[arg-type]
            assert torch.equal(loss, expected.double())
            backward(loss.sum())
            assert torch.equal(own.grad, torch.zeros_like(own)), reduction  # type: ignore[arg-type]
        own = _own_columns(logits[:, :number], shard_map)
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
        _check(logits, labels, shard_map, f"ignore {ignore_index}", ignore_index=ignore_index)
    logits[0] = torch.nan  # of an ignored token
    labels = torch.tensor([-100, 7, 58, 1, 0, 3])
    own = _own_columns(logits, shard_map)
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
    own = _own_columns(logits, shard_map)
    losses = vocab_parallel_cross_entropy(own, labels, shard_map, reduction="none").detach()
    mean = vocab_parallel_cross_entropy(own, labels, shard_map).detach()
    assert losses[0] == 0
    assert_equal(mean, losses.sum() / 3, "mean")


def test_a_token_counts_though_its_loss_is_zero(on_ranks: Ranks) -> None:
    on_ranks(2, _a_loss_of_zero_counts, maps_of(2)["balanced"])


def _not_overwritten(rank: int, world: int, shard_map: ShardMap) -> None:
    labels = torch.tensor([1, 2, -100, 58])
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        own = _own_columns(drawn(4, VOCAB, seed=6, dtype=dtype), shard_map, padding=7.0)
        before = own.detach().clone()
        loss = vocab_parallel_cross_entropy(own, labels, shard_map, label_smoothing=0.1, z_loss=0.1)
        assert loss.dtype == torch.promote_types(dtype, torch.float32)
        backward(loss)
        assert torch.equal(own, before)
        assert own.grad is not None
        assert own.grad.dtype == dtype


def test_logits_are_never_overwritten(on_ranks: Ranks) -> None:
    on_ranks(2, _not_overwritten, maps_of(2)["balanced"])


def _not_finite(rank: int, world: int, shard_map: ShardMap) -> None:
    for token in (0, 30, 58):  # on each rank in turn
        for value in (torch.nan, torch.inf):
            logits = drawn(3, VOCAB, seed=7)
            logits[1, token] = value
            own = _own_columns(logits, shard_map)
            losses = vocab_parallel_cross_entropy(own, torch.tensor([5, 6, 7]), shard_map, reduction="none")
            assert losses.isnan().tolist() == [False, True, False], (token, value)
    logits = drawn(3, VOCAB, seed=7)
    logits[1] = -torch.inf
    losses = vocab_parallel_cross_entropy(
        _own_columns(logits, shard_map), torch.tensor([5, 6, 7]), shard_map, reduction="none"
    )
    assert losses.isnan().tolist() == [False, True, False]
    banned = drawn(3, VOCAB, seed=7)  # a whole shard banned is no error
    banned[:, shard_map.token_at[0, : shard_map.home_slots]] = -torch.inf
    _check(banned, torch.tensor([58, 57, 58]), shard_map, "a shard all -inf", reduction="none")
    assert shard_map.shard_of[58] != 0


@pytest.mark.parametrize("world", [2, 3])
def test_what_is_not_finite_on_one_rank_is_known_to_all(on_ranks: Ranks, world: int) -> None:
    """A maximum over ranks may lose a NaN; the loss must not. As torch: NaN for a token with NaN, an infinite logit, or
    no finite one."""
    on_ranks(world, _not_finite, maps_of(world)["contiguous"])


def _of_any_shape(rank: int, world: int, shard_map: ShardMap) -> None:
    logits, labels = drawn(2, 3, VOCAB, seed=8), torch.tensor([[1, 2, -100], [58, 0, 4]])
    expected = F.cross_entropy(logits[..., :REAL_VOCAB].flatten(0, 1), labels.flatten(), reduction="none").view(2, 3)
    own = _own_columns(logits, shard_map)
    for each in (labels, labels.int(), labels.t().contiguous().t()):
        loss = vocab_parallel_cross_entropy(own, each, shard_map, reduction="none")
        assert_equal(loss.detach(), expected, "losses")
    one = vocab_parallel_cross_entropy(own[0, 0], labels[0, 0], shard_map)
    assert_equal(one.detach(), expected[0, 0], "a single token")


def test_tokens_may_have_any_shape(on_ranks: Ranks) -> None:
    on_ranks(2, _of_any_shape, maps_of(2)["balanced"])


def _collectives(rank: int, world: int, shard_map: ShardMap) -> None:
    own = _own_columns(drawn(5, VOCAB, seed=9, dtype=torch.bfloat16), shard_map)
    labels = torch.tensor([1, 2, -100, 58, 0])
    for options, sums in (({}, 2), ({"label_smoothing": 0.1, "z_loss": 0.1}, 3)):
        for check, first in ((True, [("all_gather", "counts", 16)]), (False, [])):
            with record_collectives() as calls:
                backward(vocab_parallel_cross_entropy(own, labels, shard_map, check_labels=check, **options))  # type: ignore[arg-type]
            assert [(call.kind, call.what, call.payload_bytes) for call in calls] == [
                *first,
                ("all_reduce", "statistics", 5 * 4),
                ("all_reduce", "statistics", sums * 5 * 4),
            ]


def test_two_small_all_reduces_are_all(on_ranks: Ranks) -> None:
    """A maximum and two or three sums per token in float32; backward none. Logits never travel."""
    on_ranks(2, _collectives, maps_of(2)["balanced"])


def test_what_does_not_go_together_is_refused() -> None:
    shard_map = ShardMap.contiguous(5, 1)
    logits, labels = torch.zeros(2, 5), torch.tensor([1, 2])
    with pytest.raises(LabelError, match=r"one column per home slot, got .2, 4. for labels .2."):
        vocab_parallel_cross_entropy(logits[:, :4], labels, shard_map)
    with pytest.raises(LabelError, match=r"got .2, 5. for labels .1."):
        vocab_parallel_cross_entropy(logits, labels[:1], shard_map)
    with pytest.raises(LabelError, match="reduction must be one of mean, sum, none, got 'avg'"):
        vocab_parallel_cross_entropy(logits, labels, shard_map, reduction="avg")  # type: ignore[arg-type]
    with pytest.raises(LabelError, match=r"labels must be integers, got torch\.float32"):
        vocab_parallel_cross_entropy(logits, labels.float(), shard_map)
    with pytest.raises(LabelError, match=r"label_smoothing must be 0 to 1, got 1\.5"):
        vocab_parallel_cross_entropy(logits, labels, shard_map, label_smoothing=1.5)
