"""`RemotePath`: a path on what fsspec reaches (s3, gs, hf, https, memory, …), for the readers to use as a `pathlib.Path`.

Of files only ranges are fetched, each by a request of its own, so that any number of threads may read one file. What the
drivers raise becomes CorpusError. What is known of a file is asked for once for each path object.
"""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any

from fsspec import AbstractFileSystem
from upath import UPath
from upath.extensions import ProxyUPath

from skewtool.corpus.ranged_file import RangedFile
from skewtool.errors import CorpusError

__all__ = ["RemotePath"]

_BUFFER_BYTES = 1 << 16
_PIECE_BYTES = 1 << 24

_VERSIONS = ("ETag", "etag", "md5Hash", "content_md5", "blob_id", "mtime", "modified", "LastModified", "last_modified",
             "updated", "created")  # fmt: skip
"""Keys under which stores tell what a file's content is, or when it was written; the surest first."""


@dataclass(frozen=True)
class Status:
    """The part of `os.stat_result` that stores know."""

    st_size: int


class RemotePath(ProxyUPath):
    """Only for reading. Its text is its URL. Paths made of it keep its file system and options."""

    _known: dict[str, Any] | None = None

    @classmethod
    def at(cls, where: Any) -> "RemotePath":
        """From a URL or a UPath; what the file system remembers of earlier listings is forgotten.

        Errors: CorpusError for a scheme that fsspec does not know, or whose driver is not installed.
        """
        text = str(where)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that a driver is one of those that UPath was not tested with
                path = cls._from_upath(where if isinstance(where, UPath) else UPath(_without_end(text)))
            path.fs.invalidate_cache()
        except ImportError as error:
            raise CorpusError(f"{text} needs the driver of its store: {error}") from None
        except Exception as error:  # drivers raise their own classes
            raise CorpusError(f"{text} cannot be opened: {_reason(error)}") from error
        return path

    def __truediv__(self, other: Any) -> "RemotePath":
        """Below this path, or, with "..", beside it."""
        path = self
        for step in PurePosixPath(other).parts:
            if step != "/":
                path = path.parent if step == ".." else super(RemotePath, path).__truediv__(step)
        return path

    def relative_to(self, other: Any, /, *_: Any, walk_up: bool = False) -> PurePosixPath:  # type: ignore[override]
        """The parts below `other`, without a store."""
        return PurePosixPath(self.path.removeprefix(other.path).lstrip("/"))

    def resolve(self, strict: bool = False) -> "RemotePath":
        """The path itself: stores have no links, and the drivers of some would ask for redirections."""
        return self

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        return self._described() is not None

    def is_dir(self) -> bool:
        return (self._described() or {}).get("type") == "directory"

    def is_file(self) -> bool:
        return (self._described() or {}).get("type") == "file"

    def stat(self, *, follow_symlinks: bool = True) -> Status:  # type: ignore[override]
        """Its size. Errors: CorpusError when there is no such file, or its server does not tell."""
        described = self._described()
        if described is None:
            raise CorpusError(f"there is no file {self}")
        if not isinstance(described.get("size"), int):
            raise CorpusError(f"{self} cannot be read by ranges: its server does not tell its size; copy it first")
        return Status(described["size"])

    def state(self) -> tuple[int, str]:
        """Its size and version as they are now; nothing where there is no such file."""
        described = self._asked()
        if described is None:
            return 0, ""
        return int(described.get("size") or 0), next((str(described[key]) for key in _VERSIONS if described.get(key)), "")

    def open(self, mode: str = "r", buffering: int = -1, *_: Any, **__: Any) -> IO[Any]:  # type: ignore[override]
        """Opens for reading bytes, ``rb``."""
        assert mode == "rb"
        file = RangedFile(self._range, self.stat().st_size)
        return io.BufferedReader(file, _BUFFER_BYTES) if buffering else file  # type: ignore[return-value]

    def read_bytes(self) -> bytes:
        size = self.stat().st_size
        return b"".join(self._range(begin, min(begin + _PIECE_BYTES, size)) for begin in range(0, size, _PIECE_BYTES))

    def read_text(self, encoding: str | None = None, errors: str | None = None, newline: str | None = None) -> str:
        return self.read_bytes().decode(encoding or "utf-8", errors or "strict")

    def glob(self, pattern: str, **_: Any) -> Iterator["RemotePath"]:
        yield from (self / pattern).matches()

    def matches(self) -> list["RemotePath"]:
        """What this path, as a pattern, stands for; one listing for ``**``, one for each directory else."""
        with self._errors():
            return self._listed(self.fs.glob(self.path, detail=True))

    def files_below(self) -> list["RemotePath"]:
        """All files below, of one listing, in order of the parts of their paths."""
        with self._errors():
            listed = self.fs.find(self.path, detail=True)
        return [path for path in self._listed(listed) if path.is_file()]

    def _listed(self, described: dict[str, dict[str, Any]]) -> list["RemotePath"]:
        paths = []
        for name, each in described.items():
            if not name.endswith("/"):  # stands for a directory
                path = self.with_segments(name)
                path._known = each if each.get("size") is not None else None  # listings of web servers know little
                paths.append(path)
        return sorted(paths, key=lambda path: path.path.split("/"))

    def _described(self) -> dict[str, Any] | None:
        if self._known is None:
            self._known = self._asked()
        return self._known

    def _asked(self) -> dict[str, Any] | None:
        with self._errors():
            try:
                return dict(self.fs.info(self.path))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def _range(self, begin: int, end: int) -> bytes:
        """Bytes [begin, end). Errors: CorpusError when the store gives others."""
        # The method that fsspec gives to drivers without one of their own opens a file, which would read on. Asynchronous
        # drivers have their own as an attribute of each object.
        generic = not self.fs.async_impl and type(self.fs).cat_file is AbstractFileSystem.cat_file
        with self._errors():
            found = self.fs.cat_file(self.path, start=begin, end=end, **({"cache_type": "none"} if generic else {}))
        if len(found) != end - begin:
            raise CorpusError(f"{self}: asked for bytes {begin} to {end}, its store gave {len(found)} bytes; did the file "
                              "become shorter while it was read, or does its server give no ranges?")  # fmt: skip
        return bytes(found)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise CorpusError(f"there is no file {self}") from None
        except PermissionError as error:
            raise CorpusError(f"{self} may not be read with the credentials at hand: {_reason(error)}") from error
        except Exception as error:  # drivers raise their own classes
            raise CorpusError(f"{self} cannot be read: {_reason(error)}") from error


def _without_end(url: str) -> str:
    """Without slashes at the end, which a directory may have."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.rstrip('/')}"


def _reason(error: Exception) -> str:
    """The first line of what is told."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
