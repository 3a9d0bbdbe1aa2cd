"""Remote Arrow files, of which only one column is read: the same as locally, and no wrong number from a damaged file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given, settings
from hypothesis import strategies as st

from skewtool.corpus import Corpus, open_corpus
from skewtool.corpus.arrow import RemoteArrowSource
from skewtool.errors import CorpusError

URL = "memory://arrow-batches/a.arrow"

OTHERS: dict[str, Callable[[int], Any]] = {
    "none": lambda rows: pa.nulls(rows),
    "text": lambda rows: pa.array([None if row % 3 else "é" * row for row in range(rows)]),
    "bytes": lambda rows: pa.array([b"x" * row for row in range(rows)], pa.large_binary()),
    "whole": lambda rows: pa.array(range(rows), pa.int16()),
    "flags": lambda rows: pa.array([row % 2 == 0 for row in range(rows)]),
    "decimal": lambda rows: pa.array(range(rows), pa.decimal128(9)),
    "time": lambda rows: pa.array(range(rows), pa.timestamp("s")),
    "lists": lambda rows: pa.array([[["a"] * row] for row in range(rows)], pa.list_(pa.list_(pa.string()))),
    "pairs": lambda rows: pa.array([[row, row] for row in range(rows)], pa.list_(pa.int64(), 2)),
    "struct": lambda rows: pa.array([{"a": row, "b": "x"} for row in range(rows)]),
}
NOT_SIMPLE: dict[str, Callable[[int], Any]] = {
    "dictionary": lambda rows: pa.array(["a", "b"] * rows)[:rows].dictionary_encode(),
    "view": lambda rows: pa.array(["a long text of many letters"] * rows, pa.string_view()),
}
KINDS = [pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.list_(pa.uint16(), 3), pa.list_view(pa.int32()), pa.uint16()]


@pytest.fixture(autouse=True)
def empty_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFileSystem, "store", {})


def table_of(kind: Any, others: list[str], documents: list[list[int] | None]) -> Any:
    rows = len(documents)
    if not pa.types.is_nested(kind):
        values: list[Any] = [None if each is None else len(each) for each in documents]
    else:
        values = [None if each is None else (each + [0, 0, 0])[:3] if kind == KINDS[2] else each for each in documents]
    columns = {name: (OTHERS | NOT_SIMPLE)[name](rows) for name in others}
    return pa.table({**columns, "input_ids": pa.array(values, kind), "after": pa.array(["z"] * rows)})


def written(table: Any, is_file: bool, batch_rows: int, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    new = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    return bytes(sink.getvalue())


def remote(content: bytes) -> Corpus:
    MemoryFileSystem().pipe_file("/arrow-batches/a.arrow", content)
    return open_corpus(URL)


def ids_in(corpus: Corpus, start: int = 0) -> list[int]:
    (source,) = corpus.sources
    return [int(token) for block in source.blocks(start, source.num_tokens, 7) for token in block]


def ids_or_none(opened: Callable[[], Corpus]) -> list[int] | None:
    try:
        return ids_in(opened())
    except CorpusError:
        return None


DOCUMENTS = st.lists(st.none() | st.lists(st.integers(0, 60_000), max_size=5), min_size=1, max_size=9)


@settings(max_examples=60)
@given(
    kind=st.sampled_from(KINDS),
    others=st.lists(st.sampled_from([*OTHERS, *NOT_SIMPLE]), max_size=4, unique=True),
    documents=DOCUMENTS,
    layout=st.tuples(st.booleans(), st.integers(1, 4), st.sampled_from([None, "zstd", "lz4"])),
    cut=st.integers(0, 3),
    data=st.data(),
)
def test_remote_is_as_local(
    new_dir: Callable[[], Path], kind: Any, others: list[str], documents: list[list[int] | None],
    layout: tuple[bool, int, str | None], cut: int, data: st.DataObject,
) -> None:  # fmt: skip
    content = written(table_of(kind, others, documents).slice(cut), *layout)
    path = new_dir() / "a.arrow"
    path.write_bytes(content)
    try:
        local = open_corpus(path)
    except CorpusError as error:
        with pytest.raises(CorpusError, match=str(error).replace(str(path), "").split(" (")[0].strip()):
            remote(content)
        return
    found = remote(content)
    simple = not set(others) & set(NOT_SIMPLE) and not pa.types.is_list_view(kind)
    assert isinstance(found.sources[0], RemoteArrowSource) == simple
    assert (found.num_tokens, found.num_documents, found.notes) == (local.num_tokens, local.num_documents, local.notes)
    assert ids_in(found) == ids_in(local)
    start = data.draw(st.integers(0, found.num_tokens or 0))
    assert ids_in(found, start) == ids_in(local)[start:]


@settings(max_examples=150)
@given(data=st.data(), is_file=st.booleans(), compression=st.sampled_from([None, "zstd"]))
def test_a_damaged_file_is_an_error_or_gives_the_right_number(
    data: st.DataObject, is_file: bool, compression: str | None, new_dir: Callable[[], Path]
) -> None:
    """Offsets that are wrong and ascend are as good as right ones: no checksum is on them."""
    documents: list[list[int] | None] = [[5, 6], [7, 8, 9], [], None, [1, 2, 3, 4]]
    content = bytearray(written(table_of(KINDS[0], ["text", "whole"], documents), is_file, 2, compression))
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= data.draw(st.integers(1, 255))
    else:
        del content[place:]
    path = new_dir() / "a.arrow"
    path.write_bytes(content)
    found, local = (ids_or_none(each) for each in (lambda: remote(bytes(content)), lambda: open_corpus(path)))
    assert found is None or len(found) == 9 or found == local


def test_small_batches_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    documents: list[list[int] | None] = [[row % 50] * 500 for row in range(4000)]
    corpus = remote(written(table_of(KINDS[0], ["whole"], documents), False, 10))
    requests: list[int] = []
    plain = MemoryFileSystem.cat_file

    def counted(self: Any, path: str, start: int | None = None, end: int | None = None, **more: Any) -> bytes:
        content: bytes = plain(self, path, start, end, **more)
        requests.append(len(content))
        return content

    monkeypatch.setattr(MemoryFileSystem, "cat_file", counted)
    assert sum(int(block.sum()) for block in corpus.blocks()) == sum(row % 50 * 500 for row in range(4000))
    assert len(requests) <= 3
    assert sum(requests) < 1.1 * 4000 * 500 * 4
