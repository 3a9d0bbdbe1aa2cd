"""Real files of ten writers, where they are at hand: counts as another program counted them."""

import json
from pathlib import Path
from typing import Any

import pytest

import skewtool

DATA = Path(skewtool.__file__).parents[2] / "shared" / "data"
EXPECTED: dict[str, dict[str, Any]] = (
    json.loads((DATA / "expected.json").read_text()) if (DATA / "expected.json").is_file() else {}
)


@pytest.mark.skipif(not EXPECTED, reason="the folder of shared corpora is not there")
@pytest.mark.parametrize("name", EXPECTED)
def test_counts_of_real_files(name: str) -> None:
    expected = EXPECTED[name]
    corpus = skewtool.open_corpus(DATA / name, dtype=expected["dtype"] if expected["format"] == "raw" else None)
    assert corpus.format == expected["format"]
    made = skewtool.profile(corpus, vocab_size=expected["vocab_size"], windows=(), workers=2)
    assert (made.num_tokens, made.num_distinct) == (expected["num_tokens"], expected["num_distinct"])
    assert made.counts_sha256 == expected["counts_sha256"]
    assert made.dropped == {}
    if "num_documents" in expected and expected["format"] != "jsonl":
        assert corpus.num_documents == expected["num_documents"]
