"""Mixtures: as many tokens of each corpus as its weight says, from the beginning, again when it is used up."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError
from skewtool.profiling import profile


@pytest.fixture
def mixture(tmp_path: Path) -> Callable[..., Path]:
    """mixture(weight of 8 ids 1 to 8, weight of 4 ids 11 to 14, tokens=None): a mixture of a .npy and a raw file."""
    np.save(tmp_path / "a.npy", np.arange(1, 9))
    np.arange(11, 15).astype("<u2").tofile(tmp_path / "b.bin")

    def write(first: Any, second: Any, **more: Any) -> Path:
        parts = [{"path": "a.npy", "weight": first}, {"path": "b.bin", "weight": second, "dtype": "uint16"}]
        (tmp_path / "mix.json").write_text(json.dumps({"mixture": parts, **more}))
        return tmp_path / "mix.json"

    return write


@pytest.mark.parametrize(("weights", "tokens", "expected"), [
    ((2, 1), None, [*range(1, 9), *range(11, 15)]),
    ((1, 1), None, [1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 11, 12]),
    ((0.25, 0.75), 8, [1, 2, 11, 12, 13, 14, 11, 12]),
    ((3, 1), 16, [*range(1, 9), 1, 2, 3, 4, *range(11, 15)]),
])  # fmt: skip
def test_shares(
    weights: tuple[float, float], tokens: int | None, expected: list[int], mixture: Callable[..., Path],
    ids_of: Callable[..., list[int]],
) -> None:  # fmt: skip
    corpus = open_corpus(mixture(*weights, **({} if tokens is None else {"tokens": tokens})))
    assert (ids_of(corpus), corpus.num_tokens) == (expected, len(expected))
    assert len({source.name for source in corpus.sources}) == len(corpus.sources)
    made = profile(corpus, windows=(2,))
    assert made.counts.tolist() == np.bincount(expected).tolist()


@pytest.mark.parametrize(("content", "match"), [
    ('{"mixture": []}', "list of objects with a path and a weight"),
    ('{"mixture": [{"path": "a.npy"}]}', "needs a path and a weight"),
    ('{"mixture": [{"path": "a.npy", "weight": "1"}]}', "needs a path and a weight"),
    ('{"mixture": [{"path": "a.npy", "weight": 0}]}', "weight 0; weights are above 0"),
    ('{"mixture": [{"path": "a.npy", "weight": NaN}]}', "weights are above 0"),
    ('{"mixture": [{"path": "a.npy", "weight": 1, "wieght": 2}]}', "has wieght"),
    ('{"mixture": [{"path": "a.npy", "weight": 1, "dtype": 2}]}', "are strings"),
    ('{"mixture": [{"path": "gone.npy", "weight": 1}]}', "no file or directory"),
    ('{"mixture": [{"path": "a.npy", "weight": 1}], "tokens": 0}', "'tokens', a whole number"),
    ('{"mixture": [{"path": "a.npy", "weight": 1}], "tokens": 1000000}', "would be read 125000 times"),
    ('{"mixture": [{"path": "c.jsonl", "weight": 1}]}', "is unknown before all is read"),
    ('{"mixture": [', "no JSON"),
])  # fmt: skip
def test_what_is_no_mixture(content: str, match: str, mixture: Callable[..., Path]) -> None:
    path = mixture(1, 1)
    (path.parent / "c.jsonl").write_text('{"tokens": [1]}\n')
    path.write_text(content)
    with pytest.raises(CorpusError, match=match):
        open_corpus(path)


def test_a_mixture_in_a_directory_is_not_read(mixture: Callable[..., Path]) -> None:
    corpus = open_corpus(mixture(1, 1).parent, format="npy")
    assert (corpus.num_tokens, corpus.ignored_files) == (8, ("b.bin", "mix.json"))
