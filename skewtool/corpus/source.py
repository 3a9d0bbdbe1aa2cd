"""`Source`: one file of a corpus, read in order as blocks of ids; `ArraySource`: ids that lie in the file as an array.

Blocks are one-dimensional integer arrays in native byte order, fresh for each step of the iteration, so they may be
kept. An ArraySource reads straight from the file into the block: one copy out of the page cache and none after it
(a foreign byte order costs one more). Reads, not a memory map: a file that shrinks or a disk that fails is then an
error with a name instead of a dead process, and memory use stays one block per reader.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.errors import CorpusError

__all__ = ["BLOCK_TOKENS", "ArraySource", "Ids", "Progress", "Source"]

Ids = npt.NDArray[Any]
Progress = Callable[[int], object]

BLOCK_TOKENS = 1 << 18
"""Tokens per block: 1 MiB of 32-bit ids, so that a block is still in cache when it is counted."""


@dataclass(frozen=True)
class Source(ABC):
    """One file of a corpus.

    `name` is the path below the corpus root and takes part in the choice of sampled windows, so it does not depend on
    where the corpus lies. `dtype` is the stored type, None where ids are made on the fly. `num_tokens` and
    `num_documents` are None where only reading the whole file would tell. `num_bytes` is what reading it all reads.
    `seekable` says that `blocks` can start and stop anywhere.
    """

    path: Path
    name: str
    format: str
    dtype: np.dtype[Any] | None
    num_tokens: int | None
    num_documents: int | None
    num_bytes: int
    notes: tuple[str, ...]

    seekable = False

    @abstractmethod
    def blocks(
        self,
        start: int = 0,
        stop: int | None = None,
        block_tokens: int = BLOCK_TOKENS,
        progress: Progress | None = None,
    ) -> Iterator[Ids]:
        """Yields the ids of tokens [start, stop) in order, at most `block_tokens` at a time.

        `progress` is called with the number of file bytes used up since its last call.
        Errors: CorpusError when the file cannot be read or contradicts its header.
        """


@dataclass(frozen=True)
class ArraySource(Source):
    """Ids stored as one contiguous array of `dtype`, from byte `offset` of the file on; `num_tokens` is known."""

    dtype: np.dtype[Any]
    num_tokens: int
    offset: int = 0

    seekable = True

    def blocks(
        self,
        start: int = 0,
        stop: int | None = None,
        block_tokens: int = BLOCK_TOKENS,
        progress: Progress | None = None,
    ) -> Iterator[Ids]:
        stop = self.num_tokens if stop is None else stop
        with self.path.open("rb", buffering=0) as file:
            file.seek(self.offset + start * self.dtype.itemsize)
            for first in range(start, stop, block_tokens):
                stored = np.empty(min(block_tokens, stop - first), self.dtype)
                self._fill(file, stored, first)
                if progress is not None:
                    progress(stored.nbytes)
                yield stored if stored.dtype.isnative else stored.astype(stored.dtype.newbyteorder("="))

    def _fill(self, file: Any, stored: Ids, first: int) -> None:
        view = memoryview(stored.view(np.uint8).data)
        while view:
            try:
                count = file.readinto(view)
            except OSError as error:
                raise CorpusError(f"{self.path}: reading near token {first} failed: {error.strerror}") from None
            if not count:
                raise CorpusError(f"{self.path} became shorter while it was read: token {first} is no longer there")
            view = view[count:]

    def part(self, start: int, stop: int) -> "ArraySource":
        """Tokens [start, stop) as a source of their own, whose windows start at `start`."""
        return replace(
            self,
            name=f"{self.name}[{start}:{stop}]",
            num_tokens=stop - start,
            num_documents=None,
            num_bytes=(stop - start) * self.dtype.itemsize,
            offset=self.offset + start * self.dtype.itemsize,
        )
