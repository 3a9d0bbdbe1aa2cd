"""Top-k in one process: a stable sort of the real classes."""

import numpy as np
import pytest
import torch

from skewtool.errors import DecodingError
from skewtool.parallel import vocab_parallel_topk
from skewtool.sharding import ShardMap, partition

INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 2, 7, 49, 50, 51, 1000])
def test_it_is_a_stable_sort(k: int, dtype: torch.dtype) -> None:
    """Home ids in no order, 11 padding ids among them, many ties."""
    generator = torch.Generator().manual_seed(k)
    order = torch.randperm(61, generator=generator)
    shard_map = ShardMap(order[None].numpy(), 61, 61, 50)
    by_id = torch.randint(-2, 3, (6, 5, 61), generator=generator).to(dtype)
    by_id[..., 50:] = 100
    by_id[0, 0, :50], by_id[0, 1, 3:9], by_id[0, 2, 7:20] = -INF, NAN, INF
    values, ids = vocab_parallel_topk(by_id[..., order], k, shard_map)
    expected = by_id[..., :50].sort(dim=-1, descending=True, stable=True)
    assert values.dtype == dtype
    assert torch.equal(ids, expected.indices[..., :k])
    assert torch.equal(values.nan_to_num(9), expected.values[..., :k].nan_to_num(9))


def test_classes_of_minus_infinity_come_before_padding() -> None:
    shard_map = partition([3, 2, 1, 0, 0], 1, real_vocab=3)
    values, ids = vocab_parallel_topk(torch.tensor([-INF, 1.0, -INF, 0.0, 100.0]), 5, shard_map)
    assert ids.tolist() == [1, 0, 2]
    assert values.tolist() == [1.0, -INF, -INF]


def test_no_rows_and_one_class() -> None:
    values, ids = vocab_parallel_topk(torch.empty(2, 0, 4), 3, partition([1, 1, 1, 1], 1))
    assert values.shape == ids.shape == (2, 0, 3)
    assert vocab_parallel_topk(torch.tensor([[-INF]]), 9, partition([1], 1))[1].tolist() == [[0]]


def test_more_rows_than_a_block() -> None:
    logits = torch.randint(0, 9, (45_000, 100), generator=torch.Generator().manual_seed(1)).half()
    values, ids = vocab_parallel_topk(logits, 3, partition(np.ones(100, int), 1))
    expected = logits.sort(dim=1, descending=True, stable=True)
    assert torch.equal(ids, expected.indices[:, :3])
    assert torch.equal(values, expected.values[:, :3])


@pytest.mark.parametrize("k", [0, -1, 1.5, None])
def test_what_is_refused(k: int) -> None:
    with pytest.raises(DecodingError, match=r"k must be (at least 1|a whole number), got"):
        vocab_parallel_topk(torch.zeros(2, 3), k, partition([1, 1, 1], 1))
