"""Draws in one process: the distribution with its tails, the stated outcome of odd rows, the same token in any batch."""

import math
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from skewtool.parallel import argmax, vocab_parallel_sample, vocab_parallel_topk
from skewtool.parallel.counter_hash import mix64
from skewtool.parallel.decoding.noise import gumbel, row_keys
from skewtool.sharding import ShardMap

INF, NAN = float("inf"), float("nan")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@lru_cache
def _map(real_vocab: int, vocab: int | None = None) -> ShardMap:
    """One shard, ids in order, padding ids behind."""
    vocab = real_vocab if vocab is None else vocab
    return ShardMap(np.arange(vocab, dtype=np.int32)[None], vocab, vocab, real_vocab)


def _sample(logits: Tensor, real_vocab: int | None = None, seed: int = 11, step: int = 0, **settings: Any) -> Tensor:
    vocab = logits.size(-1)
    return vocab_parallel_sample(logits, _map(real_vocab or vocab, vocab), seed=seed, step=step, **settings)


# --- The distribution ---


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_a_million_draws_follow_the_softmax(temperature: float) -> None:
    logits = torch.randn(50, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ids = _sample(logits.expand(1_000_000, 50), temperature=temperature)
    expected = (logits / temperature).softmax(0) * ids.numel()
    assert stats.chisquare(ids.bincount(minlength=50).numpy(), expected.numpy()).pvalue > 1e-3


def test_a_class_without_probability_is_never_drawn() -> None:
    logits = torch.tensor([0.5, 0.3, 0.2, 0.0]).log()
    counts = _sample(logits.expand(1_000_000, 4)).bincount(minlength=4)
    assert counts[3] == 0
    assert stats.chisquare(counts[:3].numpy(), np.array([5e5, 3e5, 2e5])).pvalue > 1e-3


def test_steps_and_seeds_are_draws_of_their_own() -> None:
    logits = torch.tensor([0.5, 0.3, 0.2]).log()[None]
    for name in ("step", "seed"):
        ids = torch.cat([_sample(logits, **{"seed": 1, "step": 2, name: number}) for number in range(1000)])
        assert stats.chisquare(ids.bincount(minlength=3).numpy(), np.array([500, 300, 200])).pvalue > 1e-3
        pairs = ids[0::2] * 3 + ids[1::2]
        expected = np.outer([0.5, 0.3, 0.2], [0.5, 0.3, 0.2]).ravel() * 500
        assert stats.chisquare(pairs.bincount(minlength=9).numpy(), expected).pvalue > 1e-3


def test_a_large_flat_tail_keeps_its_mass_under_bfloat16() -> None:
    """Half the mass on id 0, the other half even over 131,071 ids, where 16-bit sums saturate and inverse CDFs erode."""
    vocab, draws = 131_072, 200
    logits = torch.zeros(vocab, dtype=torch.bfloat16)
    logits[0] = math.log(vocab - 1)
    head = 1 / (1 + (vocab - 1) / math.exp(logits[0].item()))
    ids = _sample(logits.expand(draws, vocab))
    assert stats.binomtest(int((ids == 0).sum()), draws, head).pvalue > 1e-3
    assert stats.chisquare((ids[ids > 0] * 8 // vocab).bincount(minlength=8).numpy()).pvalue > 1e-3
    for top_p in (1.0, 1 - 1e-9):
        assert torch.equal(_sample(logits.expand(20, vocab), top_p=top_p), ids[:20])


# --- Tails ---

TAIL, GAP = 262_144, 20.5


def _signed(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


GOLDEN = _signed(0x9E3779B97F4A7C15)


def _inverse(factor: int) -> int:
    return _signed(pow(factor, -1, 2**64))


def _unmixed(numbers: Tensor) -> Tensor:
    """The inverse of mix64: an exclusive or with a shift of itself is undone by those with the shift and twice the shift."""
    for places, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        once, twice = ((numbers >> n) & (2 ** (64 - n) - 1) for n in (places, 2 * places))
        numbers = (numbers ^ once ^ twice) * _inverse(factor)
    return numbers


def _rows_with(bits: Tensor, token: int, seed: int, step: int) -> Tensor:
    """Keys of rows whose noise at `token` is made of these bits: the generator run backwards."""
    before = torch.zeros(1, dtype=torch.int64)
    for part in (seed, step):
        before = mix64(before + _signed((part + 1) * GOLDEN))
    to_token = _signed((token + 1) * GOLDEN)
    rows = (_unmixed(_unmixed(bits) - to_token) - before) * _inverse(GOLDEN) - 1
    assert torch.equal(mix64(row_keys(seed, step, rows) + to_token), bits)
    return rows


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("gap", [20.5, 25.0, 30.0])
def test_the_highest_noise_reaches_across_the_gap(gap: float, dtype: torch.dtype) -> None:
    """Rows in which one id of the tail has uniform bits 0 to 15, which 24 or 31 bits cannot tell from 0 or never give."""
    logits = torch.zeros(16, 5000, dtype=dtype)
    logits[:, 7] = gap
    rows = _rows_with(torch.arange(16) << 12, 4321, seed=3, step=4)
    assert _sample(logits, seed=3, step=4, rows=rows).tolist() == [4321] * 16


@pytest.mark.parametrize("draws", [750, pytest.param(4000, marks=pytest.mark.slow)])
def test_a_tail_behind_a_gap_is_drawn_at_its_rate(draws: int) -> None:
    """262,144 classes, each e^-20.5 as likely as the best one.

    They win a row when the highest of their noises is above the gap and the noise of the best one. That happens once in
    3,000 rows; so rows are taken in which the best class has the lowest noise there is, -3.6, and 1 in 83 is expected.
    """
    logits = torch.zeros(TAIL + 1, dtype=torch.bfloat16)
    logits[0] = GAP
    rows = _rows_with(-1 - torch.arange(draws), 0, seed=5, step=6)
    lowest = gumbel(row_keys(5, 6, rows), torch.tensor([0]))
    chance = -torch.expm1(-TAIL * torch.exp(-GAP - lowest)).mean().item()
    assert chance == pytest.approx(0.0120, abs=1e-4)
    hits = int((_sample(logits.expand(draws, TAIL + 1), seed=5, step=6, rows=rows) > 0).sum())
    assert stats.binomtest(hits, draws, chance).pvalue > 1e-3, hits


# --- Settings ---


def _reference(by_id: Tensor, keys: Tensor, temperature: Tensor, k: Tensor, p: Tensor, least: Tensor) -> list[int]:
    """Row by row, from full sorted distributions in float64."""
    noise, drawn = gumbel(keys, torch.arange(by_id.size(1))), []
    for row, logits in enumerate(by_id.double()):
        order = logits.sort(descending=True, stable=True).indices[: int(k[row])]
        likely = (logits == logits.max()).double() if temperature[row] == 0 else (logits / temperature[row]).softmax(0)
        share = likely[order] / likely[order].sum()
        order = order[(share.cumsum(0) - share < p[row]) | (p[row] >= 1)]
        order = order[likely[order] >= least[row] * likely.max()].sort().values
        scores = logits + temperature[row] * noise[row]
        drawn.append(int(order[scores[order].argmax()]))
    return drawn


def _mixed(rows: int, generator: torch.Generator) -> dict[str, Any]:
    """Settings of their own for every row; some keep all, some are greedy."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(rows, generator=generator, dtype=torch.float64)

    return {
        "temperature": uniform(-0.2, 2).clamp(min=0),
        "top_k": torch.randint(1, 120, (rows,), generator=generator),
        "top_p": uniform(0.05, 1.2),
        "min_p": uniform(-0.1, 0.3).clamp(min=0),
    }


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("top_k_first", [False, True])
def test_filters_are_those_of_the_sorted_reference(dtype: torch.dtype, ties: bool, top_k_first: bool) -> None:
    """With top-k in every row the rest is decided among the candidates, else over the shards: two ways, one result."""
    generator = torch.Generator().manual_seed(3)
    by_id = torch.randn(200, 100, generator=generator) * 3
    by_id = (by_id.round() if ties else by_id).to(dtype)
    by_id[:, 90:] = 100  # padding
    settings = _mixed(200, generator)
    if top_k_first:
        settings["top_k"] = settings["top_k"].clamp(max=60)
    rows = torch.arange(200) * 3
    expected = _reference(by_id[:, :90], row_keys(11, 5, rows), *settings.values())
    assert _sample(by_id, 90, step=5, rows=rows, **settings).tolist() == expected


def test_a_row_draws_the_same_alone_and_in_any_batch() -> None:
    """Noise by column made other tokens when a filter of another row moved columns."""
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(24, 100, generator=generator) * 2
    settings, keys = _mixed(24, generator), torch.arange(100, 124)
    together = _sample(logits, 90, seed=7, step=3, rows=keys, **settings)
    for row in range(24):
        alone = {name: values[row].item() for name, values in settings.items()}
        assert _sample(logits[row], 90, seed=7, step=3, rows=keys[row], **alone) == together[row]
    order = torch.randperm(24, generator=generator)
    shuffled = {name: values[order] for name, values in settings.items()}
    assert torch.equal(_sample(logits[order], 90, seed=7, step=3, rows=keys[order], **shuffled), together[order])


def test_filters_that_keep_all_change_nothing() -> None:
    logits = torch.randn(50, 100, generator=torch.Generator().manual_seed(4))
    expected = _sample(logits, 90)
    for settings in ({"top_k": 90}, {"top_k": 10**6}, {"top_p": 1.0}, {"min_p": 0.0}, {"top_p": 1 - 1e-16, "top_k": 90}):
        assert torch.equal(_sample(logits, 90, **settings), expected), settings


def test_zero_temperature_is_greedy_whatever_the_filters() -> None:
    logits = torch.randn(200, 100, generator=torch.Generator().manual_seed(4)).round()
    expected = argmax(logits, _map(90, 100))
    for settings in ({}, {"top_k": 5}, {"top_p": 0.5}, {"min_p": 0.5}, {"top_p": 0.1, "min_p": 1.0, "top_k": 7}):
        assert torch.equal(_sample(logits, 90, temperature=0, **settings), expected), settings
    assert torch.equal(_sample(logits, 90, top_k=1), expected)
    assert torch.equal(_sample(logits, 90, top_p=1e-9), expected)


def test_one_setting_for_several_rows_by_broadcasting() -> None:
    logits = torch.randn(2, 3, 10, generator=torch.Generator().manual_seed(4)) * 3
    heat = torch.tensor([[0.0], [5.0]])
    ids = _sample(logits, temperature=heat)
    assert ids.shape == (2, 3)
    assert torch.equal(ids, _sample(logits, temperature=heat.expand(2, 3)))
    assert torch.equal(ids, _sample(logits.flatten(0, 1), temperature=heat.expand(2, 3).reshape(6)).reshape(2, 3))
    assert _sample(torch.empty(0, 4, 10), top_p=0.5, top_k=3).shape == (0, 4)


def test_no_generator_is_read_or_moved_and_logits_are_left_alone() -> None:
    logits = torch.randn(5, 10, requires_grad=True)
    before, state = logits.detach().clone(), torch.get_rng_state()
    first = _sample(logits, top_k=5, top_p=0.9, min_p=0.01)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(99)
    assert torch.equal(_sample(logits, top_k=5, top_p=0.9, min_p=0.01), first)
    assert torch.equal(logits.detach(), before)


# --- Odd rows ---

FILTERS: list[dict[str, Any]] = [
    {}, {"temperature": 0}, {"temperature": 1e300}, {"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.5},
    {"top_k": 3, "top_p": 0.5, "min_p": 0.1}, {"top_p": 0.7, "min_p": 0.1},
]  # fmt: skip


@pytest.mark.parametrize("settings", FILTERS, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_without_a_distribution(settings: dict[str, Any], dtype: torch.dtype) -> None:
    """NaN anywhere among classes, also where a filter would drop it; -inf everywhere. Their neighbours are unharmed."""
    rows = torch.tensor([
        [0.0, 9, 1, 2, -50],
        [0.0, 9, 1, 2, NAN],
        [-INF, -INF, -INF, -INF, -INF],
        [-INF, NAN, -INF, -INF, INF],
        [-INF, INF, 5, INF, -INF],
        [-INF, -INF, -INF, -INF, -3],
    ], dtype=dtype)  # fmt: skip
    by_id = torch.cat([rows, torch.full((6, 2), 100.0, dtype=dtype)], dim=1)
    ids = _sample(by_id, 5, **settings).tolist()
    assert ids[1:] == [-1, -1, -1, 1, 4]
    assert ids[0] == _sample(by_id[:1], 5, **settings)
    assert 0 <= ids[0] < 5


@pytest.mark.parametrize("poison", [100.0, INF, NAN, -INF])
@pytest.mark.parametrize("settings", FILTERS, ids=str)
def test_padding_has_no_probability(settings: dict[str, Any], poison: float) -> None:
    """Padding ids of any logit, even if all classes are below zero: the draws are those without padding."""
    logits = torch.randn(200, 13, generator=torch.Generator().manual_seed(1)) - 20
    padded = torch.cat([logits, torch.full((200, 4), poison)], dim=1)
    assert torch.equal(_sample(padded, 13, **settings), _sample(logits, **settings))


@pytest.mark.parametrize("vocab", [5, 8193, 10000, 151936])
def test_the_only_class_left_is_found_and_nothing_behind_it(vocab: int) -> None:
    """Sizes whose last tile is not full; all classes but one, or all, at the lowest value."""
    logits = torch.full((2, vocab + 3), -INF)
    logits[:, vocab:] = 0.0
    logits[1, vocab - 1] = -100.0
    shard_map = _map(vocab, vocab + 3)
    assert argmax(logits, shard_map).tolist() == [0, vocab - 1]
    assert vocab_parallel_topk(logits, 2, shard_map)[1].tolist() == [[0, 1], [vocab - 1, 0]]
    for settings in FILTERS:
        assert _sample(logits, vocab, **settings).tolist() == [-1, vocab - 1]
