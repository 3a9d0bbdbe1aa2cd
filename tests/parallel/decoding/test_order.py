"""Keys order floats as torch does, and give them back."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from skewtool.parallel.decoding.order import LOWEST, key_bits, keys_of, values_of

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", DTYPES)
def test_from_minus_infinity_to_nan(dtype: torch.dtype) -> None:
    least = torch.finfo(dtype).smallest_normal
    ordered = [-INF, torch.finfo(dtype).min, -1.5, -1.0, -least, 0.0, least, 1.0, 1.5, torch.finfo(dtype).max, INF, NAN]
    keys = keys_of(torch.tensor(ordered, dtype=dtype))
    assert (keys.diff() > 0).all()
    assert keys[0] > LOWEST
    assert max(abs(key) for key in keys.tolist()) < 2 ** (key_bits(dtype) - 1)
    assert torch.equal(values_of(keys, dtype).nan_to_num(9), torch.tensor(ordered, dtype=dtype).nan_to_num(9))


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_are_equal_and_so_are_all_nan(dtype: torch.dtype) -> None:
    zeros = torch.tensor([0.0, -0.0], dtype=dtype)
    nans = torch.tensor([NAN, -NAN, INF], dtype=dtype)
    nans[2] -= INF
    assert keys_of(zeros).tolist() == [0, 0]
    assert len(set(keys_of(nans).tolist())) == 1
    assert values_of(keys_of(nans), dtype).isnan().all()


@given(st.lists(st.floats(width=32), min_size=1, max_size=20), st.sampled_from(DTYPES))
def test_keys_sort_as_values_do(numbers: list[float], dtype: torch.dtype) -> None:
    values = torch.tensor(numbers, dtype=torch.float64).to(dtype)
    before = values.clone()
    expected = values.sort(stable=True).indices
    assert torch.equal(keys_of(values).sort(stable=True).indices, expected)
    assert torch.equal(values.isnan(), before.isnan())
    assert torch.equal(values.nan_to_num(), before.nan_to_num())
