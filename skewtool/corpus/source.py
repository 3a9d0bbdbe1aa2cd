"""`Source`: one file of a corpus, read in order as blocks of ids.

`ArraySource` is for ids that lie in the file as an array, `StreamSource` for those that must be decoded, and `Section` is
a stretch of either. Blocks are one-dimensional integer arrays in native byte order, fresh for each step of the iteration,
so they may be kept. An ArraySource reads straight from the file into the block: one copy out of the page cache and none
after it (a foreign byte order costs one more). What comes next is read meanwhile (`skewtool.corpus.read_ahead`). Reads, not
a memory map: a file that shrinks or a disk that fails is then an error with a name instead of a dead process, and memory
use stays one block per reader, a few for a remote file.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.corpus.locations import is_remote, open_stretch
from skewtool.corpus.read_ahead import Advice, in_flight
from skewtool.errors import CorpusError

__all__ = ["BLOCK_TOKENS", "ArraySource", "Ids", "Progress", "Section", "Source", "StreamSource"]

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
    `seekable` says that `blocks` can start and stop anywhere, and `grain` how many tokens must be decoded together even
    if fewer are asked for. `dropped` counts tokens that are left out, by the name of the check that was allowed.
    """

    path: Path
    name: str
    format: str
    dtype: np.dtype[Any] | None
    num_tokens: int | None
    num_documents: int | None
    num_bytes: int
    notes: tuple[str, ...]
    dropped: tuple[tuple[str, int], ...] = field(default=(), kw_only=True)
    grain: int = field(default=1, kw_only=True)

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
        yield from in_flight(self.path, self.stored(start, stop, block_tokens, progress))

    def stored(self, start: int, stop: int, block_tokens: int, progress: Progress | None) -> Iterator[Ids]:
        """As `blocks`, read when they are asked for and as they are stored but for their byte order."""
        begin, end = (self.offset + token * self.dtype.itemsize for token in (start, stop))
        with open_stretch(self.path, begin, end) as file:
            advice = None if is_remote(self.path) else Advice(file.fileno(), begin, end)
            for first in range(start, stop, block_tokens):
                if advice is not None:
                    advice.at(self.offset + first * self.dtype.itemsize)
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


@dataclass(frozen=True)
class StreamSource(Source):
    """Ids that are decoded piece by piece."""

    seekable = True

    @abstractmethod
    def pieces(self, start: int, progress: Progress | None) -> Iterator[tuple[int, Ids]]:
        """Yields (position of its first token, ids) of consecutive pieces of any size, up to the end of the file.

        The first piece may begin before token `start`, but not after it. `progress` as in `blocks`.
        """

    def blocks(
        self,
        start: int = 0,
        stop: int | None = None,
        block_tokens: int = BLOCK_TOKENS,
        progress: Progress | None = None,
    ) -> Iterator[Ids]:
        yield from in_flight(self.path, _blocks_of(self._between(start, stop, progress), block_tokens))

    def _between(self, start: int, stop: int | None, progress: Progress | None) -> Iterator[Ids]:
        if stop is not None and stop <= start:
            return
        position = 0
        for position, ids in self.pieces(start, progress):
            yield ids[max(start - position, 0) : None if stop is None else stop - position]
            position += ids.size
            if stop is not None and position >= stop:
                return
        if stop is not None or self.num_tokens not in (None, position):
            promised = self.num_tokens if stop is None else stop
            raise CorpusError(f"{self.path} holds {position} tokens, but {promised} were expected; has it changed?")


def _blocks_of(pieces: Iterator[Ids], block_tokens: int) -> Iterator[Ids]:
    """The same ids in blocks of at most `block_tokens`: small pieces are put together, large ones cut."""
    held: list[Ids] = []
    size = 0
    for piece in pieces:
        # Types are never mixed: uint64 with int64 would become floating point.
        if held and (size + piece.size > block_tokens or piece.dtype != held[0].dtype):
            yield np.concatenate(held)
            held, size = [], 0
        if piece.size > block_tokens:
            yield from (piece[i : i + block_tokens] for i in range(0, piece.size, block_tokens))
        elif piece.size:
            held.append(piece)
            size += piece.size
    if held:
        yield np.concatenate(held)


@dataclass(frozen=True)
class Section(Source):
    """Tokens [first, first + num_tokens) of another source, as a source whose windows start at `first`."""

    num_tokens: int
    whole: Source
    first: int

    seekable = True

    @classmethod
    def of(cls, source: Source, start: int, stop: int) -> "Section":
        """Tokens [start, stop) of a seekable source."""
        assert source.num_tokens
        num_bytes = round(source.num_bytes * ((stop - start) / source.num_tokens))
        return cls(
            source.path, f"{source.name}[{start}:{stop}]", source.format, source.dtype, stop - start, None, num_bytes,
            source.notes, source, start, dropped=source.dropped, grain=source.grain,
        )  # fmt: skip

    def blocks(
        self,
        start: int = 0,
        stop: int | None = None,
        block_tokens: int = BLOCK_TOKENS,
        progress: Progress | None = None,
    ) -> Iterator[Ids]:
        stop = self.num_tokens if stop is None else stop
        yield from self.whole.blocks(self.first + start, self.first + stop, block_tokens, progress)
