"""What is known of the sample before anything is counted."""

from pathlib import Path

import numpy as np
import pytest

from skewtool.corpus import Corpus, open_corpus
from skewtool.profiling import profile, window_keys
from skewtool.profiling.window_keys import LARGEST_KEY, largest_sampled_key, source_key, window_key

SIZES = {"a.bin": 1000, "b.bin": 37, "c/a.bin": 640, "short.bin": 7}


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    ids = np.random.default_rng(5)
    for name, size in SIZES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        ids.integers(0, 50, size).astype("<u2").tofile(tmp_path / name)
    return open_corpus(tmp_path, dtype="uint16")


def _keys(length: int, seed: int) -> list[int]:
    """Of all whole windows, ascending, one by one."""
    return sorted(
        int(window_key(np.uint64(source_key(name, seed)), position))
        for name, size in SIZES.items()
        for position in range(0, size - length + 1, length)
    )


@pytest.mark.parametrize("at_once", [1, 3, 1 << 20])
@pytest.mark.parametrize("length", [1, 8, 640])
@pytest.mark.parametrize("sample_size", [1, 5, 100])
def test_the_largest_key_is_that_of_the_sample(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch, at_once: int, length: int, sample_size: int
) -> None:
    monkeypatch.setattr(window_keys, "_KEYS_AT_ONCE", at_once)
    for seed in (0, 7):
        keys = _keys(length, seed)
        expected = keys[sample_size - 1] if sample_size <= len(keys) else LARGEST_KEY
        assert largest_sampled_key(corpus, length, sample_size, seed) == expected


def test_no_sample_has_no_largest_key(corpus: Corpus) -> None:
    assert largest_sampled_key(corpus, 8, 0, 0) == 0


@pytest.mark.parametrize("workers", [1, 3])
def test_the_sample_has_the_smallest_keys(corpus: Corpus, workers: int) -> None:
    made = profile(corpus, windows=(8, 24), sample_size=10, seed=3, workers=workers)
    for window in made.windows:
        assert window.sample.keys.tolist() == _keys(window.length, 3)[:10]


def test_sources_of_unknown_size_may_only_lower_it(tmp_path: Path, corpus: Corpus) -> None:
    """Their keys are met while counting; the largest key of the others still bounds those of the sample."""
    lines = "\n".join(f'{{"input_ids": {list(range(k % 30, k % 30 + 20))}}}' for k in range(100))
    (tmp_path / "more.jsonl").write_text(lines)
    both = Corpus((*corpus.sources, *open_corpus(tmp_path / "more.jsonl").sources))
    assert largest_sampled_key(both, 8, 10, 3) == _keys(8, 3)[9]
    of_lines = [int(window_key(np.uint64(source_key("more.jsonl", 3)), position)) for position in range(0, 2000, 8)]
    made = profile(both, windows=(8,), sample_size=10, seed=3)
    assert made.windows[0].sample.keys.tolist() == sorted(_keys(8, 3) + of_lines)[:10]
