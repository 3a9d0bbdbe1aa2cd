"""`ReadOptions`: what a user may say about a corpus that its files do not say themselves."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from skewtool.corpus.tokenizer import TokenizerFile
from skewtool.errors import CorpusError

__all__ = ["ID_COLUMNS", "ReadOptions"]

ID_COLUMNS = ("input_ids", "tokens", "token_ids", "ids")
"""Names under which token ids are usually stored, the likeliest first."""


@dataclass(frozen=True)
class ReadOptions:
    """`dtype`: type of the ids in files without a header. `tokenizer`: a tokenizer.json, to read text with.
    `column`: the column, field or array with the ids or the text; None for the usual names.
    `allow`: checks to go on after (see `skewtool.corpus.checks`)."""

    dtype: np.dtype[Any] | None = None
    tokenizer: Path | None = None
    column: str | None = None
    allow: Collection[str] = frozenset()

    @cached_property
    def loaded_tokenizer(self) -> TokenizerFile | None:
        """The tokenizer, loaded once however many files are read with it."""
        return None if self.tokenizer is None else TokenizerFile(self.tokenizer)

    def check_dtype(self, path: Path, dtype: np.dtype[Any], by: str) -> None:
        """Stops when the user names another type than the file does. Byte order is the file's business."""
        if self.dtype is not None and self.dtype.newbyteorder("=") != dtype.newbyteorder("="):
            raise CorpusError(f"{path} holds {dtype.name} by {by}, but --dtype says {self.dtype}; leave out --dtype")

    def column_among(self, path: Path, names: Iterable[str]) -> str:
        """The column to read of those that are there: the one asked for, else the first of the usual names."""
        there = list(names)
        wanted = ID_COLUMNS if self.column is None else (self.column,)
        for name in wanted:
            if name in there:
                return name
        asked = " or ".join(repr(name) for name in wanted)
        raise CorpusError(f"{path} has no column {asked} (found: {', '.join(map(str, there)) or 'none'}); pass --column")
