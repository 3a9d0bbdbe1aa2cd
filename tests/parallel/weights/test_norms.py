"""Norms and clipping of sharded models equal those of the unsharded model, whatever map, copies and ties."""

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from skewtool.errors import SkewtoolError
from skewtool.parallel import clip_grad_norm_, grad_norm, record_collectives, shard_weight
from skewtool.parallel.groups import Group
from skewtool.parallel.sharded_module import ShardedModule
from skewtool.sharding import ShardMap

Ranks = Callable[..., None]
MapsOf = Callable[[int, int], dict[str, ShardMap]]

NORM_TYPES = (2.0, 1.0, 3.5, float("inf"))
DTYPES = (torch.float64, torch.float32, torch.bfloat16)


class _Sharded(ShardedModule):
    """An embedding, or a head with a bias, that may share its weight."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter | None, home_slots: int, group: Group) -> None:
        super().__init__(group)
        self.weight, self.bias, self.home_slots = weight, bias, home_slots

    def counted_rows(self) -> dict[str, int]:
        return dict.fromkeys(["weight"] if self.bias is None else ["weight", "bias"], self.home_slots)


def _gradients(vocab_size: int, dtype: torch.dtype) -> list[Tensor]:
    """Of table, bias and a replicated matrix."""
    generator = torch.Generator().manual_seed(4)
    return [torch.randn(*shape, generator=generator).to(dtype) for shape in ((vocab_size, 5), (vocab_size,), (3, 4))]


def _with_gradient(gradient: Tensor) -> nn.Parameter:
    parameter = nn.Parameter(torch.zeros_like(gradient))
    parameter.grad = gradient.clone()
    return parameter


def _sharded_model(gradients: list[Tensor], shard_map: ShardMap, rank: int, group: Group) -> nn.Module:
    table, bias, matrix = gradients
    weight = _with_gradient(shard_weight(table, shard_map, rank))
    head_bias = _with_gradient(shard_weight(bias, shard_map.without_copies(), rank))
    between = nn.Module()
    between.matrix, between.frozen = _with_gradient(matrix), nn.Parameter(torch.ones(2))
    embedding = _Sharded(weight, None, shard_map.home_slots, group)
    return nn.Sequential(embedding, between, _Sharded(weight, head_bias, shard_map.home_slots, group))


def _on_ranks(rank: int, world: int, maps: list[ShardMap]) -> None:
    groups = {size: dist.new_group(list(range(size))) for size in range(1, world + 1)}
    cases = itertools.cycle(itertools.product(DTYPES, NORM_TYPES))
    for shard_map in (*maps, *maps):
        for dtype, norm_type in itertools.islice(cases, 3):
            if rank < shard_map.num_shards:
                _clips_as_the_unsharded(rank, shard_map, groups[shard_map.num_shards], dtype, norm_type)
    for norm_type in NORM_TYPES:
        _some_ranks_without_gradients(rank, world, maps[-1], norm_type)
        _not_finite(rank, world, maps[-1], norm_type)


def _clips_as_the_unsharded(
    rank: int, shard_map: ShardMap, group: dist.ProcessGroup, dtype: torch.dtype, norm_type: float
) -> None:
    gradients = _gradients(shard_map.vocab_size, dtype)
    exact = dtype if dtype != torch.bfloat16 else torch.float32  # unsharded 16-bit norms are rounded to 16 bits
    for max_norm in (0.5, 1e4):
        model = _sharded_model(gradients, shard_map, rank, group)
        unsharded = [_with_gradient(each.to(exact)) for each in gradients]
        expected = nn.utils.clip_grad_norm_(unsharded, max_norm, norm_type)
        with record_collectives() as calls:
            total = clip_grad_norm_(model, max_norm, norm_type)
        expected_calls = [("all_gather", "norms", 8)] * (group.size() > 1)
        assert [(call.kind, call.what, call.payload_bytes) for call in calls] == expected_calls
        everyone = [torch.empty_like(total) for _ in range(group.size())]
        dist.all_gather(everyone, total, group=group)
        assert len(set(map(float, everyone))) == 1
        torch.testing.assert_close(total, expected, check_dtype=False)
        clipped = [each.grad.to(dtype) for each in unsharded if each.grad is not None]
        twin = _sharded_model(clipped, shard_map, rank, group)
        for mine, theirs in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)


def _some_ranks_without_gradients(rank: int, world: int, shard_map: ShardMap, norm_type: float) -> None:
    """They still take part; the rest counts."""
    gradients = _gradients(shard_map.vocab_size, torch.float64)
    model = _sharded_model(gradients, shard_map, rank, None)
    if rank == 1:
        model.zero_grad()
        model.get_submodule("1").get_parameter("matrix").grad = gradients[2].clone()
    for each in gradients[:2]:
        each[torch.tensor(shard_map.shard_of) == 1] = 0
    expected = nn.utils.get_total_norm(gradients, norm_type)
    torch.testing.assert_close(clip_grad_norm_(model, 0.5, norm_type), expected)


def _not_finite(rank: int, world: int, shard_map: ShardMap, norm_type: float) -> None:
    for bad in (float("nan"), float("inf")):
        gradients = _gradients(shard_map.vocab_size, torch.float32)
        gradients[0][shard_map.token_at[world - 1, 0]] = bad
        model = _sharded_model(gradients, shard_map, rank, None)
        with pytest.raises(RuntimeError, match=r"norm of order .* is (nan|inf), so they cannot be clipped"):
            clip_grad_norm_(model, 1.0, norm_type, error_if_nonfinite=True)
        norm = grad_norm(model, norm_type)
        assert torch.equal(norm.isnan(), torch.tensor(bad != bad))
        assert not norm.isfinite()


def test_on_ranks(on_ranks: Ranks, maps_of: MapsOf) -> None:
    names = {1: "strided", 2: "copies", 3: "by hand", 4: "by hand"}
    on_ranks(4, _on_ranks, [maps_of(vocab_size, size)[name] for vocab_size in (3, 61) for size, name in names.items()])


def test_models_without_gradients_or_sharded_modules() -> None:
    model = nn.Linear(3, 2)
    assert grad_norm(model).item() == 0
    assert clip_grad_norm_(model, 1.0, error_if_nonfinite=True).item() == 0
    model(torch.ones(3)).sum().backward()
    expected = nn.utils.get_total_norm([each.grad for each in model.parameters() if each.grad is not None])
    torch.testing.assert_close(clip_grad_norm_(model, 1.0), expected, check_dtype=False)
    torch.testing.assert_close(grad_norm(model), torch.tensor(1.0), check_dtype=False)


def test_what_is_no_norm_is_refused() -> None:
    for norm_type in (0.0, -1.0, float("nan")):
        with pytest.raises(SkewtoolError, match="norm_type must be above 0"):
            grad_norm(nn.Linear(2, 2), norm_type)
