"""Arrow and Parquet columns of every type that holds ids; nulls; columns that hold none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skewtool.corpus import open_corpus
from skewtool.errors import CorpusError
from skewtool.profiling import profile


def _stream(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


def _file(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


SAVE: dict[str, Callable[[pa.Table, Path], None]] = {
    "stream": _stream, "file": _file, "parquet": lambda table, path: pq.write_table(table, path),
}  # fmt: skip


@pytest.fixture(params=list(SAVE))
def save(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., Path]:
    """save(rows, type, name="input_ids"): a file with one column."""

    def write(rows: list[Any], kind: Any, name: str = "input_ids") -> Path:
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.data"
        SAVE[request.param](pa.table({name: pa.array(rows, kind)}), path)
        return path

    return write


@pytest.mark.parametrize("kind", [
    pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.list_(pa.uint16()), pa.list_(pa.int8()), pa.list_(pa.uint64()),
    pa.list_(pa.int64(), 2),
])  # fmt: skip
def test_lists_of_integers(kind: Any, save: Callable[..., Path], ids_of: Callable[..., list[int]]) -> None:
    corpus = open_corpus(save([[1, 2], [3, 4], [5, 6]], kind))
    assert (ids_of(corpus), corpus.num_documents, corpus.num_tokens) == ([1, 2, 3, 4, 5, 6], 3, 6)
    assert corpus.dtype == kind.value_type.to_pandas_dtype()


def test_a_flat_column_has_no_documents(save: Callable[..., Path], ids_of: Callable[..., list[int]]) -> None:
    corpus = open_corpus(save([1, 2, 3], pa.int64()))
    assert (ids_of(corpus), corpus.num_documents) == ([1, 2, 3], None)


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.large_list(pa.int64())])
def test_null_rows_and_empty_rows_hold_nothing(
    kind: Any, save: Callable[..., Path], ids_of: Callable[..., list[int]]
) -> None:
    corpus = open_corpus(save([[4], None, [], [7, 8]], kind))
    assert (ids_of(corpus), corpus.num_tokens, corpus.num_documents) == ([4, 7, 8], 3, 4)
    assert any("1 rows are null" in note for note in corpus.notes)


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.list_(pa.uint16())])
def test_a_null_among_the_ids_is_a_bad_id(kind: Any, save: Callable[..., Path]) -> None:
    corpus = open_corpus(save([[5, None, 6]], kind))
    assert corpus.num_tokens == 3
    with pytest.raises(CorpusError, match=r"first -1 at token 1.*null"):
        profile(corpus, vocab_size=10)
    assert profile(corpus, vocab_size=10, windows=(), allow=["bad-ids"]).dropped == {"bad-ids": 1}


def test_lists_of_lists_are_flattened_only_when_asked(save: Callable[..., Path], ids_of: Callable[..., list[int]]) -> None:
    path = save([[[1, 2], [3]], [[4]]], pa.list_(pa.list_(pa.int32())))
    with pytest.raises(CorpusError, match=r"'input_ids' is of type .*lists within lists.*--allow nested-lists"):
        open_corpus(path)
    assert ids_of(open_corpus(path, allow=["nested-lists"])) == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.list_(pa.float32()), pa.string()])
def test_other_types_are_named(kind: Any, save: Callable[..., Path]) -> None:
    rows = {"string": "a", "list<item: string>": ["a"]}.get(str(kind), [1.0])
    with pytest.raises(CorpusError, match=r"\.data: column 'input_ids' is of type .*must be integers"):
        open_corpus(save([rows], kind))


def test_the_column_can_be_chosen(save: Callable[..., Path], ids_of: Callable[..., list[int]]) -> None:
    path = save([[1], [2]], pa.list_(pa.int32()), name="my_ids")
    with pytest.raises(CorpusError, match=r"no column 'input_ids' or .*found: my_ids\); pass --column"):
        open_corpus(path)
    assert ids_of(open_corpus(path, column="my_ids")) == [1, 2]
    with pytest.raises(CorpusError, match="no column 'n'"):
        open_corpus(path, column="n")


def test_files_of_several_types_are_one_corpus(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    kinds = [pa.list_(pa.int32()), pa.large_list(pa.int64()), pa.list_(pa.uint16()), pa.list_(pa.int64(), 2)]
    for number, kind in enumerate(kinds):
        pq.write_table(pa.table({"input_ids": pa.array([[number, 9]], kind)}), tmp_path / f"{number}.parquet")
    corpus = open_corpus(tmp_path)
    assert ids_of(corpus) == [0, 9, 1, 9, 2, 9, 3, 9]
    assert profile(corpus, windows=(2,)).counts.tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0, 4]


def test_no_rows_at_all(save: Callable[..., Path]) -> None:
    with pytest.raises(CorpusError, match="no tokens"):
        open_corpus(save([], pa.list_(pa.int32())))


def test_slices_are_read_without_what_was_sliced_off(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    _stream(pa.table({"input_ids": [[1], [2, 3], [4]]}).slice(1, 1), tmp_path / "a.arrow")
    assert ids_of(open_corpus(tmp_path / "a.arrow")) == [2, 3]


@pytest.mark.parametrize("row_group_size", [1, 7, 1000])
@pytest.mark.parametrize("workers", [1, 2])
def test_parquet_gives_the_profile_of_the_same_ids(
    row_group_size: int, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skewtool.profiling.local._SPAN_TOKENS", 64)
    rng = np.random.default_rng(0)
    documents = [rng.integers(0, 50, rng.integers(0, 40)) for _ in range(60)]
    pq.write_table(pa.table({"input_ids": documents}), tmp_path / "a", row_group_size=row_group_size)
    (tmp_path / "npy").mkdir()
    np.save(tmp_path / "npy" / "a", np.concatenate(documents))
    (tmp_path / "npy" / "a.npy").rename(tmp_path / "npy" / "a")
    made, expected = (
        profile(open_corpus(path), vocab_size=50, windows=(8,), sample_size=9, workers=workers)
        for path in (tmp_path / "a", tmp_path / "npy" / "a")
    )
    assert made.counts_sha256 == expected.counts_sha256
    assert made.sources == expected.sources
    assert made.windows[0].sample.keys.tolist() == expected.windows[0].sample.keys.tolist()


def test_a_stream_that_goes_on_after_its_end(tmp_path: Path) -> None:
    _stream(pa.table({"input_ids": [[1]]}), tmp_path / "a.arrow")
    with (tmp_path / "a.arrow").open("ab") as file:
        file.write(b"more")
    with pytest.raises(CorpusError, match="goes on after its end"):
        open_corpus(tmp_path / "a.arrow")


def test_a_stream_without_its_end_mark(tmp_path: Path, ids_of: Callable[..., list[int]]) -> None:
    table = pa.table({"ids": pa.array([[1, 2], [3]])})
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    (tmp_path / "a.arrow").write_bytes((tmp_path / "a.arrow").read_bytes()[:-8])
    with pytest.raises(CorpusError, match=r"a\.arrow does not end with the mark .*; or pass --allow size"):
        open_corpus(tmp_path / "a.arrow")
    assert ids_of(open_corpus(tmp_path / "a.arrow", allow=["size"])) == [1, 2, 3]


@pytest.mark.parametrize("writer", ["new_file", "new_stream"])
def test_no_flipped_bit_changes_the_number_of_ids(tmp_path: Path, writer: str) -> None:
    """Arrow has no checksums; but lists must hold what is stored, and a file's footer what its stream has."""
    path = tmp_path / "a.arrow"
    documents = [[5, 6, 70000], [1], [], [7, 8, 9], [2, 3, 4, 5, 6, 7]]
    table = pa.table({"input_ids": pa.array(documents, pa.list_(pa.int32()))})
    with pa.OSFile(str(path), "wb") as file, getattr(pa.ipc, writer)(file, table.schema) as out:
        out.write_table(table, max_chunksize=2)
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 3
        path.write_bytes(damaged)
        try:
            corpus = open_corpus(path)
        except CorpusError:
            continue
        assert corpus.num_tokens == 13, f"byte {place}"


def test_ids_in_no_list_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    ids = pa.array([9, 1, 2, 3], pa.int32())
    batch = pa.record_batch({"input_ids": pa.ListArray.from_arrays(pa.array([0, 2, 4], pa.int32()), ids)})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, batch.schema) as out:
        out.write_batch(batch)
    content = path.read_bytes()
    offsets = bytes(batch.column(0).offsets.buffers()[1])[:12]
    assert content.count(offsets) == 1
    path.write_bytes(content.replace(offsets, b"\1\0\0\0" + offsets[4:]))
    with pytest.raises(CorpusError, match="lists of column 'input_ids' hold 3 ids, but 4 are stored"):
        open_corpus(path)
    corpus = open_corpus(path, allow=["size"])
    assert (corpus.num_tokens, corpus.dropped) == (3, {"size": 1})
