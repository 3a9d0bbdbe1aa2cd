"""`corpus_windows`: the whole windows one after the other, and the same windows as a profile samples."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool.corpus import Corpus, open_corpus
from skewtool.errors import CorpusError
from skewtool.profiling import corpus_windows, profile


def lists(windows: Iterable[tuple[Any, Any]]) -> list[tuple[list[int], list[int]]]:
    return [(ids.tolist(), counts.tolist()) for ids, counts in windows]


def ascending(ids: list[int], counts: list[int]) -> tuple[list[int], list[int]]:
    pairs = sorted(zip(ids, counts, strict=True))
    return [token for token, _ in pairs], [count for _, count in pairs]


@given(
    files=st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=40), min_size=1, max_size=3),
    length=st.integers(1, 9),
    dtype=st.sampled_from(["uint8", "uint16", "int32", "int64"]),
)
def test_windows_equal_the_naive_twin(
    files: list[list[int]], length: int, dtype: str, corpus_of: Callable[..., Corpus],
    naive_windows: Callable[..., Any],
) -> None:  # fmt: skip
    corpus = corpus_of({f"{number}.npy": ids for number, ids in enumerate(files)}, dtype)
    expected = []
    for ids in files:
        for start in range(0, len(ids) // length * length, length):
            expected += naive_windows([(0, ids[start : start + length])], 10, length, 1)[3]
    assert lists(corpus_windows(corpus, length, 10)) == [ascending(ids, counts) for _, ids, counts in expected]


def test_they_are_the_windows_that_a_profile_samples(corpus_of: Callable[..., Corpus]) -> None:
    random = np.random.default_rng(2)
    corpus = corpus_of({"a.npy": random.integers(0, 90, 500), "b.npy": random.integers(0, 90, 77)})
    sample = profile(corpus, vocab_size=90, windows=(16,), sample_size=10_000).window(16).sample
    windows = lists(corpus_windows(corpus, 16, 90))
    assert sorted(windows) == sorted(ascending(*each) for each in lists(window[1:] for window in sample.windows()))
    assert len(windows) == 500 // 16 + 77 // 16


def test_windows_go_on_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = np.arange(100, dtype=np.uint16)
    np.save(tmp_path / "a.npy", np.asfortranarray(ids.reshape(50, 2)))
    np.save(tmp_path / "b.npy", ids)
    (fortran, plain) = (lists(corpus_windows(open_corpus(tmp_path / name), 7, 100)) for name in ("a.npy", "b.npy"))
    assert fortran == plain == [(list(range(k, k + 7)), [1] * 7) for k in range(0, 98, 7)]


def test_yielded_windows_may_be_kept(corpus_of: Callable[..., Corpus]) -> None:
    kept = list(corpus_windows(corpus_of({"a.npy": [1, 1, 2, 3]}), 2, 5))
    assert lists(kept) == [([1], [2]), ([2, 3], [1, 1])]


def test_bad_ids_stop_or_are_no_lookups(corpus_of: Callable[..., Corpus]) -> None:
    corpus = corpus_of({"a.npy": [1, 9, 9, 9, 2, 2]})
    with pytest.raises(CorpusError, match="9 at token 1"):
        list(corpus_windows(corpus, 2, 5))
    assert lists(corpus_windows(corpus, 2, 5, allow=("bad-ids",))) == [([1], [1]), ([], []), ([2], [2])]
