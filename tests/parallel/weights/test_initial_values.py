"""Initial values depend on seed, id and column alone: not on map, shards, layout, padding or chunks."""

from collections.abc import Callable
from statistics import NormalDist

import pytest
import torch

from skewtool.errors import MapError, SkewtoolError
from skewtool.parallel import initial_rows, initialize_columns, initialize_rows, shard_weight
from skewtool.sharding import ShardMap

MapsOf = Callable[[int, int], dict[str, ShardMap]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_every_map_gives_the_same_table(maps_of: MapsOf, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    monkeypatch.setattr("skewtool.parallel.weights.initial_values._ELEMENTS_AT_ONCE", 20)
    state = torch.get_rng_state()
    for vocab_size in (61, 3):
        table = initial_rows(torch.arange(vocab_size), 0, 7, seed=5, std=0.3).to(dtype)
        for num_shards in (1, 4):
            for name, shard_map in maps_of(vocab_size, num_shards).items():
                for rank in range(num_shards):
                    weight = torch.nn.Parameter(torch.full((shard_map.num_slots, 7), torch.nan, dtype=dtype))
                    assert initialize_rows(weight, shard_map, rank, seed=5, std=0.3) is weight
                    expected = shard_weight(table, shard_map, rank)
                    assert torch.equal(weight, expected), name
                    head = torch.full((shard_map.home_slots, 7), torch.nan, dtype=dtype)
                    initialize_rows(head, shard_map, rank, seed=5, std=0.3)
                    assert torch.equal(head, expected[: shard_map.home_slots]), name
        for start, stop in ((0, 2), (2, 7), (7, 7)):
            columns = torch.full((vocab_size, stop - start), torch.nan, dtype=dtype)
            assert torch.equal(initialize_columns(columns, start, seed=5, std=0.3), table[:, start:stop])
    assert torch.equal(torch.get_rng_state(), state)


def test_padding_does_not_change_the_rest() -> None:
    plain, padded = ShardMap.contiguous(50, 1), ShardMap.contiguous(64, 1, real_vocab=50)
    few = initialize_rows(torch.empty(50, 5), plain, 0, seed=1)
    many = initialize_rows(torch.empty(64, 5), padded, 0, seed=1)
    assert torch.equal(few, many[:50])
    assert (many[50:] != 0).all()  # padding ids follow the same rule


def test_values_are_normal_and_unrelated() -> None:
    rows = initial_rows(torch.arange(1000), 0, 300, seed=0, std=2.0)
    assert rows.mean().abs() < 5 * 2 / 300_000**0.5
    assert abs(rows.std() - 2) < 5 * 2 / 600_000**0.5
    expected = torch.special.ndtri((torch.arange(1, 300_000, dtype=torch.float64)) / 300_000) * 2
    assert (rows.flatten().sort().values[1:] - expected)[1000:-1000].abs().max() < 0.05
    standard = rows / 2
    for other in (standard.roll(1, 0), standard.roll(1, 1), initial_rows(torch.arange(1000), 0, 300, seed=1, std=1.0)):
        assert (standard * other).mean().abs() < 5 / 300_000**0.5
    assert len(set(rows.flatten().tolist())) == rows.numel()


def _mixed(bits: int) -> int:
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EB % 2**64
    return bits ^ (bits >> 31)


def _by_hand(seed: int, token: int, column: int) -> float:
    golden = 0x9E3779B97F4A7C15
    stream = _mixed((_mixed((seed + golden) % 2**64) + (token + 1) * golden) % 2**64)
    bits = _mixed((stream + (column + 1) * golden) % 2**64)
    return NormalDist().inv_cdf(((bits >> 12) + 0.5) * 2**-52)


@pytest.mark.parametrize("seed", [0, 7, -1, 2**64 + 7])
def test_the_rule_by_hand(seed: int) -> None:
    """Written down for good: runs are repeated by their seeds."""
    ids = [0, 1, 100_000, 2**31 - 2]
    rows = initial_rows(torch.tensor(ids), 3, 8, seed=seed, std=1.0)
    assert rows.tolist() == [
        [pytest.approx(_by_hand(seed, token, column), rel=1e-12) for column in range(3, 8)] for token in ids
    ]
    assert torch.equal(initial_rows(torch.tensor(ids, dtype=torch.int32), 3, 8, seed=seed, std=1.0), rows)


def test_nothing_happens_on_the_meta_device() -> None:
    weight = torch.empty(4, 2, device="meta")
    assert initialize_rows(weight, ShardMap.contiguous(7, 2), 0, seed=0).is_meta


def test_what_does_not_fit_is_refused() -> None:
    shard_map = ShardMap.contiguous(7, 2)
    with pytest.raises(MapError, match=r"shape \[3, 2\] does not fit the map"):
        initialize_rows(torch.empty(3, 2), shard_map, 0, seed=0)
    with pytest.raises(MapError, match=r"\[rows, columns\], got shape \[4\]"):
        initialize_rows(torch.empty(4), shard_map, 0, seed=0)
    with pytest.raises(MapError, match="rank must be 0 to 1"):
        initialize_rows(torch.empty(4, 2), shard_map, 2, seed=0)
    for std in (-1.0, float("nan")):
        with pytest.raises(SkewtoolError, match="std must be at least 0"):
            initialize_rows(torch.empty(4, 2), shard_map, 0, seed=0, std=std)
    assert not initialize_rows(torch.empty(4, 2), shard_map, 0, seed=0, std=0).any()
