"""The noise is the published generator's, finite for all bits, exact in the tails, and moves no generator."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from skewtool.parallel.counter_hash import mix64
from skewtool.parallel.decoding.noise import gumbel, gumbel_of_bits, row_keys

GOLDEN = 0x9E3779B97F4A7C15 - 2**64


def test_the_published_outputs_of_splitmix64() -> None:
    outputs = mix64(1234567 + torch.arange(1, 6) * GOLDEN)
    assert [number % 2**64 for number in outputs.tolist()] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


def test_inputs_are_left_alone() -> None:
    numbers, ids, rows = torch.arange(5), torch.arange(5), torch.arange(5)
    mix64(numbers), gumbel_of_bits(numbers), gumbel(row_keys(1, 2, rows), ids)
    assert numbers.tolist() == ids.tolist() == rows.tolist() == [0, 1, 2, 3, 4]


def _bits(uniform_52: int) -> Tensor:
    return torch.tensor(((uniform_52 << 12) + 2**63) % 2**64 - 2**63)


@pytest.mark.parametrize(
    "uniform_52",
    [0, 1, 2, 1000, 2**20, 2**28, 2**40, 2**51 - 1, 2**51, 2**52 - 2**28, 2**52 - 2, 2**52 - 1],
    ids=lambda value: f"{value:#x}",
)
def test_every_uniform_has_its_exact_finite_noise(uniform_52: int) -> None:
    """All-zero bits, the smallest float32, 1 - 2^-24 and all ones among them: a generator's 0 and 1 do no harm."""
    w = (uniform_52 + 0.5) * 2.0**-52
    noise = gumbel_of_bits(_bits(uniform_52)).item()
    assert math.isfinite(noise)
    assert noise == pytest.approx(-math.log(-math.log1p(-w)), rel=1e-14)


def test_the_range() -> None:
    lowest, highest = gumbel_of_bits(torch.tensor([-1, 0])).tolist()
    assert (lowest, highest) == pytest.approx((-math.log(53 * math.log(2)), 53 * math.log(2)))
    assert highest > 36, "float32 uniforms end at 17, 31 bits at 21.5"


def test_any_bits_are_finite() -> None:
    generator = torch.Generator().manual_seed(1)
    bits = torch.randint(-(2**63), 2**63 - 1, (100_000,), generator=generator)
    noise = gumbel_of_bits(bits)
    assert noise.dtype == torch.float64
    assert noise.isfinite().all()


def test_it_follows_the_distribution_along_ids_rows_and_steps() -> None:
    ids, rows = torch.arange(20_000), torch.arange(20_000)
    along = {
        "ids": gumbel(row_keys(1, 2, rows[:1]), ids),
        "rows": gumbel(row_keys(1, 2, rows), ids[7:8]),
        "steps": torch.cat([gumbel(row_keys(1, step, rows[:1]), ids[:20]) for step in range(1000)]),
        "seeds": torch.cat([gumbel(row_keys(seed, 2, rows[:1]), ids[:20]) for seed in range(1000)]),
    }
    for name, noise in along.items():
        assert stats.kstest(noise.flatten().numpy(), "gumbel_r").pvalue > 1e-3, name
    both = gumbel(row_keys(1, 2, rows[:2000]), ids[:2])
    assert abs(torch.corrcoef(both.T)[0, 1]) < 5 / 2000**0.5


def test_tails_have_their_weight() -> None:
    """Of 2^24 values, those above a floor: 1 - exp(-exp(-floor)) of them, within 5 sigma."""
    floors, ids = torch.tensor([6.0, 8, 10, 12], dtype=torch.float64), torch.arange(2**18)
    above = torch.zeros(4)
    for row in range(64):
        above += (gumbel(row_keys(0, 0, torch.tensor([row])), ids) > floors[:, None]).sum(1)
    expected = -(2**24) * torch.expm1(-torch.exp(-floors))
    assert ((above - expected).abs() < 5 * expected.sqrt()).all(), (above, expected)


def test_seeds_and_steps_of_any_size_and_sign_count_modulo_two_to_64() -> None:
    rows = torch.arange(3)
    assert torch.equal(row_keys(-1, 2**64 + 5, rows), row_keys(2**64 - 1, 5, rows))
    keys = torch.stack([row_keys(seed, step, rows) for seed in (0, 1, 2**63, -5) for step in (0, 1, 2**63)])
    assert len(set(keys.flatten().tolist())) == keys.numel()


def test_no_generator_moves() -> None:
    before = torch.get_rng_state()
    gumbel(row_keys(1, 2, torch.arange(3)), torch.arange(10))
    assert torch.equal(torch.get_rng_state(), before)
