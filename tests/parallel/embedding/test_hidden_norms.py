"""Norms and a linear layer over hidden shards equal the unsharded ones: values and every gradient."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from skewtool.parallel.collectives import record_collectives
from skewtool.parallel.embedding import (
    HiddenParallelEmbedding,
    HiddenShardedLayerNorm,
    HiddenShardedRMSNorm,
    RowParallelLinear,
)
from skewtool.parallel.hidden_columns import columns_of
from skewtool.parallel.weights import grad_norm
from tests.parallel.comparing import assert_equal, backward, drawn, rms

Ranks = Callable[..., None]


def _of_rank(whole: Tensor, rank: int, world: int) -> Tensor:
    columns = columns_of(whole.size(-1), world, rank)
    return whole[..., columns.start : columns.stop]


def _compare(layer: nn.Module, states: Tensor, expected: Callable[..., Tensor], parts: list[Tensor], upstream: Tensor,
             own: Callable[[Tensor], Tensor], out: Callable[[Tensor], Tensor]) -> None:  # fmt: skip
    """`layer`, with parameters `parts` by rank, and `expected(states, *parts)`. `own` and `out` cut what a rank has."""
    whole = [each.clone().requires_grad_() for each in (states, *parts)]
    result = expected(*whole)
    backward(result, upstream)
    for parameter, part in zip(layer.parameters(), parts, strict=True):
        parameter.data.copy_(own(part) if parameter.shape != part.shape else part)
    mine = own(states).clone().requires_grad_()
    found = layer(mine)
    backward(found, out(upstream))
    assert_equal(found.detach(), out(result.detach()), f"values of {layer}")
    for mine_too, each in zip((mine, *layer.parameters()), whole, strict=True):
        assert each.grad is not None
        gradient = own(each.grad) if mine_too.shape != each.shape else each.grad
        assert_equal(mine_too.grad, gradient, f"gradient of {list(each.shape)} in {layer}")


def _equal_the_unsharded(rank: int, world: int) -> None:
    def own(whole: Tensor) -> Tensor:
        return _of_rank(whole, rank, world)

    def same(whole: Tensor) -> Tensor:
        return whole

    for hidden in (7, 2):  # 2 columns for 3 ranks: one has none
        states, upstream = drawn(2, 5, hidden, seed=1) + 3, drawn(2, 5, hidden, seed=2)
        scale, shift = drawn(hidden, seed=3), drawn(hidden, seed=4)
        for eps in (1e-3, None):
            rms_norm = HiddenShardedRMSNorm(hidden, eps=eps, dtype=torch.float64)
            _compare(rms_norm, states, lambda x, w, e=eps: F.rms_norm(x, x.shape[-1:], w, e), [scale], upstream, own, own)
        layer_norm = HiddenShardedLayerNorm(hidden, dtype=torch.float64)
        _compare(layer_norm, states, lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), [scale, shift], upstream, own, own)
        plain = HiddenShardedLayerNorm(hidden, eps=0.1, bias=False, dtype=torch.float64)
        _compare(plain, states, lambda x, w: F.layer_norm(x, x.shape[-1:], w, eps=0.1), [scale], upstream, own, own)
        linear = RowParallelLinear(hidden, 4, dtype=torch.float64)
        parts = [drawn(4, hidden, seed=5), drawn(4, seed=6)]
        _compare(linear, states, F.linear, parts, drawn(2, 5, 4, seed=7), own, same)
        linear = RowParallelLinear(hidden, 4, bias=False, dtype=torch.float64)
        _compare(linear, states, F.linear, parts[:1], drawn(2, 5, 4, seed=7), own, same)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_they_equal_the_unsharded(on_ranks: Ranks, world: int) -> None:
    on_ranks(world, _equal_the_unsharded)


def _no_worse_in_fewer_bits(rank: int, world: int) -> None:
    hidden = 301
    for dtype, mean in ((torch.float32, 1e4), (torch.bfloat16, 30.0)):
        states = (drawn(64, hidden, seed=1) + mean).to(dtype)
        exact = F.layer_norm(states.double(), (hidden,))
        theirs = F.layer_norm(states, (hidden,))
        ours = HiddenShardedLayerNorm(hidden, dtype=dtype)(_of_rank(states, rank, world))
        assert ours.dtype == dtype
        assert rms(ours - _of_rank(exact, rank, world)) <= rms(_of_rank(theirs - exact, rank, world)), dtype
    states = drawn(64, hidden, seed=1, dtype=torch.bfloat16)
    exact, theirs = (F.rms_norm(each, (hidden,), eps=1e-6) for each in (states.double(), states))
    ours = HiddenShardedRMSNorm(hidden, eps=1e-6, dtype=torch.bfloat16)(_of_rank(states, rank, world))
    assert rms(ours - _of_rank(exact, rank, world)) <= rms(_of_rank(theirs - exact, rank, world))


def test_in_fewer_bits_they_are_as_exact_as_the_unsharded(on_ranks: Ranks) -> None:
    """A mean of 10,000 with a deviation of 1, of which a difference of float32 squares leaves nothing."""
    on_ranks(2, _no_worse_in_fewer_bits)


def _into_the_first_block(rank: int, world: int) -> None:
    vocab, hidden, tokens = 11, 7, 6
    table, weight, upstream = drawn(vocab, hidden, seed=1), drawn(3, hidden, seed=2), drawn(tokens, 3, seed=3)
    ids = torch.tensor([10, 3, 3, 0, 7, 3])
    whole = [each.requires_grad_() for each in (table.clone(), torch.ones(hidden).double(), weight.clone())]
    expected = F.linear(F.rms_norm(F.embedding(ids, whole[0]), (hidden,), whole[1]), whole[2])
    backward(expected, upstream)
    embedding = HiddenParallelEmbedding(vocab, hidden, dtype=torch.float64)
    embedding.load_table(table)
    norm = HiddenShardedRMSNorm(hidden, dtype=torch.float64)
    linear = RowParallelLinear(hidden, 3, bias=False, dtype=torch.float64)
    linear.weight.data.copy_(_of_rank(weight, rank, world))
    with record_collectives() as calls:
        output = linear(norm(embedding(ids)))
        backward(output, upstream)
    assert_equal(output.detach(), expected.detach(), "output")
    for module, each in zip((embedding, norm, linear), whole, strict=True):
        assert each.grad is not None
        (parameter,) = module.parameters()
        assert_equal(parameter.grad, _of_rank(each.grad, rank, world), f"gradient of {module}")
    assert [(call.kind, call.what, call.payload_bytes) for call in calls] == [
        ("all_reduce", "statistics", tokens * 8),
        ("all_reduce", "partial sums", tokens * 3 * 8),
        ("all_reduce", "statistics", tokens * 8),
    ]
    norms = [torch.linalg.vector_norm(each.grad) for each in whole if each.grad is not None]
    assert_equal(grad_norm(nn.ModuleList([embedding, norm, linear])), torch.stack(norms).norm(), "norm of all gradients")


def test_hidden_shards_stay_distributed_into_the_first_block(on_ranks: Ranks) -> None:
    """Embedding, norm, linear layer: two small all_reduces forward, one in backward, and no more."""
    on_ranks(3, _into_the_first_block)
