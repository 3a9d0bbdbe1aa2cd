"""JSON lines with token ids, one document a line: plain, .gz or .zst.

Which field holds the ids is told by `--column`, else by the usual names. Lines whose field holds text are tokenized
(`skewtool.corpus.text`).
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from skewtool.corpus.compressed import open_decompressed
from skewtool.corpus.options import ID_COLUMNS, ReadOptions
from skewtool.corpus.source import Ids, Progress, Source, StreamSource
from skewtool.corpus.text import open_json_text
from skewtool.errors import CorpusError

__all__ = ["column_of_ids", "ids_in_json", "open_jsonl"]


def _orjson() -> Any:
    try:
        import orjson
    except ImportError:
        raise CorpusError("token ids in JSON need orjson: pip install 'skewtool[arrow]'") from None
    return orjson


def ids_in_json(document: bytes, column: str | None, where: str) -> Ids:
    """The ids in one JSON object: int64, or uint64 where one is larger; null as -1; a field that is null holds none.

    Errors: CorpusError, beginning with `where`, for anything but a list of integers.
    """
    try:
        found = _orjson().loads(document)
    except ValueError as error:
        raise CorpusError(f"{where}: no JSON object ({error})") from None
    names = (column,) if column is not None else ID_COLUMNS
    name = next((name for name in names if isinstance(found, dict) and name in found), None)
    if name is None:
        fields = ", ".join(sorted(found)) if isinstance(found, dict) else type(found).__name__
        raise CorpusError(f"{where}: no field {' or '.join(map(repr, names))} (found: {fields}); pass --column")
    values = found[name]
    if values is None:
        return np.empty(0, np.int64)
    if not isinstance(values, list) or set(map(type, values)) - {int, type(None)}:
        raise CorpusError(f"{where}: field '{name}' must be a list of whole numbers")
    return _as_array([-1 if value is None else value for value in values] if None in values else values)


def _as_array(values: list[int]) -> Ids:
    try:
        return np.array(values, np.int64)
    except OverflowError:  # one of them is beyond int64, and orjson knows no integer beyond uint64
        return np.array([value if value >= 0 else (1 << 64) - 1 for value in values], np.uint64)


@dataclass(frozen=True)
class JsonIdsSource(StreamSource):
    """JSON lines, read from the beginning to the end."""

    column: str

    seekable = False

    def pieces(self, start: int, progress: Progress | None) -> Iterator[tuple[int, Ids]]:
        position = used = 0
        with open_decompressed(self.path) as (lines, file):
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    ids = ids_in_json(_without_mark(line, number), self.column, f"{self.path}, line {number}")
                    yield position, ids
                    position += ids.size
                if progress is not None and file.tell() > used:
                    progress(file.tell() - used)
                    used = file.tell()


def _without_mark(line: bytes, number: int) -> bytes:
    """The line without the byte order mark that some programs put before the first."""
    return line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def open_jsonl(path: Path, name: str, options: ReadOptions) -> list[Source]:
    """Opens JSON lines, of ids or of text as the first line says.

    Errors: CorpusError when the first line is no JSON object, or holds text and there is no tokenizer.
    """
    column = column_of_ids(path, options)
    if column is not None:
        return [JsonIdsSource(path, name, "jsonl", None, None, None, path.stat().st_size, (), column)]
    first = _first_object(path)
    if options.column is None and "text" not in first and options.tokenizer is None:
        fields = ", ".join(map(repr, first)) or "none that can be read"
        raise CorpusError(f"{path}: the first line has no field {' or '.join(map(repr, ID_COLUMNS))} with ids (found: "
                          f"{fields}); pass --column, and --tokenizer tokenizer.json if it holds text")  # fmt: skip
    return [open_json_text(path, name, options)]


def column_of_ids(path: Path, options: ReadOptions) -> str | None:
    """The field that holds a list, or null, in the first line; None where there is none."""
    first = _first_object(path)
    names = ID_COLUMNS if options.column is None else (options.column,)
    column = next((each for each in names if isinstance(first.get(each), list)), None)
    return column or next((each for each in names if each in first and first[each] is None), None)


def _first_object(path: Path) -> dict[str, Any]:
    """The object in the first line that is not blank; an empty one where there is none."""
    with open_decompressed(path) as (lines, _):
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    document = json.loads(_without_mark(line, number))
                except (ValueError, RecursionError):
                    return {}
                return document if isinstance(document, dict) else {}
    return {}
