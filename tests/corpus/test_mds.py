"""MDS: columns of several encodings, merged indexes, hashes, and what is refused."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError

DOCUMENTS = [[5, 6], [], [70_000]]


def changed(folder: Path, **values: Any) -> Path:
    """The index with other values for its only shard."""
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0].update(values)
    (folder / "index.json").write_text(json.dumps(index))
    return folder


def test_index_directory_and_shard_name_the_same_corpus(
    tmp_path: Path, write_as: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    write_as("mds zstd", tmp_path, DOCUMENTS)
    for path in (tmp_path, tmp_path / "index.json", tmp_path / "shard.00000.mds.zstd"):
        corpus = open_corpus(path)
        assert (corpus.format, str(corpus.dtype), ids_of(corpus)) == ("mds", "uint32", [5, 6, 70_000])
        assert [source.name for source in corpus.sources] == ["shard.00000.mds.zstd"]


def test_bytes_need_a_dtype(tmp_path: Path, write_as: Callable[..., Path], ids_of: Callable[..., list[int]]) -> None:
    write_as("mds bytes", tmp_path, DOCUMENTS)
    with pytest.raises(CorpusError, match=r"type is not recorded; pass --dtype .*int64"):
        open_corpus(tmp_path)
    assert ids_of(open_corpus(tmp_path, dtype="uint32")) == [5, 6, 70_000]
    with pytest.raises(CorpusError, match="do not have the shape"):
        ids_of(open_corpus(tmp_path, dtype="int64"))


def test_fixed_shapes_tell_the_number_of_tokens(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    ids = np.arange(12, dtype="<i4").reshape(3, 4)
    columns = {"column_names": ["input_ids"], "column_encodings": ["ndarray:int32:4"], "column_sizes": [16]}
    config = json.dumps({**columns, "format": "mds", "version": 2}).encode()
    offsets = 20 + len(config) + 16 * np.arange(4, dtype="<u4")
    content = np.uint32(3).tobytes() + offsets.astype("<u4").tobytes() + config + ids.tobytes()
    (tmp_path / "s.mds").write_bytes(content)
    shard = {**columns, "compression": None, "format": "mds", "raw_data": {"basename": "s.mds", "bytes": len(content)},
             "samples": 3, "version": 2, "zip_data": None}  # fmt: skip
    (tmp_path / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    corpus = open_corpus(tmp_path)
    assert (corpus.num_tokens, corpus.num_documents) == (12, 3)
    assert ids_of(corpus.part(0, 0.5)) + ids_of(corpus.part(0.5, 1)) == [*range(12)]


@pytest.mark.parametrize(("values", "match"), [
    ({"column_encodings": ["str", "pkl"]}, "pickles are never loaded"),
    ({"column_encodings": ["str", "ndarray:float32"]}, "holds no token ids"),
    ({"column_encodings": ["str", "ndarray:int64"]}, "describes other columns than its index"),
    ({"column_names": ["note", "text"]}, "no column 'input_ids' or .*found: note, text"),
    ({"column_sizes": [None]}, "lists of one length"),
    ({"format": "json"}, "format 'json'"),
    ({"samples": 4}, "holds 3 samples, but its index promises 4"),
    ({"samples": None}, "None samples"),
    ({"raw_data": {"basename": "shard.00000.mds", "bytes": 7}}, "but its index promises 7"),
    ({"raw_data": {"basename": "/etc/passwd", "bytes": 7}}, "below the index"),
    ({"raw_data": {"basename": "gone.mds", "bytes": 7}}, "is not there"),
    ({"raw_data": {"basename": "gone.mds", "bytes": 7}, "zip_data": {"basename": "x"}, "compression": "snappy"}, "snappy"),
])  # fmt: skip
def test_what_an_index_cannot_say(
    values: dict[str, Any], match: str, tmp_path: Path, write_as: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    write_as("mds", tmp_path, DOCUMENTS)
    with pytest.raises(CorpusError, match=match):
        ids_of(open_corpus(changed(tmp_path, **values)))


def test_hashes_are_compared(tmp_path: Path, write_as: Callable[..., Path], ids_of: Callable[..., list[int]]) -> None:
    write_as("mds", tmp_path, DOCUMENTS)
    content = (tmp_path / "shard.00000.mds").read_bytes()
    raw = {"basename": "shard.00000.mds", "bytes": len(content)}
    digests = {"sha1": hashlib.sha1(content, usedforsecurity=False).hexdigest(), "xxh64": "not known here"}
    changed(tmp_path, raw_data=raw | {"hashes": digests})
    assert ids_of(open_corpus(tmp_path)) == [5, 6, 70_000]
    changed(tmp_path, raw_data=raw | {"hashes": {"sha1": "0" * 40}})
    with pytest.raises(CorpusError, match="its sha1 is"):
        ids_of(open_corpus(tmp_path))


def test_a_merged_index_counts_its_parts_once(
    tmp_path: Path, write_as: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    shards = []
    for name, documents in (("a", [[1, 2]]), ("b", [[3]])):
        (tmp_path / name).mkdir()
        write_as("mds", tmp_path / name, documents)
        shard = json.loads((tmp_path / name / "index.json").read_text())["shards"][0]
        shard["raw_data"]["basename"] = f"{name}/{shard['raw_data']['basename']}"
        shards.append(shard)
    assert ids_of(open_corpus(tmp_path)) == [1, 2, 3]  # two data sets beside each other
    (tmp_path / "index.json").write_text(json.dumps({"shards": shards, "version": 2}))
    corpus = open_corpus(tmp_path)
    assert ids_of(corpus) == [1, 2, 3]
    assert [source.name for source in corpus.sources] == ["a/shard.00000.mds", "b/shard.00000.mds"]
