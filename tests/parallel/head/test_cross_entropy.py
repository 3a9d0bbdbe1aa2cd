"""`vocab_parallel_cross_entropy` where others went wrong: smoothing, extreme logits, padding, NaN."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from skewtool.errors import LabelError
from skewtool.parallel.collectives import record_collectives
from skewtool.parallel.head import VocabParallelLMHead, linear_cross_entropy, vocab_parallel_cross_entropy
from skewtool.parallel.home_rows import home_rows_of
from skewtool.parallel.weights import shard_weight
from skewtool.sharding import ShardMap
from tests.parallel.comparing import assert_equal, backward, drawn
from tests.parallel.head.own_columns import check, own_columns
from tests.parallel.maps import REAL_VOCAB, VOCAB, maps_of

Ranks = Callable[..., None]


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
                check(logits, labels, shard_map, what, 1e-10 * factor, label_smoothing=smoothing)
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
        check(logits, ends, shard_map, f"first and last class of each shard, {name}", reduction="none")
        for winner in (shard[0] for shard in classes):  # the largest logit on each shard in turn
            peaked = logits.clone()
            peaked[:, winner] = 50.0
            check(peaked, ends, shard_map, f"the largest logit at {winner}, {name}", reduction="none")


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
        own = own_columns(logits[:, :rows], shard_map)
        losses.append(vocab_parallel_cross_entropy(own, labels, shard_map, reduction="none").detach())
    for loss in losses:
        assert_equal(loss, losses[0], "loss", 1e-14)


def test_the_amount_of_padding_changes_nothing(on_ranks: Ranks) -> None:
    on_ranks(3, _amount_of_padding)


def _not_overwritten(rank: int, world: int, shard_map: ShardMap) -> None:
    labels = torch.tensor([1, 2, -100, 58])
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        own = own_columns(drawn(4, VOCAB, seed=6, dtype=dtype), shard_map, padding=7.0)
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
            own = own_columns(logits, shard_map)
            losses = vocab_parallel_cross_entropy(own, torch.tensor([5, 6, 7]), shard_map, reduction="none")
            assert losses.isnan().tolist() == [False, True, False], (token, value)
    logits = drawn(3, VOCAB, seed=7)
    logits[1] = -torch.inf
    losses = vocab_parallel_cross_entropy(
        own_columns(logits, shard_map), torch.tensor([5, 6, 7]), shard_map, reduction="none"
    )
    assert losses.isnan().tolist() == [False, True, False]
    banned = drawn(3, VOCAB, seed=7)  # a whole shard banned is no error
    banned[:, shard_map.token_at[0, : shard_map.home_slots]] = -torch.inf
    check(banned, torch.tensor([58, 57, 58]), shard_map, "a shard all -inf", reduction="none")
    assert shard_map.shard_of[58] != 0


@pytest.mark.parametrize("world", [2, 3])
def test_what_is_not_finite_on_one_rank_is_known_to_all(on_ranks: Ranks, world: int) -> None:
    """A maximum over ranks may lose a NaN; the loss must not. As torch: NaN for a token with NaN, an infinite logit, or
    no finite one."""
    on_ranks(world, _not_finite, maps_of(world)["contiguous"])


def _of_any_shape(rank: int, world: int, shard_map: ShardMap) -> None:
    logits, labels = drawn(2, 3, VOCAB, seed=8), torch.tensor([[1, 2, -100], [58, 0, 4]])
    expected = F.cross_entropy(logits[..., :REAL_VOCAB].flatten(0, 1), labels.flatten(), reduction="none").view(2, 3)
    own = own_columns(logits, shard_map)
    for each in (labels, labels.int(), labels.t().contiguous().t()):
        loss = vocab_parallel_cross_entropy(own, each, shard_map, reduction="none")
        assert_equal(loss.detach(), expected, "losses")
    one = vocab_parallel_cross_entropy(own[0, 0], labels[0, 0], shard_map)
    assert_equal(one.detach(), expected[0, 0], "a single token")


def test_tokens_may_have_any_shape(on_ranks: Ranks) -> None:
    on_ranks(2, _of_any_shape, maps_of(2)["balanced"])


def _collectives(rank: int, world: int, shard_map: ShardMap) -> None:
    own = own_columns(drawn(5, VOCAB, seed=9, dtype=torch.bfloat16), shard_map)
    labels = torch.tensor([1, 2, -100, 58, 0])
    for options, sums in (({}, 2), ({"label_smoothing": 0.1, "z_loss": 0.1}, 3)):
        for checks, first in ((True, [("all_gather", "counts", 16)]), (False, [])):
            with record_collectives() as calls:
                backward(vocab_parallel_cross_entropy(own, labels, shard_map, check_labels=checks, **options))  # type: ignore[arg-type]
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
