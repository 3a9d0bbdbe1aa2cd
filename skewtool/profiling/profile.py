"""`Profile`: what a corpus looks like, small enough to carry around and exact enough to add up.

Arrays (V = vocab_size, K = sampled windows of one length, all read-only):
  counts     int64 [V]   occurrences of each id
  presence   int64 [V]   windows of w tokens that hold the id, for each window length w
  sample     K whole windows as rows of a sparse matrix: keys uint64 [K], indptr int64 [K + 1], ids and counts int32
  timeline   counts of the top ids and loads by ranges of ids for each block of the corpus (see `Timeline`)

Windows start at multiples of w within a source; a shorter tail is a window of its own. The sample holds the K windows
of full length with the smallest keys, so the sample of a union is found in the union of the samples.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.errors import ProfileError
from skewtool.profiling.timeline import Timeline

__all__ = ["Profile", "SourceRow", "TokenizerSizes", "WindowSample", "WindowStatistics"]

Window = tuple[int, npt.NDArray[np.int32], npt.NDArray[np.int32]]


def _vector(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A read-only view of a vector of integers; the caller's own array stays as it is."""
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ProfileError(f"{name} must be a vector of integers, got {array.dtype} {array.shape}")
    view = array.view()
    view.flags.writeable = False
    return view


def in_sample_order(windows: Iterable[Window]) -> list[Window]:
    """By key; equal keys, as of files with the same name, by content: the order in which windows came never matters."""
    ordered = sorted(windows, key=lambda window: window[0])
    if all(first[0] != second[0] for first, second in pairwise(ordered)):
        return ordered  # the usual case, without a copy of every window to compare
    return sorted(ordered, key=lambda window: (window[0], window[1].tobytes(), window[2].tobytes()))


@dataclass(frozen=True, eq=False)
class WindowSample:
    """Whole windows, by ascending key: window k holds the ids[indptr[k]:indptr[k+1]], each `counts` times, in the order
    in which they first occur."""

    keys: npt.NDArray[np.uint64]
    indptr: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]

    def __post_init__(self) -> None:
        for name in ("keys", "indptr", "ids", "counts"):
            object.__setattr__(self, name, _vector(f"sample {name}", getattr(self, name)))
        bounds = self.indptr
        if bounds.size != self.keys.size + 1 or bounds[0] != 0 or bounds[-1] != self.ids.size or (np.diff(bounds) < 0).any():
            raise ProfileError("the windows of a sample must be consecutive parts of its ids")
        if self.ids.size != self.counts.size or (self.counts < 1).any() or (self.ids < 0).any():
            raise ProfileError("a sampled window needs a count of at least 1 for each id, and ids of at least 0")

    @classmethod
    def of(cls, windows: Iterable[Window], size: int | None = None) -> "WindowSample":
        """The first `size` windows, `in_sample_order`."""
        ordered = in_sample_order(windows)[:size]
        lengths = [window[1].size for window in ordered]
        nothing = [np.empty(0, np.int32)]
        return cls(
            keys=np.array([window[0] for window in ordered], np.uint64),
            indptr=np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int64),
            ids=np.concatenate([window[1] for window in ordered] or nothing),
            counts=np.concatenate([window[2] for window in ordered] or nothing),
        )

    def __len__(self) -> int:
        return int(self.keys.size)

    def after(self, number: int) -> "WindowSample":
        """The sample without its first `number` windows."""
        first = int(self.indptr[number])
        return WindowSample(self.keys[number:], self.indptr[number:] - first, self.ids[first:], self.counts[first:])

    def windows(self) -> list[Window]:
        """(key, ids, counts) of each window."""
        bounds = self.indptr
        return [
            (int(key), self.ids[bounds[k] : bounds[k + 1]], self.counts[bounds[k] : bounds[k + 1]])
            for k, key in enumerate(self.keys)
        ]


@dataclass(frozen=True, eq=False)
class WindowStatistics:
    """Windows of `length` tokens: how many there are, how many hold each id (int64 [V]), and a sample of them."""

    length: int
    num_windows: int
    presence: npt.NDArray[np.int64]
    sample: WindowSample

    def __post_init__(self) -> None:
        object.__setattr__(self, "presence", _vector("presence", self.presence))
        if (self.presence < 0).any() or (self.presence > self.num_windows).any():
            raise ProfileError(f"presence must be 0 to the {self.num_windows} windows of {self.length} tokens")


@dataclass(frozen=True, order=True)
class SourceRow:
    """One source file. `digest` (16 hex digits) is a hash of its windows' contents and positions: it tells whether the
    file is the same, at no cost beside counting; it is no defence against forgery."""

    name: str
    num_tokens: int
    digest: str


@dataclass(frozen=True)
class TokenizerSizes:
    """The vocabulary sizes of the tokenizer: its model's tokens, with added ones, and the highest id plus one."""

    fingerprint: str
    base_size: int
    size_with_added: int
    num_ids: int


@dataclass(frozen=True, eq=False)
class Profile:
    """Token frequencies and window statistics of a corpus. `dropped` counts tokens left out, by reason. `timeline` is None
    in files of before there was one, and when profiles were merged, whose corpora have no order among them."""

    counts: npt.NDArray[np.int64]
    windows: tuple[WindowStatistics, ...]
    sources: tuple[SourceRow, ...]
    sample_size: int
    seed: int
    dropped: Mapping[str, int]
    notes: tuple[str, ...] = ()
    tokenizer: TokenizerSizes | None = None
    timeline: Timeline | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", _vector("counts", self.counts))
        if (self.counts < 0).any():
            raise ProfileError(f"id {int(np.argmax(self.counts < 0))} has a negative count")
        for window in self.windows:
            if window.sample.ids.size and int(window.sample.ids.max()) >= self.vocab_size:
                raise ProfileError(f"a sampled window holds id {window.sample.ids.max()}, ids end at {self.vocab_size - 1}")
            if window.presence.shape != self.counts.shape:
                raise ProfileError(
                    f"presence for {window.length}-token windows has {window.presence.size} ids, counts {self.vocab_size}"
                )
        if self.timeline is not None:
            self.timeline.check_fits(self.counts)

    @property
    def vocab_size(self) -> int:
        return int(self.counts.size)

    @cached_property
    def num_tokens(self) -> int:
        """Counted tokens, dropped ones not among them."""
        return int(self.counts.sum())

    @cached_property
    def num_distinct(self) -> int:
        """Ids that occur."""
        return int(np.count_nonzero(self.counts))

    @cached_property
    def counts_sha256(self) -> str:
        """sha256 of the counts as little-endian int64."""
        return hashlib.sha256(self.counts.astype("<i8").tobytes()).hexdigest()

    @property
    def tokens_per_rank(self) -> int:
        """The longest window length: how many tokens a source rank has per step unless said otherwise.

        Errors: ProfileError when the profile has no windows.
        """
        if not self.windows:
            raise ProfileError("the profile has counts alone; profile with --window 8192 (raw load needs no windows)")
        return self.windows[-1].length

    def window(self, length: int) -> WindowStatistics:
        """The statistics of one window length. Errors: ProfileError when it was not counted."""
        for window in self.windows:
            if window.length == length:
                return window
        known = ", ".join(str(window.length) for window in self.windows) or "none"
        raise ProfileError(
            f"the profile has no windows of {length} tokens (it has: {known}); profile again with --window {length} "
            "or use a known length as tokens per rank"
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Writes the profile as a safetensors file; equal profiles give equal bytes."""
        from skewtool.profiling.profile_file import save_profile

        save_profile(self, Path(path))

    @staticmethod
    def load(path: str | PathLike[str]) -> "Profile":
        """Reads a profile. Errors: FileFormatError when the file is damaged, of another kind or version."""
        from skewtool.profiling.profile_file import load_profile

        return load_profile(Path(path))
