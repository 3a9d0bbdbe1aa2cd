"""`location`: from what a user writes to a path. URLs become remote paths, anything else, ``file://`` too, a local one.

Remote paths (`skewtool.corpus.remote`) have the methods of `pathlib.Path` that the readers use, and stand in for it; what
must differ between the two is here.
"""

import glob
import re
from io import RawIOBase
from os import PathLike
from pathlib import Path
from typing import Any, cast

from skewtool.errors import CorpusError

__all__ = ["alike", "files_below", "is_remote", "is_url", "location", "matches", "open_stretch", "state_of"]

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_HALVED = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/(?!/)")
_LOCAL = re.compile(r"(file|local)://")


def is_url(text: str) -> bool:
    """Whether a text begins with a scheme of two letters or more (one letter may be a drive) and ``://``."""
    return _URL.match(text) is not None


def is_remote(path: object) -> bool:
    """Whether what `location` gave is not on a local file system."""
    return not isinstance(path, Path)


def location(where: "str | PathLike[str]") -> Path:
    """The path that is written ``where``. A path of `upath.UPath` keeps its options, such as credentials.

    Errors: CorpusError for a URL when universal_pathlib is not installed, and for one that nothing is known of or that was
    made a `pathlib.Path`.
    """
    if isinstance(where, Path):
        if _HALVED.match(str(where)) and not where.exists():
            raise CorpusError(f"{where} has lost a slash in a pathlib.Path; give the URL as text")
        return where
    if isinstance(where, PathLike):
        return Path(where)
    if isinstance(where, str) and (not is_url(where) or _LOCAL.match(where)):
        return Path(_LOCAL.sub("", where))
    try:
        from skewtool.corpus.remote import RemotePath
    except ImportError:
        raise CorpusError(f"{where} is remote, which needs universal_pathlib: pip install 'skewtool[remote]'") from None
    return cast("Path", RemotePath.at(where))


def alike(path: Path, text: str) -> Path:
    """The path with another text, in the same store with the same options."""
    return cast("Path", cast("Any", path).with_segments(text)) if is_remote(path) else Path(text)


def matches(pattern: Path) -> list[Path]:
    """The paths that one with wildcards stands for, in order; hidden ones only where the pattern asks for them."""
    if is_remote(pattern):
        found = cast("list[Path]", cast("Any", pattern).matches())
        return [each for each in found if "/." not in str(each) or "/." in str(pattern)]
    return sorted(Path(each) for each in glob.glob(str(pattern), recursive=True))  # noqa: PTH207 (Path.glob finds hidden files, too)


def files_below(root: Path) -> list[Path]:
    """All files in a directory and below it, in order of the parts of their paths."""
    if is_remote(root):
        return cast("list[Path]", cast("Any", root).files_below())
    return [path for path in sorted(root.rglob("*")) if path.is_file()]


def open_stretch(path: Path, begin: int, end: int) -> RawIOBase:
    """A file without a buffer, at byte `begin`, which will be read up to `end`."""
    file = path.open("rb", buffering=0)
    if is_remote(path):
        cast("Any", file).expect(begin, end)
    file.seek(begin)
    return file


def state_of(path: Path) -> tuple[int, int | str]:
    """What changes with a file's content: bytes, and time of change in nanoseconds or what a remote store has for it.

    Zeros when there is no such file.
    """
    if is_remote(path):
        return cast("tuple[int, str]", cast("Any", path).state())
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns
