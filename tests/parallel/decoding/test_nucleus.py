"""Top-p is the sorted full reference in float64: the same set for random logits, ties, peaks and flat tails."""

import pytest
import torch
from torch import Tensor

from skewtool.parallel.decoding.nucleus import nucleus
from skewtool.parallel.decoding.order import LOWEST, key_bits, keys_of

INF = float("inf")
SHARES = (1e-9, 0.01, 0.1, 0.5, 0.8, 0.9, 0.95, 0.99, 0.999, 0.999999)


def _kept(logits: Tensor, top_p: Tensor, temperature: float = 1.0) -> Tensor:
    """As on one shard: logits [n, V], top_p [n] -> bool [n, V]."""
    keys, ids = keys_of(logits), torch.arange(logits.size(1))
    weights = ((logits.double() - logits.double().amax(1, keepdim=True)) / temperature).exp()
    return nucleus(keys, ids, weights, top_p, key_bits(logits.dtype), lambda sums: sums).keeps(keys, ids)


def _reference(logits: Tensor, top_p: Tensor, temperature: float = 1.0) -> Tensor:
    """Classes before which less than p of the mass lies, in a stable sort."""
    chances, order = (logits.double() / temperature).softmax(1).sort(dim=1, descending=True, stable=True)
    before = torch.cat([torch.zeros(len(logits), 1, dtype=torch.float64), chances.cumsum(1)[:, :-1]], dim=1)
    return torch.zeros_like(logits, dtype=torch.bool).scatter(1, order, before < top_p[:, None])


def _logits(kind: str, generator: torch.Generator) -> Tensor:
    random = torch.randn(len(SHARES), 3000, generator=generator, dtype=torch.float64)
    return {
        "random": random * 3,
        "flat": random * 1e-3,
        "peaked": random * 30,
        "ties": (random * 2).round(),  # thousands of equal values in a dozen groups
        "one peak": random.sort(dim=1).values + torch.arange(3000).eq(1500) * 40.0,
        "mostly -inf": random.masked_fill(torch.rand(random.shape, generator=generator) < 0.99, -INF),
    }[kind]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["random", "flat", "peaked", "ties", "one peak", "mostly -inf"])
def test_it_is_the_sorted_reference(kind: str, dtype: torch.dtype) -> None:
    logits = _logits(kind, torch.Generator().manual_seed(5)).to(dtype)
    top_p = torch.tensor(SHARES, dtype=torch.float64)
    for temperature in (1.0, 0.6, 3.0):
        assert torch.equal(_kept(logits, top_p, temperature), _reference(logits, top_p, temperature))


@pytest.mark.parametrize(("share", "number"), [(0.09, 1), (0.1, 1), (0.3, 3), (0.5, 5), (0.51, 6), (0.9, 9), (0.91, 10)])
def test_equal_classes_are_taken_by_id(share: float, number: int) -> None:
    kept = _kept(torch.zeros(1, 10), torch.tensor([share], dtype=torch.float64))
    assert kept.squeeze(0).tolist() == [True] * number + [False] * (10 - number)


def test_the_most_probable_class_always_stays() -> None:
    logits = torch.tensor([[0.0, 5.0, 5.0], [-INF, -INF, -3.0]])
    assert _kept(logits, torch.full((2,), 1e-300, dtype=torch.float64)).tolist() == [
        [False, True, False],
        [False, False, True],
    ]


def test_classes_left_out_before_have_no_share() -> None:
    keys, weights = keys_of(torch.tensor([[3.0, 2.0, 1.0]])), torch.tensor([[0.0, 1.0, 0.5]], dtype=torch.float64)
    keys[0, 0] = LOWEST
    threshold = nucleus(keys, torch.arange(3), weights, torch.tensor([0.6], dtype=torch.float64), 32, lambda sums: sums)
    assert threshold.keeps(keys, torch.arange(3)).tolist() == [[False, True, False]]


def test_a_large_vocabulary() -> None:
    logits = torch.randn(2, 128_256, generator=torch.Generator().manual_seed(1)) * 2
    top_p = torch.tensor([0.9, 0.999], dtype=torch.float64)
    assert torch.equal(_kept(logits, top_p), _reference(logits, top_p))
