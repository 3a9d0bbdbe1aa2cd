"""Cross-entropy over a vocabulary whose logits lie on two ranks, from the beginning.

Five classes: three on rank 0, two on rank 1, and beside them a padded row on rank 1, so that both have three columns. For
a token with logits z and target y the loss is

    loss = log(sum over all classes c of exp(z_c)) - z_y

No rank has all of z. But the sum over all classes is the sum of the two ranks' sums, and exactly one rank has z_y. So

    m      = the larger of the ranks' maxima               all_reduce MAX, so that no exponential overflows
    total  = sum over ranks of sum exp(z_c - m)            all_reduce SUM. Every rank adds its classes, owner of y or not
    target = z_y - m from the rank that has y, else 0      all_reduce SUM
    loss   = log(total) - target

and the gradient of each rank's own logits needs nothing more: p_c - [c = y], with p_c = exp(z_c - m) / total.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from skewtool.parallel.head import vocab_parallel_cross_entropy
from skewtool.sharding import ShardMap
from tests.parallel.comparing import backward

Ranks = Callable[..., None]

SHARD_MAP = ShardMap(np.array([[0, 1, 2], [3, 4, 5]]), home_slots=3, vocab_size=6, real_vocab=5)
"""Rank 0 has ids 0, 1, 2 in its columns 0, 1, 2; rank 1 has 3, 4, and 5, which is padding: a row, but no class."""

LOGITS = torch.tensor(
    [
        [2.0, -1.0, 0.5, 1.0, 0.0, 9.0],
        [0.0, 3.0, -2.0, 0.5, 1.5, 9.0],
        [-1.0, 0.0, 1.0, 4.0, 2.0, 9.0],
        [0.3, 0.1, -0.4, 0.2, -5.0, 9.0],
    ],
    dtype=torch.float64,
)
"""Of four tokens, by id. The padded row would win by far if anyone counted it."""

IGNORED = -100

TARGETS = {
    "rank 0 has every target": [0, 1, 2, 0],
    "rank 1 has every target": [3, 4, 3, 4],
    "each rank has two": [0, 4, 2, 3],
    "the largest logit is on the other rank": [4, 3, 0, 4],  # the largest: ids 0, 1, 3, 0
    "the third token is ignored": [0, 4, IGNORED, 3],
}


def _unsharded(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of each token by torch, and the gradient of the logits of the five classes."""
    logits = LOGITS[:, :5].clone().requires_grad_()
    losses = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="none")
    backward(losses.sum())
    assert logits.grad is not None
    return losses.detach(), logits.grad


@pytest.mark.parametrize("which", TARGETS)
def test_the_formula_is_cross_entropy(which: str) -> None:
    """One token after the other, in numbers that a person can follow, with both ranks' parts in one process."""
    labels = TARGETS[which]
    expected_losses, expected_gradient = _unsharded(torch.tensor(labels))
    for token, label in enumerate(labels):
        shards = [LOGITS[token, 0:3].tolist(), LOGITS[token, 3:5].tolist()]  # the padded row is left out
        m = max(max(shard) for shard in shards)
        total = sum(sum(math.exp(z - m) for z in shard) for shard in shards)
        if label == IGNORED:
            loss, gradient = 0.0, [0.0] * 5
        else:
            owner, column = divmod(label, 3)
            loss = math.log(total) - (shards[owner][column] - m)
            probabilities = [math.exp(z - m) / total for shard in shards for z in shard]
            gradient = [p - (c == label) for c, p in enumerate(probabilities)]
        assert loss == pytest.approx(expected_losses[token].item(), abs=1e-12)
        assert gradient == pytest.approx(expected_gradient[token].tolist(), abs=1e-12)


def _on_two_ranks(rank: int, world: int) -> None:
    for which, labels in TARGETS.items():
        expected_losses, expected_gradient = _unsharded(torch.tensor(labels))
        mine = LOGITS[:, 3 * rank : 3 * rank + 3].clone().requires_grad_()  # three columns: this rank's, padding included
        losses = vocab_parallel_cross_entropy(mine, torch.tensor(labels), SHARD_MAP, reduction="none")
        backward(losses.sum())
        assert mine.grad is not None

        # Both ranks have the loss of every token, whoever has its target.
        torch.testing.assert_close(losses.detach(), expected_losses, rtol=0, atol=1e-12)

        # Each has the gradient of its own logits; the padded row has none, for it is no class.
        classes = [[0, 1, 2], [3, 4]][rank]
        torch.testing.assert_close(mine.grad[:, : len(classes)], expected_gradient[:, classes], rtol=0, atol=1e-12)
        assert not mine.grad[:, len(classes) :].any(), which

        # An ignored token counts nothing, whatever its logits.
        ignored = torch.tensor(labels) == IGNORED
        assert not losses[ignored].any()
        assert not mine.grad[ignored].any()

        # The mean is over the tokens that count, not over all four.
        mean = vocab_parallel_cross_entropy(mine, torch.tensor(labels), SHARD_MAP)
        torch.testing.assert_close(mean.detach(), expected_losses.sum() / (4 - ignored.sum()), rtol=0, atol=1e-12)


def test_two_ranks_compute_it(on_ranks: Ranks) -> None:
    on_ranks(2, _on_two_ranks)


def test_local_softmax_would_be_wrong() -> None:
    """What does not work: each rank the cross-entropy of its own classes, for the targets it has."""
    for labels in TARGETS.values():
        losses, gradient = _unsharded(torch.tensor(labels))
        for token, label in enumerate(labels):
            if label == IGNORED:
                continue
            owner, column = divmod(label, 3)
            own = LOGITS[token, 3 * owner : [3, 5][owner]].clone().requires_grad_()
            local = F.cross_entropy(own, torch.tensor(column))
            backward(local)
            assert own.grad is not None
            # The other rank's classes are missing in the sum, so the loss is too small ...
            assert local < losses[token] - 1e-3
            # ... and the gradients of the local classes add up to 0 on each rank, where the true ones do so over both.
            assert own.grad.sum().abs() < 1e-12
            assert gradient[token, 3 * owner : [3, 5][owner]].sum().abs() > 1e-3


def test_counting_the_padded_row_would_be_wrong() -> None:
    losses, _ = _unsharded(torch.tensor(TARGETS["each rank has two"]))
    with_padding = F.cross_entropy(LOGITS, torch.tensor(TARGETS["each rank has two"]), reduction="none")
    assert (with_padding > losses + 4).all()
