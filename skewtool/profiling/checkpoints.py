"""`Checkpoints`: finished ranges of a run, kept in a directory so that a killed run can go on.

Each worker keeps one file there and replaces it every few seconds by all that it has counted so far; a resumed run loads
the files that are there and counts the rest. Files are parts (`skewtool.profiling.part`) with evidence that the input is
still the same: size and time of change (or what a remote store has for it) of each file that was read, and a hash of some
first ids of finished spans. Checkpoints of anything else are refused and never thrown away; those that are damaged are
counted again, with a warning.
"""

import hashlib
import time
import warnings
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from skewtool.corpus import Corpus, Ids, Source
from skewtool.corpus.locations import state_of
from skewtool.errors import FileFormatError, ProfileError
from skewtool.profiling.part import Part
from skewtool.profiling.part_file import load_part, save_part
from skewtool.profiling.places import Range, can_be_cut, gaps, joined
from skewtool.profiling.setup import Setup

__all__ = ["Checkpoints", "Evidence", "Timer"]

_HASHED_IDS = 1024
_HASHED_SPANS = 64

Head = tuple[int, int, int, str]  # source, first token, number of tokens, hash


class Timer:
    """Is due every `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._last = time.monotonic()

    def due(self) -> bool:
        """Whether so much time has passed since it was last due."""
        now = time.monotonic()
        if now - self._last < self._seconds:
            return False
        self._last = now
        return True


class Evidence:
    """What tells later that the input has not changed: of the sources and spans that one worker has read."""

    def __init__(self) -> None:
        self.files: dict[int, tuple[int, int | str]] = {}
        self.heads: list[Head] = []

    def see_file(self, number: int, source: Source) -> None:
        """Before a span of the source is read."""
        if number not in self.files:
            self.files[number] = state_of(source.path)

    def see_ids(self, number: int, source: Source, start: int, ids: Ids) -> None:
        """The first block of a span; of many spans a choice is kept, that by the lowest hashes."""
        if can_be_cut(source):
            self.heads.append((number, start, min(ids.size, _HASHED_IDS), _hash_of(ids)))
            if len(self.heads) > 2 * _HASHED_SPANS:
                self.heads = sorted(self.heads, key=lambda head: head[3])[:_HASHED_SPANS]

    def to_json(self) -> dict[str, Any]:
        """For the header of a file."""
        return {"files": [[number, *of_file] for number, of_file in self.files.items()], "heads": self.heads}


def _hash_of(ids: Ids) -> str:
    return hashlib.blake2b(ids[:_HASHED_IDS].astype("<i8").tobytes(), digest_size=8).hexdigest()


class Checkpoints:
    """The directory of one run, which need not exist. `num_tokens` were found there by `load`."""

    def __init__(self, directory: str | PathLike[str], every_seconds: float = 10.0) -> None:
        self.directory = Path(directory)
        self.every_seconds = every_seconds
        self.num_tokens = 0

    def save(self, part: Part, evidence: Evidence) -> None:
        """Writes, or replaces, the file of one worker, whose first range is no one else's."""
        self.directory.mkdir(exist_ok=True)
        source, token = part.ranges[0][0]
        save_part(part, self.directory / f"from-{source}.{token}.safetensors", {"evidence": evidence.to_json()})

    def _files(self) -> list[Path]:
        return sorted(self.directory.glob("from-*.safetensors"))

    def load(self, setup: Setup, corpus: Corpus, within: Range) -> list[Part]:
        """The finished ranges of an interrupted run of the same `setup`, inside `within`.

        Warns of files that are damaged. Errors: ProfileError when the files are of other settings, of another corpus, or
        of one that has changed since.
        """
        parts: list[Part] = []
        for path in self._files():
            try:
                part, header = load_part(path)
            except FileFormatError as error:
                warnings.warn(f"{error}; what this checkpoint held is counted again", stacklevel=2)
                continue
            self._check(part, _evidence_in(header, path), setup, corpus)
            taken = joined(each for other in parts for each in other.ranges)
            if _fits(part, within, taken):
                parts.append(part)
            else:
                warnings.warn(f"{path} overlaps other checkpoints; what it held is counted again", stacklevel=2)
        self.num_tokens = sum(part.tally.num_tokens for part in parts)
        return parts

    def _check(self, part: Part, evidence: dict[str, Any], setup: Setup, corpus: Corpus) -> None:
        difference = setup.difference(part.setup)
        if difference is not None:
            raise ProfileError(
                f"cannot go on from {self.directory}: different {difference} (now and then); repeat the command as it was, "
                "or remove that directory to count anew"
            )
        changed = _changed(evidence, corpus)
        if changed is not None:
            raise ProfileError(
                f"cannot go on from {self.directory}: {changed.path} has changed since; remove that directory to count anew"
            )

    def remove(self) -> None:
        """Removes the files and, when nothing else is in it, the directory."""
        for path in [*self._files(), *self.directory.glob(".from-*.tmp")]:
            path.unlink(missing_ok=True)
        if self.directory.is_dir() and not any(self.directory.iterdir()):
            self.directory.rmdir()


def _evidence_in(header: dict[str, Any], path: Path) -> dict[str, Any]:
    """Errors: ProfileError for a part that is no checkpoint."""
    evidence = header.get("evidence")
    if not isinstance(evidence, dict) or not all(isinstance(evidence.get(key), list) for key in ("files", "heads")):
        raise ProfileError(
            f"{path} lies among checkpoints and is none: a part of a profile that does not tell the state of its input; "
            "move it away"
        )
    return evidence


def _fits(part: Part, within: Range, taken: tuple[Range, ...]) -> bool:
    """Whether all ranges lie in what is not taken."""
    free = gaps(within, taken)
    return all(any(a <= first and last <= b for a, b in free) for first, last in part.ranges)


def _changed(evidence: dict[str, Any], corpus: Corpus) -> Source | None:
    """The first source that is not as the evidence says."""
    source: Source
    for number, *state in evidence["files"]:
        source = corpus.sources[number]
        if state_of(source.path) != tuple(state):
            return source
    for number, start, length, known in evidence["heads"]:
        source = corpus.sources[number]
        ids = list(source.blocks(start, start + length))
        if _hash_of(np.concatenate([each.astype("<i8") for each in ids])) != known:
            return source
    return None
