"""Rows read from a weight: `index_select` with gradients that 16-bit sums do not spoil."""

import torch
import torch.nn.functional as F

from skewtool.parallel.routing.rows import read_rows
from tests.parallel.comparing import assert_equal, backward, drawn


def test_it_is_index_select() -> None:
    places = torch.tensor([4, 0, 4, 2])
    ours, theirs = (drawn(6, 3, seed=1).requires_grad_() for _ in range(2))
    upstream = drawn(4, 3, seed=2)
    rows = read_rows(ours, places)
    assert torch.equal(rows, theirs.index_select(0, places))
    backward(rows, upstream)
    backward(theirs.index_select(0, places), upstream)
    assert_equal(ours.grad, theirs.grad, "gradient")


def test_gradients_of_a_hot_row_are_added_up_in_float32() -> None:
    """A row read 5,000 times, the gradient of each reading one: `F.embedding` stops at 256, where 256 + 1 is 256 in bf16."""
    places = torch.zeros(5000, dtype=torch.int64)
    ours, theirs = (torch.zeros(2, 1, dtype=torch.bfloat16, requires_grad=True) for _ in range(2))
    backward(read_rows(ours, places).sum())
    backward(F.embedding(places, theirs).sum())
    assert ours.grad is not None
    assert theirs.grad is not None
    assert ours.grad.flatten().tolist() == [4992.0, 0.0]  # the bf16 nearest to 5,000
    assert theirs.grad[0] <= 4992
