"""`linear_cross_entropy` beside its equality with the unsharded loss: edges, gradients on demand, collectives, memory."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from skewtool.errors import LabelError
from skewtool.parallel.collectives import Collective, record_collectives
from skewtool.parallel.head import cross_entropy, linear_cross_entropy, vocab_parallel_cross_entropy
from skewtool.parallel.weights import shard_weight
from skewtool.sharding import ShardMap
from tests.parallel.comparing import assert_equal, backward, drawn, sum_by_id
from tests.parallel.maps import REAL_VOCAB, VOCAB, maps_of

Ranks = Callable[..., None]

WIDTH = 5

TOKENS: tuple[Any, ...] = ("replicated", "partitioned")
REDUCTIONS: tuple[Any, ...] = ("mean", "sum", "none")


def _tensors(shard_map: ShardMap, rank: int, tokens: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Hidden states and this rank's weight, with gradients."""
    weight = shard_weight(drawn(VOCAB, WIDTH, seed=1, dtype=dtype), shard_map, rank)
    return drawn(tokens, WIDTH, seed=2, dtype=dtype).requires_grad_(), weight.requires_grad_()


def _nothing_counts(rank: int, world: int, shard_map: ShardMap) -> None:
    for tokens in TOKENS:
        for number in (5, 0):
            for reduction in REDUCTIONS:
                for nan_if_empty in (False, True):
                    hidden, weight = _tensors(shard_map, rank, number)
                    labels = torch.full((number,), -100)
                    loss = linear_cross_entropy(
                        hidden, weight, labels, shard_map, tokens=tokens, reduction=reduction, nan_if_empty=nan_if_empty
                    )
                    what = f"{tokens}, {number} tokens, {reduction}, {nan_if_empty}"
                    assert loss.shape == ((number,) if reduction == "none" else ()), what
                    if nan_if_empty and reduction == "mean":
                        assert loss.isnan(), what
                    else:
                        assert not loss.any(), what
                    backward(loss.sum())
                    assert torch.equal(hidden.grad, torch.zeros_like(hidden)), what  # type: ignore[arg-type]
                    assert torch.equal(weight.grad, torch.zeros_like(weight)), what  # type: ignore[arg-type]


@pytest.mark.parametrize("world", [1, 3])
def test_where_no_label_counts_losses_and_gradients_are_zero(on_ranks: Ranks, world: int) -> None:
    """All ignored, or no tokens at all; NaN on demand, with zero gradients, as torch."""
    on_ranks(world, _nothing_counts, maps_of(world)["contiguous"])


def _home_rows_or_all_slots(rank: int, world: int, shard_map: ShardMap) -> None:
    labels = torch.tensor([[1, 0, 58], [-100, 7, 7]])
    results = []
    for rows in (shard_map.num_slots, shard_map.home_slots):
        hidden, weight = _tensors(shard_map, rank, 6)
        weight = weight.detach()[:rows].clone().requires_grad_()
        before = hidden.detach().clone(), weight.detach().clone()
        loss = linear_cross_entropy(hidden.view(2, 3, WIDTH), weight, labels, shard_map)
        backward(loss)
        assert torch.equal(hidden, before[0]), "hidden states were overwritten"
        assert torch.equal(weight, before[1]), "the weight was overwritten"
        assert weight.grad is not None
        assert not weight.grad[shard_map.home_slots :].any(), "copies are no rows of the head"
        results.append((loss.detach(), hidden.grad, sum_by_id(weight.grad, shard_map)))
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


def test_the_weight_is_home_rows_or_all_slots(on_ranks: Ranks) -> None:
    on_ranks(2, _home_rows_or_all_slots, maps_of(2)["copies"])


def _gradients_on_demand(rank: int, world: int, shard_map: ShardMap) -> None:
    labels = torch.tensor([1, 0, 58, -100, 7])
    for reduction in REDUCTIONS:
        expected: dict[str, Tensor | None] = {}
        for wanted in ({"hidden", "weight", "bias"}, {"hidden"}, {"weight"}, {"bias"}):
            hidden, weight = _tensors(shard_map, rank, 5)
            bias = torch.zeros(shard_map.home_slots, dtype=torch.float64)
            given = {"hidden": hidden, "weight": weight, "bias": bias}
            for name, tensor in given.items():
                tensor.requires_grad_(name in wanted)
            with record_collectives() as calls:
                loss = linear_cross_entropy(hidden, weight, labels, shard_map, bias=bias, reduction=reduction)
                backward(loss.sum())
            expected = expected or {name: tensor.grad for name, tensor in given.items()}
            for name, tensor in given.items():
                if name in wanted:
                    assert_equal(tensor.grad, expected[name], name)
                else:
                    assert tensor.grad is None
            assert any(call.what == "gradients" for call in calls) == ("hidden" in wanted)
        with torch.no_grad(), record_collectives() as calls:
            assert_equal(linear_cross_entropy(hidden, weight, labels, shard_map, reduction=reduction), loss.detach(), "loss")
        assert [call.kind for call in calls] == ["all_gather", "all_reduce", "all_reduce"]


def test_gradients_are_made_where_they_are_wanted(on_ranks: Ranks) -> None:
    on_ranks(2, _gradients_on_demand, maps_of(2)["balanced"])


def test_backward_goes_once_unless_there_is_a_loss_per_token() -> None:
    shard_map = ShardMap.contiguous(VOCAB, 1)
    hidden, weight = _tensors(shard_map, 0, 4)
    labels = torch.tensor([1, 2, 3, 4])
    loss = linear_cross_entropy(hidden, weight, labels, shard_map)
    backward(loss, retain_graph=True)
    with pytest.raises(RuntimeError, match='backward once; with reduction="none" it can again'):
        backward(loss)
    hidden, weight = _tensors(shard_map, 0, 4)
    losses = linear_cross_entropy(hidden, weight, labels, shard_map, reduction="none")
    backward(losses.sum(), retain_graph=True)
    assert hidden.grad is not None
    once = hidden.grad.clone()
    backward(losses.sum())
    assert_equal(hidden.grad, 2 * once, "gradient after two passes")


def _dtypes(rank: int, world: int, shard_map: ShardMap) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for tokens in TOKENS:
            hidden, weight = _tensors(shard_map, rank, 5, dtype)
            loss = linear_cross_entropy(hidden, weight, torch.tensor([1, 0, 58, -100, 7]), shard_map, tokens=tokens)
            backward(loss)
            assert hidden.grad is not None
            assert weight.grad is not None
            assert (loss.dtype, hidden.grad.dtype, weight.grad.dtype) == (torch.float32, dtype, dtype)


def test_losses_are_float32_and_gradients_as_their_tensors(on_ranks: Ranks) -> None:
    on_ranks(2, _dtypes, maps_of(2)["balanced"])


def _told(calls: list[Collective]) -> list[tuple[str, str, int]]:
    return [(call.kind, call.what, call.payload_bytes) for call in calls]


def _collectives(rank: int, world: int, shard_map: ShardMap) -> None:
    """8 tokens in chunks of 4, of which each rank has 5 and 3 where they are partitioned."""
    labels = torch.tensor([1, 0, 58, -100, 7, 7, 30, 2])
    dtype, row = torch.bfloat16, WIDTH * 2
    for smoothing, sums in ((0.0, 2), (0.1, 3)):
        chunk = [("all_reduce", "statistics", 4 * 4), ("all_reduce", "statistics", sums * 4 * 4)]
        of_hidden = [("all_reduce", "gradients", 4 * WIDTH * 4)]
        checked = [("all_gather", "counts", 16)]
        for reduction, forward, back in (
            ("mean", checked + 2 * (chunk + of_hidden), []),
            ("none", checked + 2 * chunk, 2 * (chunk + of_hidden)),
        ):
            hidden, weight = _tensors(shard_map, rank, 8, dtype)
            options: dict[str, Any] = {"reduction": reduction, "label_smoothing": smoothing, "tokens_per_chunk": 4}
            with record_collectives() as calls:
                loss = linear_cross_entropy(hidden, weight, labels, shard_map, **options)
            assert _told(calls) == forward
            with record_collectives() as calls:
                backward(loss.sum())
            assert _told(calls) == back

        own = slice(0, 5) if rank == 0 else slice(5, 8)
        sizes = (2, 2, 1)  # of each rank's tokens, 5 at most
        counted = [("all_gather", "counts", 16), ("all_gather", "counts", 8), ("all_gather", "labels", 5 * 8)]
        softmax = [
            [
                ("all_gather", "hidden", size * row),
                ("all_reduce", "statistics", 2 * size * 4),
                ("all_reduce", "statistics", sums * 2 * size * 4),
            ]
            for size in sizes
        ]
        with_gradients = [
            [*each, ("reduce_scatter", "gradients", 2 * size * WIDTH * 4)] for each, size in zip(softmax, sizes, strict=True)
        ]
        for reduction, forward, back in (
            ("mean", counted + [each for part in with_gradients for each in part], []),
            (
                "none",
                counted + [each for part in softmax for each in part],
                [("all_gather", "gradients", 5 * 4), *(each for part in with_gradients for each in part)],
            ),
        ):
            hidden, weight = _tensors(shard_map, rank, 8, dtype)
            part = hidden.detach()[own].clone().requires_grad_()
            options = {"reduction": reduction, "label_smoothing": smoothing, "tokens_per_chunk": 4}
            with record_collectives() as calls:
                loss = linear_cross_entropy(part, weight, labels[own], shard_map, tokens="partitioned", **options)
            assert _told(calls) == forward
            with record_collectives() as calls:
                backward(loss.sum())
            assert _told(calls) == back


def test_kind_number_and_bytes_of_collectives_are_those_promised(on_ranks: Ranks) -> None:
    on_ranks(2, _collectives, maps_of(2)["balanced"])


class _LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Remembers the number of elements of the largest tensor that any operator made, views left out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        given = {each.untyped_storage().data_ptr() for each in args if isinstance(each, Tensor)}
        for each in result if isinstance(result, tuple | list) else [result]:
            if isinstance(each, Tensor) and each.untyped_storage().data_ptr() not in given:
                self.elements = max(self.elements, each.numel())
        return result


def _largest_tensor(rank: int, world: int, shard_map: ShardMap) -> None:
    number, chunk, own = 80, 10, slice(40 * rank, 40 * rank + 40)
    limit = max(chunk * shard_map.home_slots, shard_map.num_slots * WIDTH, number * WIDTH)
    assert 40 * shard_map.home_slots > 2 * limit, "logits of all tokens, or of one rank's, would be seen"
    labels = torch.arange(number) % REAL_VOCAB
    everything: dict[str, Any] = {"label_smoothing": 0.1, "z_loss": 0.1, "soft_cap": 3.0, "temperature": 2.0}
    for dtype, options, reduction, tokens in itertools.product(
        (torch.float32, torch.bfloat16), ({}, everything), REDUCTIONS[1:], TOKENS
    ):
        part = slice(None) if tokens == "replicated" else own
        hidden, weight = _tensors(shard_map, rank, number, dtype)
        hidden = hidden.detach()[part].clone().requires_grad_()
        with _LargestTensor() as largest:
            loss = linear_cross_entropy(
                hidden,
                weight,
                labels[part],
                shard_map,
                tokens=tokens,
                reduction=reduction,
                tokens_per_chunk=chunk,
                **options,
            )
            backward(loss.sum())
        assert 0 < largest.elements <= limit, (largest.elements, dtype, options, reduction, tokens)


def test_there_is_never_a_buffer_of_all_logits(on_ranks: Ranks) -> None:
    """Nothing larger than a chunk of logits, hidden states, or the weight; forward and backward."""
    on_ranks(2, _largest_tensor, ShardMap.contiguous(VOCAB, 2))


def test_the_loss_of_logits_makes_no_second_copy_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing in forward, and in backward the result, in the dtype of the logits, and blocks beside it."""
    monkeypatch.setattr(cross_entropy, "_BLOCK_ELEMENTS", 4 * VOCAB)
    logits = drawn(100, VOCAB, seed=1, dtype=torch.bfloat16).requires_grad_()
    with _LargestTensor() as largest:
        loss = vocab_parallel_cross_entropy(logits, torch.arange(100) % VOCAB, ShardMap.contiguous(VOCAB, 1), z_loss=0.1)
    assert largest.elements == 4 * VOCAB
    with _LargestTensor() as largest:
        backward(loss)
    assert largest.elements == 100 * VOCAB
    assert_equal(loss.detach(), _reference(logits.detach()), "loss in blocks", 1e-5)


def _reference(logits: Tensor) -> Tensor:
    z_loss = 0.1 * torch.logsumexp(logits.float(), 1).square().mean()
    return F.cross_entropy(logits.float(), torch.arange(100) % VOCAB) + z_loss


def test_what_does_not_go_together_is_refused() -> None:
    shard_map = ShardMap.contiguous(VOCAB, 1)
    hidden, weight = _tensors(shard_map, 0, 2)
    labels = torch.tensor([1, 2])
    with pytest.raises(LabelError, match=r"61 or 61 rows, .*got weight .60, 5., hidden .2, 5., labels .2."):
        linear_cross_entropy(hidden, weight[:60], labels, shard_map)
    with pytest.raises(LabelError, match=r"labels .1."):
        linear_cross_entropy(hidden, weight, labels[:1], shard_map)
    with pytest.raises(LabelError, match='tokens must be "replicated" or "partitioned", got \'all\''):
        linear_cross_entropy(hidden, weight, labels, shard_map, tokens="all")  # type: ignore[arg-type]
    with pytest.raises(LabelError, match="soft_cap must be above 0, got 0"):
        linear_cross_entropy(hidden, weight, labels, shard_map, soft_cap=0.0)
    with pytest.raises(LabelError, match="temperature must be above 0, got 0"):
        linear_cross_entropy(hidden, weight, labels, shard_map, temperature=0.0)
