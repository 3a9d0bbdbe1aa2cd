"""Arrow IPC files and streams, and how ids come out of Arrow's columns.

A column holds lists of integers (a row is a document; list, large_list, fixed_size_list or list_view) or integers. A row
that is null holds no ids; a null among the ids becomes -1, a bad id. Record batches are decoded one by one, of one column
only. Files are memory-mapped, as Arrow does: unlike with other formats, one that shrinks while it is read ends the process.
Of remote ones only the metadata are read at first, and then the column's buffers, where the layout allows it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.corpus.arrow_batches import Batch, find_batches
from skewtool.corpus.checks import NESTED_LISTS, SIZE, stop_unless_allowed
from skewtool.corpus.locations import is_remote
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.source import Ids, Progress, StreamSource
from skewtool.errors import CorpusError

__all__ = ["arrow_errors", "arrow_library", "check_column", "ids_of", "open_arrow"]

_MAGIC_BYTES = 8
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_READ_TOGETHER = 1 << 22


def arrow_library() -> Any:
    """The pyarrow package, with its parquet module. Errors: CorpusError with the command that installs it."""
    try:
        import pyarrow
        import pyarrow.parquet  # an attribute of the package from here on
    except ImportError:
        raise CorpusError("Arrow and Parquet files need pyarrow: pip install 'skewtool[arrow]'") from None
    return pyarrow


@contextmanager
def arrow_errors(path: Path) -> Iterator[None]:
    """Turns what pyarrow raises on damaged files into CorpusError."""
    try:
        yield
    except (arrow_library().ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CorpusError(f"{path} cannot be read: {reason}") from None


def check_column(path: Path, schema: Any, options: ReadOptions) -> tuple[str, np.dtype[Any]]:
    """The column to read and the type of its ids.

    Errors: CorpusError when there is none of the name, or when it does not hold integers; lists of lists must be allowed.
    """
    column = options.column_among(path, schema.names)
    if schema.names.count(column) > 1:
        raise CorpusError(f"{path} has {schema.names.count(column)} columns called '{column}'")
    kind, depth = schema.field(column).type, 0
    while _is_list(kind):
        kind, depth = kind.value_type, depth + 1
    types = arrow_library().types
    if not types.is_integer(kind):
        raise CorpusError(f"{path}: column '{column}' is of type {schema.field(column).type}; token ids must be integers, "
                          "in lists or not; pass --column for another")  # fmt: skip
    if depth > 1:
        problem = f"{path}: column '{column}' is of type {schema.field(column).type}, lists within lists"
        stop_unless_allowed(NESTED_LISTS, problem, options.allow)
    dtype = np.dtype(kind.to_pandas_dtype())
    options.check_dtype(path, dtype, f"column '{column}'")
    return column, dtype


def _is_list(kind: Any) -> bool:
    types = arrow_library().types
    return any(
        test(kind)
        for test in (types.is_list, types.is_large_list, types.is_fixed_size_list, types.is_list_view,
                     types.is_large_list_view)
    )  # fmt: skip


def ids_of(array: Any) -> Ids:
    """The ids of an Arrow array, in order: its own type, int64 where some are null. May be a view of the array."""
    array.validate(full=True)  # a damaged file could point anywhere
    while _is_list(array.type):
        array = array.flatten()  # unlike .values, minds slices and null rows
    if array.null_count:
        array = array.cast(arrow_library().int64()).fill_null(-1)
    ids: Ids = array.to_numpy(zero_copy_only=False)
    return ids


@dataclass(frozen=True)
class ArrowSource(StreamSource):
    """One IPC file or stream. `ends` are the numbers of tokens up to the end of each record batch: int64 [batches]."""

    column: str
    ends: npt.NDArray[np.int64]

    def pieces(self, start: int, progress: Progress | None) -> Iterator[tuple[int, Ids]]:
        first = int(np.searchsorted(self.ends, start, side="right"))
        with arrow_errors(self.path):
            for number, array in enumerate(_columns(self.path, self.column)):
                if number >= self.ends.size:
                    raise CorpusError(f"{self.path} became longer while it was read")
                if number < first:
                    continue
                ids = ids_of(array)
                begin = int(self.ends[number - 1]) if number else 0
                if begin + ids.size != self.ends[number]:
                    raise CorpusError(f"{self.path} changed while it was read: batch {number} has {ids.size} tokens")
                if progress is not None:
                    progress(ids.nbytes)
                yield begin, ids.copy()


@dataclass(frozen=True)
class RemoteArrowSource(ArrowSource):
    """A remote IPC file or stream of which only the column is read. `number` is that of the column."""

    schema: Any
    number: int
    batches: tuple[Batch, ...]

    def pieces(self, start: int, progress: Progress | None) -> Iterator[tuple[int, Ids]]:
        first = int(np.searchsorted(self.ends, start, side="right"))
        with arrow_errors(self.path), self.path.open("rb") as file:
            for number in range(first, len(self.batches)):
                ids = ids_of(_column_of(file, self.batches, number, self.schema, self.number))
                begin = int(self.ends[number - 1]) if number else 0
                if begin + ids.size != self.ends[number]:
                    raise CorpusError(f"{self.path} changed while it was read: batch {number} has {ids.size} tokens")
                if progress is not None:
                    progress(ids.nbytes)
                yield begin, ids


def _column_of(file: Any, batches: Sequence[Batch], which: int, schema: Any, number: int) -> Any:
    """A column of one batch, all of whose other columns are left zero. Small batches after it are read with it."""
    batch = batches[which]
    after = bisect_right(batches, batch.begin + _READ_TOGETHER, lo=which + 1, key=lambda each: each.end)
    file.raw.expect(batch.begin, batches[after - 1].end)
    message = bytearray(len(batch.head) + batch.num_bytes)
    message[: len(batch.head)] = batch.head
    place = len(batch.head) + batch.begin - batch.body
    file.seek(batch.begin)
    message[place : place + batch.end - batch.begin] = file.read(batch.end - batch.begin)
    library = arrow_library()
    return library.ipc.read_record_batch(library.ipc.read_message(library.py_buffer(message)), schema).column(number)


def _remote_batches(path: Path, schema: Any, number: int) -> list[Batch] | None:
    """As `find_batches`; as many as the footer of a file says."""
    library = arrow_library()
    with path.open("rb") as file:
        is_stream = file.read(6) != b"ARROW1"
        try:
            batches = find_batches(file, is_stream, schema, number, library.types)
        except CorpusError:
            raise
        except ValueError as error:
            raise CorpusError(f"{path} is damaged: {error}") from None
        if batches is not None and not is_stream:
            promised = library.ipc.open_file(library.PythonFile(file, "r")).num_record_batches
            if promised != len(batches):
                raise CorpusError(f"{path} is damaged: it holds {len(batches)} batches, its footer promises {promised}")
    return batches


@dataclass(frozen=True)
class _Size:
    """Of a column of one batch: ids in its lists, rows that are null, all rows, and ids that are stored."""

    ids: int
    null_rows: int
    rows: int
    stored: int

    @classmethod
    def of(cls, array: Any) -> "_Size":
        ids, types = int(ids_of(array).size), arrow_library().types
        # Null rows may have ids that do not count, as lists of fixed size must; views may leave out what they like.
        all_count = (types.is_list(array.type) or types.is_large_list(array.type)) and not array.null_count
        stored = len(array.values) if all_count and not _is_list(array.type.value_type) else ids
        return cls(ids, array.null_count, len(array), stored)


def _size_of(path: Path, file: Any, batch: Batch, schema: Any, number: int) -> _Size:
    """From metadata and offsets where they tell."""
    types, kind = arrow_library().types, schema.field(number).type
    rows, null_rows = batch.nodes[0]
    if not _is_list(kind):
        return _Size(rows, null_rows, rows, rows)
    width = 4 if types.is_list(kind) else 8
    is_plain = (types.is_list(kind) or types.is_large_list(kind)) and not _is_list(kind.value_type)
    if not is_plain or null_rows or batch.compressed or batch.buffers[1][1] < width * (rows + 1):
        return _Size.of(_column_of(file, [batch], 0, schema, number))
    ends = []
    for row in (0, rows):
        file.seek(batch.body + batch.buffers[1][0] + width * row)
        ends.append(int.from_bytes(file.read(width), "little", signed=True))
    if not 0 <= ends[0] <= ends[1]:
        raise CorpusError(f"{path} is damaged: the offsets of the batch at byte {batch.body} go from {ends[0]} to {ends[1]}")
    return _Size(ends[1] - ends[0], 0, rows, batch.nodes[1][0])


def _batches(path: Path) -> Iterator[tuple[Any, Any]]:
    """(schema, None) first, then (schema, batch) for each record batch."""
    library = arrow_library()
    with library.PythonFile(path.open("rb"), "r") if is_remote(path) else library.memory_map(str(path)) as file:
        if file.read(6) == b"ARROW1":
            # A file has a stream inside. Its footer tells how many batches, and where each is; read by that alone, one of
            # them could come twice without a sign.
            promised = library.ipc.open_file(file).num_record_batches
            file.seek(_MAGIC_BYTES)
            with library.ipc.open_stream(file) as reader:
                yield reader.schema, None
                for number in range(promised):
                    batch = next(reader, None)
                    if batch is None:
                        raise CorpusError(f"{path} is damaged: it holds {number} batches, its footer promises {promised}")
                    yield reader.schema, batch
                if _goes_on(reader):
                    raise CorpusError(f"{path} is damaged: it holds more than the {promised} batches of its footer")
        else:
            file.seek(0)
            with library.ipc.open_stream(file) as reader:
                yield reader.schema, None
                for batch in reader:
                    yield reader.schema, batch
                if file.tell() != file.size():
                    raise CorpusError(f"{path} goes on after its end, from byte {file.tell()} of {file.size()}")


def _goes_on(reader: Any) -> bool:
    """Whether there is a further batch. Old files have no mark at the end of the stream."""
    try:
        return next(reader, None) is not None
    except arrow_library().ArrowException:
        return False


def _columns(path: Path, column: str) -> Iterator[Any]:
    for _, batch in _batches(path):
        if batch is not None:
            yield batch.column(column)


def _check_end(path: Path, options: ReadOptions) -> None:
    """A stream that is cut off between two batches can be told only by the mark at its end, which all writers write."""
    with path.open("rb") as file:
        is_stream = file.read(4) == _END_OF_STREAM[:4]
        file.seek(max(0, path.stat().st_size - len(_END_OF_STREAM)))
        if is_stream and file.read() != _END_OF_STREAM:
            problem = f"{path} does not end with the mark of the end of an Arrow stream; is it cut off?"
            stop_unless_allowed(SIZE, problem, options.allow)


def open_arrow(path: Path, name: str, options: ReadOptions) -> list[StreamSource]:
    """Opens an IPC file or stream; reads its batches' lengths, not their ids.

    Errors: CorpusError when it is damaged or cut off, and as `check_column`.
    """
    with arrow_errors(path):
        schema, _ = next(_batches(path))
        column, dtype = check_column(path, schema, options)
        number = schema.names.index(column)
        batches = _remote_batches(path, schema, number) if is_remote(path) else None
        if batches is None:
            sizes = [_Size.of(array) for array in _columns(path, column)]
        else:
            with path.open("rb") as file:
                sizes = [_size_of(path, file, batch, schema, number) for batch in batches]
    _check_end(path, options)
    num_tokens, null_rows, rows = (sum(getattr(each, name) for each in sizes) for name in ("ids", "null_rows", "rows"))
    missed = _check_lists(path, column, num_tokens, sum(each.stored for each in sizes), options)
    is_list = _is_list(schema.field(column).type)
    notes = (f"{name}: {null_rows} rows are null and hold no ids",) if null_rows and is_list else ()
    known = (path, name, "arrow", dtype, num_tokens, rows if is_list else None, num_tokens * dtype.itemsize, notes, column,
             np.cumsum([each.ids for each in sizes], dtype=np.int64))  # fmt: skip
    if batches is None:
        return [ArrowSource(*known, dropped=missed)]
    return [RemoteArrowSource(*known, schema, number, tuple(batches), dropped=missed)]


def _check_lists(path: Path, column: str, ids: int, stored: int, options: ReadOptions) -> tuple[tuple[str, int], ...]:
    """A changed offset makes the first list, or the last one, lose ids: what is stored and in none of them tells."""
    if ids == stored:
        return ()
    problem = f"{path}: the lists of column '{column}' hold {ids} ids, but {stored} are stored; is the file damaged?"
    stop_unless_allowed(SIZE, problem, options.allow)
    return ((SIZE, max(0, stored - ids)),)
