"""Greedy choice in one process: torch's argmax over real classes."""

import numpy as np
import pytest
import torch

from skewtool.errors import DecodingError, MapError
from skewtool.parallel import argmax
from skewtool.sharding import ShardMap, partition

INF, NAN = float("inf"), float("nan")
PADDED = ShardMap(np.array([[4, 2, 0, 5, 1, 3, -1, -1]]), 8, 6, 4)  # ids 4 and 5 and two empty slots are no classes


@pytest.mark.parametrize("poison", [100.0, 0.0, -INF, INF, NAN])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_padding_is_never_chosen(poison: float, dtype: torch.dtype) -> None:
    by_id = torch.tensor([[-3.0, -1, -1, -2], [-INF, -INF, -INF, -INF], [-INF, NAN, INF, NAN], [-0.0, 0, -0.0, 0]])
    local = torch.full((4, 8), poison)
    for slot, token in enumerate(PADDED.token_at[0]):
        if 0 <= token < 4:
            local[:, slot] = by_id[:, token]
    before = local.to(dtype)
    after = before.clone()
    ids = argmax(after, PADDED)
    assert ids.dtype == torch.int64
    assert ids.tolist() == by_id.argmax(1).tolist() == [1, 0, 1, 0]
    assert torch.equal(after.nan_to_num(7), before.nan_to_num(7))


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 3), (2, 0, 3)])
def test_any_leading_shape(shape: tuple[int, ...]) -> None:
    logits = torch.randn(*shape, 7, generator=torch.Generator().manual_seed(1), requires_grad=True)
    ids = argmax(logits, partition(np.ones(7, int), 1))
    assert torch.equal(ids, logits.argmax(-1))
    assert not ids.requires_grad


def test_strided_logits() -> None:
    logits = torch.randn(7, 5, 3).permute(2, 1, 0)
    assert torch.equal(argmax(logits, partition(np.ones(7, int), 1)), logits.argmax(-1))


def test_what_is_refused() -> None:
    shard_map = partition(np.ones(7, int), 1)
    with pytest.raises(DecodingError, match=r"each of the 7 home slots of a shard, \[\.\.\., 7\], got \[2, 6\]"):
        argmax(torch.zeros(2, 6), shard_map)
    with pytest.raises(DecodingError, match="each of the 7 home slots"):
        argmax(torch.tensor(1.0), shard_map)
    with pytest.raises(DecodingError, match=r"bfloat16, float32 or float64, got torch\.int64"):
        argmax(torch.zeros(2, 7, dtype=torch.int64), shard_map)
    with pytest.raises(MapError, match="2 shards, but the group 1 ranks"):
        argmax(torch.zeros(2, 4), partition(np.ones(7, int), 2))
