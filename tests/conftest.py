"""Fixtures of all tests: profiles made the slow and obvious way, and a Python of its own to run code in."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import settings

from skewtool.profiling import Profile, SourceRow, TokenizerSizes, WindowSample, WindowStatistics

settings.register_profile("compiled", deadline=None)  # first calls compile
settings.load_profile("compiled")


def _profile_of(
    tokens: npt.ArrayLike,
    vocab_size: int,
    *,
    windows: Sequence[int] = (64,),
    sample_size: int = 16,
    notes: Sequence[str] = (),
    num_token_ids: int | None = None,
) -> Profile:
    """The profile of one source that holds `tokens`; with `num_token_ids`, of a tokenizer with so many ids."""
    ids = np.asarray(tokens, np.int64)
    return Profile(
        counts=np.bincount(ids, minlength=vocab_size).astype(np.int64),
        windows=tuple(_windows_of(ids, vocab_size, length, sample_size) for length in windows),
        sources=(SourceRow("corpus.bin", int(ids.size), "0" * 16),),
        sample_size=sample_size,
        seed=0,
        dropped={},
        notes=tuple(notes),
        tokenizer=None if num_token_ids is None else TokenizerSizes("f" * 64, num_token_ids, num_token_ids, num_token_ids),
    )


def _windows_of(ids: npt.NDArray[np.int64], vocab_size: int, length: int, sample_size: int) -> WindowStatistics:
    cut = [ids[start : start + length] for start in range(0, ids.size, length)]
    presence = np.zeros(vocab_size, np.int64)
    whole = []
    for key, window in enumerate(cut):
        distinct, counts = np.unique(window, return_counts=True)
        presence[distinct] += 1
        if window.size == length:
            whole.append((key, distinct.astype(np.int32), counts.astype(np.int32)))
    return WindowStatistics(length, len(cut), presence, WindowSample.of(whole, sample_size))


@pytest.fixture(scope="session")
def profile_of() -> Callable[..., Profile]:
    """profile_of(tokens, vocab_size, windows=(64,), sample_size=16, notes=(), num_token_ids=None)."""
    return _profile_of


@pytest.fixture(scope="session")
def zipf_tokens() -> Callable[..., npt.NDArray[np.int64]]:
    """zipf_tokens(number, vocab_size, seed=0): ids whose frequency falls with the id, the last ids unseen."""

    def draw(number: int, vocab_size: int, seed: int = 0) -> npt.NDArray[np.int64]:
        seen = max(1, vocab_size * 3 // 4)
        weight = 1 / np.arange(1, seen + 1)
        return np.random.default_rng(seed).choice(seen, number, p=weight / weight.sum())

    return draw


@pytest.fixture(scope="session")
def run_python() -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """run_python(code, *arguments, env={...}): a fresh interpreter; None in `env` takes a variable away."""

    def run(
        code: str, *arguments: object, env: Mapping[str, str | None] | None = None, **options: Any
    ) -> "subprocess.CompletedProcess[str]":
        variables: dict[str, str | None] = {**os.environ, **(env or {})}
        return subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            env={name: value for name, value in variables.items() if value is not None},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            **options,
        )

    return run
