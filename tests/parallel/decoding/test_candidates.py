"""The best of the union of the shards' best are the best of all; the order is total, and ids are never rounded."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from skewtool.parallel.decoding.candidates import Candidates, best, most
from skewtool.parallel.decoding.order import LOWEST, keys_of, values_of

INF, NAN = float("inf"), float("nan")
VALUES = st.sampled_from([-INF, -1.0, -0.0, 0.0, 1.0, 2.0, INF, NAN])


@st.composite
def _rows_on_shards(draw: st.DrawFn) -> tuple[Tensor, list[Tensor], int]:
    """Values [2, V] full of ties, the ascending ids of each of some shards, k."""
    classes = draw(st.integers(1, 12))
    values = torch.tensor(draw(st.lists(st.lists(VALUES, min_size=classes, max_size=classes), min_size=2, max_size=2)))
    shard_of = torch.tensor(draw(st.lists(st.integers(0, 3), min_size=classes, max_size=classes)))
    return values, [(shard_of == shard).nonzero().squeeze(1) for shard in range(4)], draw(st.integers(1, classes))


@given(_rows_on_shards())
def test_the_best_of_each_shard_merge_to_the_best(case: tuple[Tensor, list[Tensor], int]) -> None:
    values, shards, k = case
    expected = values.sort(dim=1, descending=True, stable=True)
    merged = Candidates.joined([most(values[:, ids], ids, k) for ids in shards], dim=1).first(k)
    assert torch.equal(merged.ids, expected.indices[:, :k])
    assert torch.equal(values_of(merged.keys, values.dtype).nan_to_num(9.0), expected.values[:, :k].nan_to_num(9.0))
    winner = Candidates.joined([best(values[:, ids], ids) for ids in shards], dim=1).first(1)
    assert winner.ids.squeeze(1).tolist() == values.argmax(1).tolist()


@pytest.mark.parametrize("reverse", [False, True])
def test_ids_beyond_what_float32_holds(reverse: bool) -> None:
    """2^24 and 2^24 + 1 are one number in float32, 2^31 - 2 and 2^31 - 1 as well."""
    ids = torch.tensor([[2**31 - 1, 2**24 + 1, 2**31 - 2, 2**24, 2**24 + 2]])
    values = torch.tensor([[1.0, 0.5, 1.0, 0.5, 0.5]])
    if reverse:
        ids, values = ids.flip(1), values.flip(1)
    assert Candidates(keys_of(values), ids).first(5).ids.tolist() == [[2**31 - 2, 2**31 - 1, 2**24, 2**24 + 1, 2**24 + 2]]


def test_float64_values_are_not_rounded() -> None:
    values = torch.tensor([[1.0, 1.0 + 2.0**-52, 1.0]], dtype=torch.float64)
    merged = Candidates(keys_of(values), torch.tensor([[3, 9, 1]])).first(3)
    assert merged.ids.tolist() == [[9, 1, 3]]
    assert values_of(merged.keys, torch.float64).tolist() == [[1.0 + 2.0**-52, 1.0, 1.0]]


def test_a_shard_without_classes_has_no_candidate() -> None:
    nothing, ids = torch.empty(3, 0), torch.empty(0, dtype=torch.int64)
    for found in (best(nothing, ids), most(nothing, ids, 2)):
        assert (found.keys == LOWEST).all()
        assert (found.ids == -1).all()
    real = best(torch.full((3, 1), -INF), torch.tensor([5]))
    assert Candidates.joined([best(nothing, ids), real], dim=1).first(1).ids.tolist() == [[5], [5], [5]]
