"""What every format promises: exact ids in order, any stretch of them, sizes, and no wrong number from a damaged file."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from skewtool.corpus import Corpus
from skewtool.errors import SkewtoolError

DOCUMENTS = [[5, 6, 70_000], [1], [7, 8, 9, 2, 100_000], [4, 4], [128_000, 3]]
IDS = [token for document in DOCUMENTS for token in document]

NO_END = ("raw", "jsonl")  # nothing in the file says how long it should be
CHECKED = ("npz", "npz deflated", "jsonl gz", "jsonl zst", "litdata zstd", "mds zstd", "mds gz", "tar gz")
"""Compressed with a checksum over every byte of the ids."""

HIDES_TOKENS = {"jsonl", "jsonl gz", "jsonl zst", "tar", "tar gz", "mds", "mds zstd", "mds gz", "mds bytes"}
"""Formats whose number of tokens only reading all of them tells."""

KNOWS_DOCUMENTS = {
    "olmo", "fairseq", "fairseq cached", "neox cached", "litdata", "litdata zstd", "mds", "mds zstd", "mds gz", "mds bytes",
    "datatrove", "hf", "hf dict", "arrow stream", "arrow file", "parquet",
}  # fmt: skip

NEEDS_A_PACKAGE = {
    "hf", "hf dict", "arrow stream", "arrow file", "parquet", "jsonl", "jsonl gz", "jsonl zst", "tar gz", "mds zstd",
    "litdata zstd",
}  # fmt: skip

quick = settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def test_ids_sizes_and_a_part(
    layout: str, tmp_path: Path, write_as: Callable[..., Path], open_as: Callable[..., Corpus],
    ids_of: Callable[..., list[int]],
) -> None:  # fmt: skip
    corpus = open_as(layout, write_as(layout, tmp_path, DOCUMENTS))
    assert ids_of(corpus) == ids_of(corpus, block_tokens=3) == IDS
    assert corpus.num_tokens == (None if layout in HIDES_TOKENS else len(IDS))
    assert corpus.num_documents == (len(DOCUMENTS) if layout in KNOWS_DOCUMENTS else None)
    assert corpus.empty_files == corpus.ignored_files == ()
    if corpus.num_tokens is not None:
        parts = [*ids_of(corpus.part(0, 0.4)), *ids_of(corpus.part(0.4, 1))]
        assert parts == ids_of(corpus)


@quick
@given(documents=st.lists(st.lists(st.integers(0, 2**31 - 2), max_size=9), min_size=1, max_size=9), data=st.data())
def test_any_documents_and_any_stretch(
    layout: str, documents: Sequence[Sequence[int]], data: st.DataObject, new_dir: Callable[[], Path],
    write_as: Callable[..., Path], open_as: Callable[..., Corpus], ids_of: Callable[..., list[int]],
) -> None:  # fmt: skip
    expected = [token for document in documents for token in document]
    assume(expected)
    corpus = open_as(layout, write_as(layout, new_dir(), documents))
    assert ids_of(corpus, block_tokens=data.draw(st.integers(1, 12))) == expected
    for source in corpus.sources:
        ids = [int(token) for block in source.blocks() for token in block]
        start = data.draw(st.integers(0, len(ids)))
        stop = data.draw(st.integers(start, len(ids)))
        found = [int(token) for block in source.blocks(start, stop, data.draw(st.integers(1, 9))) for token in block]
        assert found == ids[start:stop]


@settings(quick, max_examples=60)
@given(data=st.data())
def test_a_damaged_file_is_an_error_or_gives_the_right_number(
    layout: str, data: st.DataObject, new_dir: Callable[[], Path], write_as: Callable[..., Path],
    open_as: Callable[..., Corpus], ids_of: Callable[..., list[int]],
) -> None:  # fmt: skip
    folder = new_dir()
    path = write_as(layout, folder, DOCUMENTS)
    file = data.draw(st.sampled_from([each for each in sorted(folder.rglob("*")) if each.is_file()]))
    content = file.read_bytes()
    damage = data.draw(st.sampled_from(["cut", "flip", "swap", "append", "empty"]))
    place = data.draw(st.integers(0, len(content) - 1))
    file.write_bytes(_damaged(content, damage, place, data))
    try:
        ids = ids_of(open_as(layout, path))
    except SkewtoolError:
        return
    if layout in NO_END:
        return
    assert len(ids) == len(IDS)
    if layout in CHECKED and file.suffix != ".json":
        assert ids == IDS


def _damaged(content: bytes, damage: str, place: int, data: st.DataObject) -> bytes:
    if damage == "cut":
        return content[:place]
    if damage == "flip":
        flipped = bytearray(content)
        flipped[place] ^= data.draw(st.integers(1, 255))
        return bytes(flipped)
    if damage == "swap":
        heads = [b"MMIDIDX\0\0", b"PAR1", b"ARROW1\0\0", b"\xff\xff\xff\xff", b"PK\x03\x04", b"\x93NUMPY", b"LITPKDS",
                 b"TNTIDX\0\0", b"\x28\xb5\x2f\xfd", b"\x1f\x8b\x08", b"{", b'{"shards": [']  # fmt: skip
        head = data.draw(st.sampled_from(heads))
        return head + content[len(head) :]
    return content + data.draw(st.binary(min_size=1, max_size=20)) if damage == "append" else b""


def test_pieces_of_other_sizes_read_the_same(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_as: Callable[..., Path],
    open_as: Callable[..., Corpus], ids_of: Callable[..., list[int]],
) -> None:  # fmt: skip
    """With blocks of two tokens inside the readers, every cut is met."""
    path = write_as(layout, tmp_path, DOCUMENTS)
    for module in ("npy", "parquet", "megatron"):
        monkeypatch.setattr(f"skewtool.corpus.{module}.BLOCK_TOKENS", 2)
    told: list[int] = []
    corpus = open_as(layout, path)
    assert ids_of(corpus) == [int(t) for s in corpus.sources for b in s.blocks(progress=told.append) for t in b] == IDS
    assert sum(told) > 0


def test_a_missing_package_is_named_with_the_command(
    layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_as: Callable[..., Path],
    open_as: Callable[..., Corpus], ids_of: Callable[..., Any],
) -> None:  # fmt: skip
    path = write_as(layout, tmp_path, DOCUMENTS)
    for package in ("pyarrow", "pyarrow.parquet", "orjson", "zstandard"):
        monkeypatch.setitem(sys.modules, package, None)
    if layout in NEEDS_A_PACKAGE:
        with pytest.raises(SkewtoolError, match=r"pip install 'skewtool\[arrow\]'"):
            ids_of(open_as(layout, path))
    else:
        assert ids_of(open_as(layout, path)) == IDS
