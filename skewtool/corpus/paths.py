"""Brace and glob patterns in paths: ``shard-{000..099}.tar``, ``{web,books}/*.npy``, ``**/*.bin``.

A path that exists is never taken for a pattern.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import count, islice
from pathlib import Path

from skewtool.corpus.locations import alike, is_remote, matches
from skewtool.errors import CorpusError

__all__ = ["expand"]

_INNERMOST = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
_WILD = re.compile(r"[*?\[]")
_MOST_PATHS = 1_000_000


def expand(path: Path) -> list[tuple[Path, str]]:
    """The paths that a pattern stands for, each with its name: its last parts, from the first that holds a pattern on.
    A plain path is its own, with its last part for a name, and none for a directory.

    Errors: CorpusError when a wildcard matches nothing, or a range stands for more than a million paths.
    """
    pattern = str(path)
    if path.exists() or not re.search(r"[*?\[{]", pattern):
        return [(path, "" if path.is_dir() else path.name)]
    plain = 0
    while not re.search(r"[*?\[{]", _parts(path)[plain]):
        plain += 1
    found = [each for alternative in _alternatives(pattern) for each in _matches(alike(path, alternative))]
    return [(each, "/".join(_parts(each)[plain:])) for each in dict.fromkeys(found)]


def _parts(path: Path) -> Sequence[str]:
    return str(path).split("/") if is_remote(path) else path.parts


def _alternatives(pattern: str) -> list[str]:
    """The pattern without braces, once for each choice."""
    waiting: list[str] = [pattern]
    done: list[str] = []
    for expanded in count():
        if not waiting:
            return done
        if expanded + len(waiting) > _MOST_PATHS:
            break
        each = waiting.pop(0)
        braces = next((m for m in _INNERMOST.finditer(each) if "," in m[1] or _RANGE.fullmatch(m[1])), None)
        if braces is None:
            done.append(each)
        else:
            choices = islice(_choices(braces[1]), _MOST_PATHS + 1)
            waiting[:0] = [each[: braces.start()] + choice + each[braces.end() :] for choice in choices]
    raise CorpusError(f"{pattern} stands for more than {_MOST_PATHS} paths")


def _choices(inside: str) -> Iterator[str]:
    ends = _RANGE.fullmatch(inside)
    if ends is None:
        yield from inside.split(",")
        return
    first, last = int(ends[1]), int(ends[2])
    padded = any(len(end.lstrip("-")) > 1 and end.lstrip("-").startswith("0") for end in ends.groups())
    width = max(len(ends[1]), len(ends[2])) if padded else 0
    step = 1 if last >= first else -1
    yield from (f"{number:0{width}d}" for number in range(first, last + step, step))


def _matches(pattern: Path) -> list[Path]:
    if not _WILD.search(str(pattern)) or pattern.exists():
        return [pattern]
    found = matches(pattern)
    if not found:
        raise CorpusError(f"nothing matches {pattern}")
    return found
