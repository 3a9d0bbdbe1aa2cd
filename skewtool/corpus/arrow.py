"""Arrow IPC files and streams, and how ids come out of Arrow's columns.

A column holds lists of integers (a row is a document; list, large_list, fixed_size_list or list_view) or integers. A row
that is null holds no ids; a null among the ids becomes -1, a bad id. Record batches are decoded one by one, of one column
only. Files are memory-mapped, as Arrow does: unlike with other formats, one that shrinks while it is read ends the process.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.corpus.checks import NESTED_LISTS, stop_unless_allowed
from skewtool.corpus.locations import is_remote
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.source import Ids, Progress, StreamSource
from skewtool.errors import CorpusError

__all__ = ["arrow_errors", "arrow_library", "check_column", "ids_of", "open_arrow"]


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


def _batches(path: Path) -> Iterator[tuple[Any, Any]]:
    """(schema, None) first, then (schema, batch) for each record batch."""
    library = arrow_library()
    with library.PythonFile(path.open("rb"), "r") if is_remote(path) else library.memory_map(str(path)) as file:
        if file.read(6) == b"ARROW1":
            with library.ipc.open_file(file) as reader:
                yield reader.schema, None
                for number in range(reader.num_record_batches):
                    yield reader.schema, reader.get_batch(number)
        else:
            file.seek(0)
            with library.ipc.open_stream(file) as reader:
                yield reader.schema, None
                for batch in reader:
                    yield reader.schema, batch
                if file.tell() != file.size():
                    raise CorpusError(f"{path} goes on after its end, from byte {file.tell()} of {file.size()}")


def _columns(path: Path, column: str) -> Iterator[Any]:
    for _, batch in _batches(path):
        if batch is not None:
            yield batch.column(column)


def open_arrow(path: Path, name: str, options: ReadOptions) -> list[StreamSource]:
    """Opens an IPC file or stream; reads its batches' lengths, not their ids.

    Errors: CorpusError when it is damaged or cut off, and as `check_column`.
    """
    with arrow_errors(path):
        schema, _ = next(_batches(path))
        column, dtype = check_column(path, schema, options)
        sizes, null_rows, rows = [], 0, 0
        for array in _columns(path, column):
            sizes.append(ids_of(array).size)
            null_rows += array.null_count if _is_list(array.type) else 0
            rows += len(array)
    notes = (f"{name}: {null_rows} rows are null and hold no ids",) if null_rows else ()
    num_tokens = sum(sizes)
    num_documents = rows if _is_list(schema.field(column).type) else None
    return [ArrowSource(
        path, name, "arrow", dtype, num_tokens, num_documents, num_tokens * dtype.itemsize, notes, column,
        np.cumsum(sizes, dtype=np.int64),
    )]  # fmt: skip
