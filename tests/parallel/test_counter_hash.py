"""The hash is SplitMix64, and uniform numbers never touch an end."""

import torch

from skewtool.parallel.counter_hash import GOLDEN, as_int64, mix64, uniform_open


def test_published_outputs() -> None:
    """The first five of the stream with state 1234567, as in the reference implementation."""
    counters = 1234567 + torch.arange(1, 6) * GOLDEN
    assert [value % 2**64 for value in mix64(counters).tolist()] == [
        6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821,
    ]  # fmt: skip


def test_signed_numbers() -> None:
    assert GOLDEN % 2**64 == 0x9E3779B97F4A7C15
    assert [as_int64(value) for value in (0, -1, 2**63, 2**64 - 1, 2**64 + 5)] == [0, -1, -(2**63), -1, 5]


def test_uniform_numbers_are_inside() -> None:
    ends = uniform_open(torch.tensor([0, 2**12 - 1, -1, -(2**63), 2**63 - 1]))
    assert ends.tolist() == [2.0**-53, 2.0**-53, 1 - 2.0**-53, 0.5 + 2.0**-53, 0.5 - 2.0**-53]
    assert torch.special.ndtri(ends).isfinite().all()
    drawn = uniform_open(mix64(torch.arange(200_000) * GOLDEN))
    share = torch.histc(drawn, bins=100, min=0, max=1) / drawn.numel()
    assert (share - 0.01).abs().max() < 5 * (0.01 / drawn.numel()) ** 0.5


def test_bits_are_independent_of_the_shape() -> None:
    bits = torch.arange(-60, 60)
    assert torch.equal(mix64(bits.reshape(5, 24).t()).t().flatten(), mix64(bits))
