"""Parquet files: one column, decoded row group by row group in batches of rows."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.corpus.arrow import arrow_errors, arrow_library, check_column, ids_of
from skewtool.corpus.locations import is_remote
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.source import BLOCK_TOKENS, Ids, Progress, StreamSource
from skewtool.errors import CorpusError

__all__ = ["open_parquet"]

_BUFFER_BYTES = 1 << 20
_LOOK_BYTES = 1 << 16  # read at once of a remote file that is only opened
_ROWS = 1 << 12  # decoded at once where the number of their tokens is not known yet


@dataclass(frozen=True)
class ParquetSource(StreamSource):
    """One Parquet file. `ends` are the numbers of tokens up to the end of each row group: int64 [row groups]."""

    column: str
    ends: npt.NDArray[np.int64]
    num_rows: int

    def pieces(self, start: int, progress: Progress | None) -> Iterator[tuple[int, Ids]]:
        first = int(np.searchsorted(self.ends, start, side="right"))
        assert self.num_tokens is not None
        rows = max(1, BLOCK_TOKENS * self.num_rows // max(self.num_tokens, 1))
        with arrow_errors(self.path), _opened(self.path, _BUFFER_BYTES) as (file, expect):
            leaf = _leaf(file, self.column)
            for group in range(first, self.ends.size):
                position = int(self.ends[group - 1]) if group else 0
                expect(*_place(file, group, leaf))
                for array in _arrays(file, group, self.column, rows):
                    ids = ids_of(array)
                    if progress is not None:
                        progress(ids.nbytes)
                    yield position, ids.copy()
                    position += ids.size
                if position != self.ends[group]:
                    raise CorpusError(
                        f"{self.path}: row group {group} holds {position - (self.ends[group - 1] if group else 0)} tokens, "
                        "which is not what the file says of it"
                    )


@contextmanager
def _opened(path: Path, buffer_bytes: int) -> Iterator[tuple[Any, Callable[[int, int], None]]]:
    """The file, and a function to be told which of its bytes will be read next."""
    remote: Any = path.open("rb") if is_remote(path) else None
    with arrow_library().parquet.ParquetFile(
        remote or path, memory_map=False, pre_buffer=False, buffer_size=buffer_bytes, page_checksum_verification=True
    ) as file:
        yield file, (lambda begin, end: None) if remote is None else remote.raw.expect


def _place(file: Any, group: int, leaf: int) -> tuple[int, int]:
    """The first byte of a column in a row group, and that after the last."""
    chunk = file.metadata.row_group(group).column(leaf)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset  # 0 stands for none in some files
    return begin, begin + chunk.total_compressed_size


def _arrays(file: Any, group: int, column: str, rows: int) -> Iterator[Any]:
    for batch in file.iter_batches(rows, row_groups=[group], columns=[column], use_threads=False):
        yield batch.column(0)


def open_parquet(path: Path, name: str, options: ReadOptions) -> list[StreamSource]:
    """Opens a Parquet file. Only row groups that hold nulls or empty lists, or no statistics, are decoded to count tokens.

    Errors: CorpusError when it is damaged or cut off, and as `skewtool.corpus.arrow.check_column`.
    """
    with arrow_errors(path), _opened(path, _LOOK_BYTES if is_remote(path) else _BUFFER_BYTES) as (file, _):
        column, dtype = check_column(path, file.schema_arrow, options)
        is_list = arrow_library().types.is_nested(file.schema_arrow.field(column).type)
        leaf = _leaf(file, column)
        sizes, null_rows = [], 0
        for group in range(file.metadata.num_row_groups):
            next(_arrays(file, group, column, 1), None)  # raises where the next line would abort on damaged metadata
            chunk = file.metadata.row_group(group).column(leaf)
            statistics = chunk.statistics
            if statistics is not None and statistics.has_null_count and statistics.null_count == 0:
                sizes.append(chunk.num_values)
                continue
            sizes.append(0)
            for array in _arrays(file, group, column, _ROWS):
                sizes[-1] += ids_of(array).size
                null_rows += array.null_count if is_list else 0
        num_rows = file.metadata.num_rows
    notes = (f"{name}: {null_rows} rows are null and hold no ids",) if null_rows else ()
    num_tokens = sum(sizes)
    return [ParquetSource(
        path, name, "parquet", dtype, num_tokens, num_rows if is_list else None, num_tokens * dtype.itemsize, notes,
        column, np.cumsum(sizes, dtype=np.int64), num_rows, grain=max([*sizes, 1]),
    )]  # fmt: skip


def _leaf(file: Any, column: str) -> int:
    """The number of the Parquet column that holds the ids."""
    schema = file.metadata.schema
    for number in range(len(schema)):
        path = schema.column(number).path
        if path == column or path.startswith(f"{column}."):
            return number
    raise CorpusError(f"column '{column}' is in the schema, but holds no data")
