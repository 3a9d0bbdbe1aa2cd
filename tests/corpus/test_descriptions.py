"""Files that describe others: damaged or missing ones never let their data be misread."""

from collections.abc import Callable
from pathlib import Path

import pytest

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError

DOCUMENTS = [[5, 6], [1], [70_000], [8, 9]]


@pytest.mark.parametrize(("layout", "name"), [
    ("hf", "state.json"), ("hf dict", "dataset_dict.json"), ("mds", "index.json"), ("mds zstd", "index.json"),
    ("litdata", "index.json"), ("fairseq", "train.idx"), ("datatrove", "00000_00000_shuffled.ds.metadata"),
])  # fmt: skip
@pytest.mark.parametrize("content", [b"", b"{", b'{"a": 1}', b"\0\1\2\3"])
def test_a_description_that_does_not_describe(
    layout: str, name: str, content: bytes, tmp_path: Path, write_as: Callable[..., Path]
) -> None:
    write_as(layout, tmp_path, DOCUMENTS)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(CorpusError, match=rf"{name} should describe .*restore it, or move it away"):
        open_corpus(tmp_path, dtype="uint32")


@pytest.mark.parametrize("name", ["state.json", "index.json", "a.idx", "x.metadata"])
def test_files_of_such_names_without_data_beside_them(
    name: str, tmp_path: Path, write_raw: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    write_raw(tmp_path / "train.bin", [7, 8])
    (tmp_path / name).write_text('{"step": 3}')
    corpus = open_corpus(tmp_path, dtype="uint16")
    assert (ids_of(corpus), corpus.ignored_files) == ([7, 8], (name,))


def test_data_of_a_description_are_never_raw_ids(tmp_path: Path, write_as: Callable[..., Path]) -> None:
    write_as("mds", tmp_path, DOCUMENTS)
    with pytest.raises(CorpusError, match="begins like mds, so it cannot be read as raw"):
        open_corpus(tmp_path / "shard.00000.mds", format="raw", dtype="uint32")
