"""Comparisons of sharded results with whole ones."""

import torch
import torch.distributed as dist
from torch import Tensor

from skewtool.sharding import ShardMap

__all__ = ["assert_equal", "backward", "close", "drawn", "rms", "sum_by_id"]


def drawn(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Normal numbers, the same on every rank."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def backward(result: Tensor, upstream: Tensor | None = None, retain_graph: bool = False) -> None:
    """`result.backward(...)`, which has no types in torch."""
    torch.autograd.backward([result], None if upstream is None else [upstream], retain_graph)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-10) -> bool:
    """The same shape and dtype, and nowhere further apart than the tolerance."""
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        return False
    return torch.allclose(actual, expected, rtol=0, atol=tolerance)


def assert_equal(actual: Tensor | None, expected: Tensor | None, what: object, tolerance: float = 1e-10) -> None:
    """`close`, with a message that says of what."""
    assert actual is not None, f"{what}: there is none"
    assert expected is not None
    assert close(actual, expected, tolerance), f"{what}: got\n{actual}\ninstead of\n{expected}"


def rms(errors: Tensor) -> float:
    """Root of the mean square over the errors of all ranks."""
    sums = torch.stack([errors.detach().double().square().sum(), torch.tensor(errors.numel(), dtype=torch.float64)])
    if dist.is_initialized():
        dist.all_reduce(sums)
    return float((sums[0] / sums[1]).sqrt())


def sum_by_id(rows: Tensor | None, shard_map: ShardMap) -> Tensor:
    """This rank's rows, one per slot or home slot -> for each id the sum of the rows of all its slots on all ranks.

    Empty slots must hold zeros.
    """
    assert rows is not None
    everyone = [rows]
    if dist.is_initialized():
        everyone = [torch.empty_like(rows) for _ in range(shard_map.num_shards)]
        dist.all_gather(everyone, rows.contiguous())
    total = rows.new_zeros(shard_map.vocab_size, *rows.shape[1:])
    for held, part in zip(torch.tensor(shard_map.token_at[:, : len(rows)]).long(), everyone, strict=True):
        total.index_add_(0, held[held >= 0], part[held >= 0])
        assert not part[held < 0].any(), "empty slots hold something"
    return total
