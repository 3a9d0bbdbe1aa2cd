"""Products of 16-bit operands whose results are not rounded to 16 bits."""

import pytest
import torch
import torch.nn.functional as F

from skewtool.parallel import wide_product as module
from skewtool.parallel.wide_product import linear_of_wide, wide_linear, wide_product
from tests.parallel.comparing import assert_equal, backward, drawn


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_products_are_in_at_least_float32(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BLOCK_COLUMNS", 4)
    left, right = drawn(3, 5, seed=1, dtype=dtype), drawn(5, 11, seed=2, dtype=dtype)
    product = wide_product(left, right)
    assert product.dtype == torch.promote_types(dtype, torch.float32)
    assert_equal(product.double(), left.double() @ right.double(), "product", 1e-5)


@pytest.mark.parametrize("shape", [(2, 3, 5), (4, 5), (5,), (0, 5), (4, 0)])
def test_linear_layers_of_any_shape(shape: tuple[int, ...]) -> None:
    upstream = drawn(*shape[:-1], 6, seed=4)
    for linear in (wide_linear, lambda rows, weight: linear_of_wide(rows, weight, None, rows.dtype)):
        ours, theirs = ([drawn(*shape, seed=1).requires_grad_(), drawn(6, shape[-1], seed=2).requires_grad_()] for _ in "ab")
        found, expected = linear(*ours), F.linear(*theirs)
        backward(found, upstream)
        backward(expected, upstream)
        assert_equal(found.detach(), expected.detach(), "product")
        for one, other in zip(ours, theirs, strict=True):
            assert_equal(one.grad, other.grad, "gradient")


def test_what_is_summed_further_is_not_rounded_before() -> None:
    """300 times 1 and 1/2: bf16 has no 300.5, float32 has."""
    rows, weight = torch.tensor([[300.0, 0.5]]).bfloat16(), torch.tensor([[1.0, 1.0]]).bfloat16()
    assert wide_linear(rows, weight).item() == 300.5
    wide = torch.tensor([[1.0]], requires_grad=True)  # its gradient: 300 times 1, and once 1/2
    backward(linear_of_wide(wide, torch.ones(2, 1).bfloat16(), None, torch.bfloat16), rows)
    assert wide.grad is not None
    assert wide.grad.item() == 300.5


def test_a_linear_layer_in_16_bits_has_logits_in_16_bits() -> None:
    weight, bias = drawn(6, 5, seed=2, dtype=torch.bfloat16), drawn(6, seed=3, dtype=torch.bfloat16)
    rows = drawn(3, 5, seed=1, dtype=torch.bfloat16)
    assert torch.equal(linear_of_wide(rows.float(), weight, bias, torch.bfloat16), F.linear(rows, weight, bias))
