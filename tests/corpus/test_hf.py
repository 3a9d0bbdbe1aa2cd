"""Data sets saved to disk: what state.json lists, and nothing else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError

DOCUMENTS = [[5, 6], [1], [70_000], [8, 9]]


def test_only_listed_files_are_read(tmp_path: Path, write_as: Callable[..., Path], ids_of: Callable[..., list[int]]) -> None:
    write_as("hf", tmp_path, DOCUMENTS)
    for path in (tmp_path, tmp_path / "state.json"):
        corpus = open_corpus(path)
        assert (corpus.format, ids_of(corpus), corpus.num_documents) == ("hf", [5, 6, 1, 70_000, 8, 9], 4)
        assert [source.name for source in corpus.sources] == [f"data-0000{number}-of-00002.arrow" for number in (0, 1)]
        assert any("cache-1234.arrow" in note for note in corpus.notes)


def test_a_split_of_a_dictionary(tmp_path: Path, write_as: Callable[..., Path], ids_of: Callable[..., list[int]]) -> None:
    write_as("hf dict", tmp_path, DOCUMENTS)
    assert ids_of(open_corpus(tmp_path)) == ids_of(open_corpus(tmp_path / "dataset_dict.json")) == [5, 6, 1, 70_000, 8, 9]
    assert ids_of(open_corpus(tmp_path / "train")) == [70_000, 8, 9]
    assert open_corpus(tmp_path).sources[0].name == "test/data-00000-of-00002.arrow"
    (tmp_path / "train" / "state.json").unlink()
    with pytest.raises(CorpusError, match="lists the split train, but"):
        open_corpus(tmp_path)


@pytest.mark.parametrize(("state", "match"), [
    ({"_data_files": [{"filename": "gone.arrow"}]}, r"lists .*gone\.arrow, which is not there"),
    ({"_data_files": [{"filename": "../x.arrow"}]}, "below the index"),
    ({"_data_files": ["x"]}, "list of objects"),
    ({"_data_files": [], "_indices_data_files": [{"filename": "i.arrow"}]}, "selects rows by indices"),
])  # fmt: skip
def test_what_a_state_cannot_say(
    state: dict[str, Any], match: str, tmp_path: Path, write_as: Callable[..., Path]
) -> None:
    write_as("hf", tmp_path, DOCUMENTS)
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(CorpusError, match=match):
        open_corpus(tmp_path)
