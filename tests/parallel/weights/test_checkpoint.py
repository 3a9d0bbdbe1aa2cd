"""Tables saved under one map load under another, with another number of ranks, and without skewtool, bit for bit."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.tensor import DTensor, Replicate

from skewtool.errors import MapError
from skewtool.parallel import from_checkpoint, record_collectives, shard_weight, to_checkpoint
from skewtool.parallel.groups import Group
from skewtool.sharding import ShardMap

Ranks = Callable[..., None]
MapsOf = Callable[[int, int], dict[str, ShardMap]]
Local = dict[str, Any]


def _training_state(vocab_size: int) -> dict[str, Any]:
    """A table in bfloat16, Adam's moments in float32, a head's bias, and a counter."""
    generator = torch.Generator().manual_seed(6)
    table, average, square = torch.randn(3, vocab_size, 5, generator=generator)
    bias = torch.randn(vocab_size, generator=generator, dtype=torch.float64)
    return {"table": table.bfloat16(), "exp_avg": average, "exp_avg_sq": square, "bias": bias, "step": torch.tensor(7.0)}


def _checkpoint(local: Local, shard_map: ShardMap, group: Group) -> dict[str, Any]:
    return {name: to_checkpoint(each, shard_map, group) if each.ndim else each for name, each in local.items()}


def _local(state: dict[str, Any], shard_map: ShardMap, rank: int) -> Local:
    homes = shard_map.without_copies()
    maps = {name: homes if name == "bias" else shard_map for name in state}
    return {name: shard_weight(each, maps[name], rank) if each.ndim else each for name, each in state.items()}


def _on_ranks(rank: int, world: int, maps: list[dict[str, ShardMap]], folder: Path) -> None:
    warnings.simplefilter("error")
    groups = {size: dist.new_group(list(range(size))) for size in range(1, world + 1)}
    for of_size in (maps[:4], maps[4:]):
        saved_under = of_size[-1]["by hand"]
        path = folder / str(saved_under.vocab_size)
        state = _training_state(saved_under.vocab_size)
        _save(rank, state, saved_under, groups[world], path)
        for name, size in (("random", 2), ("copies", 4), ("by hand", 3), ("strided", 1)):
            if rank < size:
                _load(rank, state, of_size[size - 1][name], groups[size], path)
    _refusals(groups[world], maps[3]["copies"])


def _save(rank: int, state: dict[str, Any], shard_map: ShardMap, group: dist.ProcessGroup, path: Path) -> None:
    with record_collectives() as calls:
        table = to_checkpoint(_local(state, shard_map, rank)["table"], shard_map, group)
    assert [call.kind for call in calls] == ["all_gather", "all_to_all"]
    assert isinstance(table, DTensor)
    assert table.shape == state["table"].shape
    rows = -(-shard_map.vocab_size // group.size())
    assert torch.equal(table.to_local(), state["table"][rank * rows : (rank + 1) * rows])
    checkpoint = _checkpoint(_local(state, shard_map, rank), shard_map, group)
    save(checkpoint, storage_writer=FileSystemWriter(path), process_group=group)


def _load(rank: int, state: dict[str, Any], shard_map: ShardMap, group: dist.ProcessGroup, path: Path) -> None:
    blank = {name: torch.zeros_like(each) for name, each in _local(state, shard_map, rank).items()}
    checkpoint = _checkpoint(blank, shard_map, group)
    load(checkpoint, storage_reader=FileSystemReader(path), process_group=group)
    expected = _local(state, shard_map, rank)
    for name, each in checkpoint.items():
        target = shard_map.without_copies() if name == "bias" else shard_map
        result = from_checkpoint(each, target, group) if each.ndim else each
        assert result.dtype == expected[name].dtype
        assert torch.equal(result, expected[name]), name


def _refusals(group: dist.ProcessGroup, shard_map: ShardMap) -> None:
    table = to_checkpoint(torch.zeros(shard_map.num_slots, 2), shard_map, group)
    assert isinstance(table, DTensor)
    more = ShardMap.contiguous(shard_map.vocab_size + 1, 4)
    with pytest.raises(MapError, match=f"has {shard_map.vocab_size} rows, the map {more.vocab_size} ids"):
        from_checkpoint(table, more, group)
    whole = DTensor.from_local(torch.zeros(shard_map.vocab_size, 2), table.device_mesh, [Replicate()])
    with pytest.raises(MapError, match=r"must be Shard\(0\) over the 4 ranks of the group, got .*Replicate"):
        from_checkpoint(whole, shard_map, group)
    assert not from_checkpoint(table, shard_map, group).any()  # nobody was left in a collective


def test_saved_at_four_loaded_at_any(on_ranks: Ranks, maps_of: MapsOf, tmp_path: Path) -> None:
    on_ranks(4, _on_ranks, [maps_of(vocab_size, size) for vocab_size in (61, 3) for size in (1, 2, 3, 4)], tmp_path)
    for vocab_size in (61, 3):
        state = _training_state(vocab_size)
        plain = {name: torch.zeros_like(each) for name, each in state.items()}
        with pytest.warns(UserWarning, match="assuming the intent is to load in a single process"):
            load(plain, storage_reader=FileSystemReader(tmp_path / str(vocab_size)))  # a table like any other
        assert all(torch.equal(plain[name], each) for name, each in state.items())
        _loads_alone(plain["table"], maps_of(vocab_size, 1)["by hand"])


def _loads_alone(table: Tensor, shard_map: ShardMap) -> None:
    """Without a process group tables are plain tensors in and out."""
    weight = from_checkpoint(table, shard_map)
    assert torch.equal(weight, shard_weight(table, shard_map, 0))
    saved = to_checkpoint(weight, shard_map)
    assert not isinstance(saved, DTensor)
    assert torch.equal(saved, table)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(MapError, match="2 shards, but the group 1 ranks"):
        to_checkpoint(torch.zeros(4), ShardMap.contiguous(7, 2))
    with pytest.raises(MapError, match="2 shards, but the group 1 ranks"):
        from_checkpoint(torch.zeros(7), ShardMap.contiguous(7, 2))
    with pytest.raises(MapError, match="does not fit the map"):
        from_checkpoint(torch.zeros(6), ShardMap.contiguous(7, 1))
