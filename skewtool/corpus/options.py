"""`ReadOptions`: what a user may say about a corpus that its files do not say themselves."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from skewtool.corpus.tokenizer import TokenizerFile

__all__ = ["ReadOptions"]


@dataclass(frozen=True)
class ReadOptions:
    """`dtype`: type of the ids in files without a header. `tokenizer`: a tokenizer.json, to read text with.
    `column`: the field that holds the text in JSON lines."""

    dtype: np.dtype[Any] | None = None
    tokenizer: Path | None = None
    column: str = "text"

    @cached_property
    def loaded_tokenizer(self) -> TokenizerFile | None:
        """The tokenizer, loaded once however many files are read with it."""
        return None if self.tokenizer is None else TokenizerFile(self.tokenizer)
