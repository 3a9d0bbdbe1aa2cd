"""Tar archives of samples, as webdataset reads them: plain, .gz or .zst; members are .npy arrays or JSON.

The first sample (members that share a name up to the first dot) tells which ending holds the ids; all members with it are
read, in the order in which they lie in the archive. --column chooses among endings, or the field of JSON members. Pickles
are refused.
"""

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from skewtool.corpus.compressed import open_decompressed
from skewtool.corpus.jsonl import ids_in_json
from skewtool.corpus.npy import read_npy_header, stream_npy
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.source import Ids, Progress, StreamSource
from skewtool.errors import CorpusError

__all__ = ["open_tar"]

_END_BYTES = 1024  # two blocks of zeros close an archive
_JSON = ("json", "jsonl")
_PICKLES = ("pyd", "pickle", "pkl", "pt", "pth")


class _Counted:
    """A stream to read from that knows how many bytes were read, and up to where they were not all zero."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.num_bytes = 0
        self.zeros_from = 0

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(size)
        filled = len(content.rstrip(b"\0"))
        if filled:
            self.zeros_from = self.num_bytes + filled
        self.num_bytes += len(content)
        return content


@dataclass(frozen=True)
class TarSource(StreamSource):
    """The members with one ending of an archive, read from the beginning to the end. `field` is that of JSON members."""

    ending: str
    field: str | None

    seekable = False

    def pieces(self, start: int, progress: Progress | None) -> Iterator[tuple[int, Ids]]:
        position = used = 0
        with _members(self.path) as (members, file):
            for member, content in members:
                if _ending(member) == self.ending:
                    for ids in self._ids_of(content, f"{self.path}, {member}"):
                        yield position, ids
                        position += ids.size
                if progress is not None and file.tell() > used:
                    progress(file.tell() - used)
                    used = file.tell()

    def _ids_of(self, content: BinaryIO, where: str) -> Iterator[Ids]:
        if self.ending == "npy" or self.ending.endswith(".npy"):
            yield from stream_npy(content, read_npy_header(content, where), where)
        elif self.ending.endswith("jsonl"):
            for number, line in enumerate(content, start=1):
                if line.strip():
                    yield ids_in_json(line, self.field, f"{where}, line {number}")
        else:
            yield ids_in_json(content.read(), self.field, where)


@contextmanager
def _members(path: Path) -> Iterator[tuple[Iterator[tuple[str, BinaryIO]], BinaryIO]]:
    """Gives (names and contents of all regular members, the file itself)."""
    with open_decompressed(path) as (stream, file):
        try:
            yield _walk(path, stream), file
        except (tarfile.TarError, EOFError, ValueError) as error:
            if isinstance(error, CorpusError):
                raise
            raise CorpusError(f"{path} cannot be read as a tar archive: {error}") from None


def _walk(path: Path, stream: BinaryIO) -> Iterator[tuple[str, BinaryIO]]:
    reader = _Counted(stream)
    with tarfile.open(fileobj=reader, mode="r|") as archive:  # type: ignore[call-overload]
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, content
            archive.members = []  # tarfile would keep a record of each
        end = archive.offset
    while reader.read(1 << 20):
        pass
    # tarfile takes a header that it cannot read for the end of the archive.
    if reader.zeros_from > end:
        raise CorpusError(f"{path} is damaged: after byte {end} there should be another member or nothing but zeros")
    if reader.num_bytes < end + _END_BYTES:
        raise CorpusError(f"{path} is cut off: a tar archive ends with {_END_BYTES} zero bytes")


def _ending(member: str) -> str:
    """What follows the first dot of the file's name, as webdataset splits names."""
    return member.rpartition("/")[2].partition(".")[2].lower()


def open_tar(path: Path, name: str, options: ReadOptions) -> list[StreamSource]:
    """Opens an archive; only its first sample is looked at.

    Errors: CorpusError when no member holds ids that can be read, when they are pickled, and for a damaged archive.
    """
    first = _endings_of_first_sample(path)
    kinds = [ending for ending in first if ending.rpartition(".")[2] in ("npy", *_JSON)]
    by_name = options.column in first
    if by_name:
        kinds = [ending for ending in kinds if ending == options.column]
    if not kinds:
        pickled = [ending for ending in first if ending.rpartition(".")[2] in _PICKLES]
        why = "pickles are never loaded" if pickled else "known are .npy and .json"
        raise CorpusError(f"{path}: its first sample holds {', '.join(first) or 'nothing'}, no ids that can be read ({why})")
    arrays = [ending for ending in kinds if ending.rpartition(".")[2] == "npy"]
    if len(arrays or kinds) > 1:
        raise CorpusError(f"{path}: its samples hold {' and '.join(arrays or kinds)}; pass --column with the one to read")
    ending = (arrays or kinds)[0]
    field = None if by_name else options.column
    return [TarSource(path, name, "tar", None, None, None, path.stat().st_size, (), ending, field)]


def _endings_of_first_sample(path: Path) -> list[str]:
    endings: list[str] = []
    sample = None
    with _members(path) as (members, _):
        for member, _ in members:
            key = member[: len(member) - len(_ending(member))]
            if sample not in (None, key) and endings:
                break
            sample = key
            endings.append(_ending(member))
    return endings
