"""What a draw refuses, before anything is sent."""

from typing import Any

import pytest
import torch

from skewtool.errors import DecodingError, SkewtoolError
from skewtool.parallel import vocab_parallel_sample
from skewtool.sharding import partition

NAN, INF = float("nan"), float("inf")
SHARD_MAP = partition([1, 1, 1], 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.1}, r"temperature must be finite and at least 0, got -0\.1 in row 0"),
        ({"temperature": NAN}, "temperature must be finite"),
        ({"temperature": INF}, "temperature must be finite"),
        ({"temperature": torch.tensor([1.0, -2.0])}, r"temperature .* got -2\.0 in row 1 \(flattened\)"),
        ({"temperature": torch.ones(3)}, r"temperature must be .* broadcasts to the rows \[2\], got a tensor \[3\]"),
        ({"temperature": "hot"}, "temperature must be a number or a tensor .* got 'hot'"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"top_k": 1.0}, r"top_k must be a whole number, got 1\.0"),
        ({"top_k": torch.tensor([3.0, 3.0])}, r"top_k must be whole numbers, got torch\.float32"),
        ({"top_k": torch.tensor([3, -1])}, "top_k must be at least 1, got -1 in row 1"),
        ({"top_p": 0.0}, r"top_p must be above 0, got 0\.0"),
        ({"top_p": NAN}, "top_p must be above 0, got nan"),
        ({"top_p": torch.tensor([0.5, -0.5])}, r"top_p must be above 0, got -0\.5 in row 1"),
        ({"min_p": -0.1}, r"min_p must be 0 to 1, got -0\.1"),
        ({"min_p": 1.1}, r"min_p must be 0 to 1, got 1\.1"),
        ({"min_p": NAN}, "min_p must be 0 to 1, got nan"),
        ({"seed": 1.5}, r"seed must be a whole number, got 1\.5"),
        ({"step": None}, "step must be a whole number, got None"),
        ({"rows": torch.tensor([0.0, 1.0])}, r"rows must be whole numbers, got torch\.float32"),
        ({"rows": torch.tensor([0, 1, 2])}, r"rows must be a number or a tensor .* to the rows \[2\], got a tensor \[3\]"),
    ],
)  # fmt: skip
def test_what_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DecodingError, match=message):
        vocab_parallel_sample(torch.zeros(2, 3), SHARD_MAP, **{"seed": 1, "step": 2, **settings})
    assert issubclass(DecodingError, SkewtoolError)


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0},
        {"temperature": torch.tensor(2)},
        {"top_k": 10**9},
        {"top_k": torch.tensor([1, 5], dtype=torch.int32)},
        {"top_p": 1.5},
        {"top_p": torch.tensor([0.5], dtype=torch.float16)},
        {"min_p": 1},
        {"seed": -(10**30)},
        {"rows": torch.tensor([7, 7], dtype=torch.int32)},
    ],
)
def test_what_is_allowed(settings: dict[str, Any]) -> None:
    ids = vocab_parallel_sample(torch.zeros(2, 3), SHARD_MAP, **{"seed": 1, "step": 2, **settings})
    assert ((ids >= 0) & (ids < 3)).all()
