"""Soft-cap and temperature: in place as not in place, and the gradient as autograd has it."""

import itertools

import pytest
import torch

from skewtool.parallel.head.squashing import Squashing
from tests.parallel.comparing import assert_equal, backward, drawn


@pytest.mark.parametrize(("soft_cap", "temperature"), list(itertools.product((None, 2.0), (1.0, 0.7))))
def test_in_place_as_not_in_place(soft_cap: float | None, temperature: float) -> None:
    squashing = Squashing(soft_cap, temperature)
    products = (3 * drawn(4, 5, seed=1)).requires_grad_()
    upstream = drawn(4, 5, seed=2)
    logits = squashing(products)
    backward(logits, upstream)
    found, squashed = squashing.apply_(products.detach().clone())
    assert_equal(found, logits.detach(), "logits")
    assert_equal(squashing.backward_(upstream.clone(), squashed), products.grad, "gradient")
    expected = products if soft_cap is None else soft_cap * torch.tanh(products / soft_cap)
    assert_equal(found, (expected / temperature).detach(), "formula")
