"""litdata's chunks: the index says what they are, and they must be as long as it says."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError

DOCUMENTS = [[5, 6], [70_000]]


def changed(folder: Path, part: str, **values: Any) -> Path:
    """The index with other values in its config or its only chunk."""
    index = json.loads((folder / "index.json").read_text())
    (index["config"] if part == "config" else index["chunks"][0]).update(values)
    (folder / "index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize("layout", ["litdata", "litdata zstd"])
def test_index_directory_and_chunk_name_the_same_corpus(
    layout: str, tmp_path: Path, write_as: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    write_as(layout, tmp_path, DOCUMENTS)
    chunk = next(tmp_path.glob("chunk-*"))
    for path in (tmp_path, tmp_path / "index.json", chunk):
        corpus = open_corpus(path)
        assert (corpus.format, str(corpus.dtype), ids_of(corpus)) == ("litdata", "int32", [5, 6, 70_000])
        assert [source.name for source in corpus.sources] == [chunk.name]


@pytest.mark.parametrize(("part", "values", "match"), [
    ("config", {"encryption": {"algorithm": "fernet"}}, "encrypted"),
    ("config", {"compression": "gzip"}, "compressed with 'gzip'"),
    ("config", {"compression": "zstd", "compression_level": "batch"}, "by 'batch'"),
    ("config", {"data_format": ["no_header_tensor:0"]}, "only bare token ids"),
    ("config", {"data_format": ["no_header_tensor:20"]}, "promises 3 uint16 tokens"),
    ("config", {"data_format": ["int", "no_header_tensor:16"]}, "only bare token ids"),
    ("chunk", {"dim": None}, "TokensLoader"),
    ("chunk", {"dim": 4}, "promises 4 int32 tokens"),
    ("chunk", {"chunk_size": 3}, "promises 3 int32 tokens in 3 items"),
    ("chunk", {"filename": "../chunk-0-0.bin"}, "below the index"),
    ("chunk", {"filename": "chunk-0-1.bin"}, "is not there"),
])  # fmt: skip
def test_what_an_index_cannot_say(
    part: str, values: dict[str, Any], match: str, tmp_path: Path, write_as: Callable[..., Path]
) -> None:
    write_as("litdata", tmp_path, DOCUMENTS)
    with pytest.raises(CorpusError, match=match):
        open_corpus(changed(tmp_path, part, **values))


def test_numpys_table_of_types_is_another(
    tmp_path: Path, write_as: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    write_as("litdata", tmp_path, DOCUMENTS)
    changed(tmp_path, "config", data_format=["no_header_numpy:6"])
    corpus = open_corpus(tmp_path)
    assert (str(corpus.dtype), ids_of(corpus)) == ("uint32", [5, 6, 70_000])
