"""The file of a Profile: tensors `counts`, `presence.<w>`, `sample.<w>.{keys,indptr,ids,counts}` and, since version 1.1,
`timeline.{num_tokens,ids,counts,loads}` where there is one; the rest as header."""

from collections.abc import Iterable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy.typing as npt

from skewtool.errors import FileFormatError
from skewtool.profiling.profile import Profile, SourceRow, TokenizerSizes, WindowSample, WindowStatistics
from skewtool.profiling.timeline import Timeline
from skewtool.storage import load_tensor_file, save_tensor_file

__all__ = ["KIND", "VERSION", "load_profile", "save_profile", "tensors_of", "windows_of"]

KIND = "profile"
VERSION = "1.1"

Row = TypeVar("Row", SourceRow, TokenizerSizes)
Tensors = dict[str, npt.NDArray[Any]]

_TIMELINE = tuple(field.name for field in fields(Timeline))


def save_profile(profile: Profile, path: Path) -> None:
    """Writes `profile` to `path`, beside it first."""
    header = {
        "windows": [[window.length, window.num_windows] for window in profile.windows],
        "sources": [asdict(source) for source in profile.sources],
        "sample_size": profile.sample_size,
        "seed": profile.seed,
        "dropped": dict(profile.dropped),
        "notes": list(profile.notes),
        "tokenizer": None if profile.tokenizer is None else asdict(profile.tokenizer),
    }
    tensors = tensors_of(profile.counts, profile.windows)
    if profile.timeline is not None:
        tensors |= {f"timeline.{name}": getattr(profile.timeline, name) for name in _TIMELINE}
    save_tensor_file(path, KIND, VERSION, header, tensors)


def tensors_of(counts: npt.NDArray[Any], windows: Iterable[WindowStatistics]) -> Tensors:
    """The named tensors of a file: counts, and presence and sample of each window length."""
    tensors: Tensors = {"counts": counts}
    for window in windows:
        prefix = f"sample.{window.length}"
        tensors[f"presence.{window.length}"] = window.presence
        tensors[f"{prefix}.keys"] = window.sample.keys
        tensors[f"{prefix}.indptr"] = window.sample.indptr
        tensors[f"{prefix}.ids"] = window.sample.ids
        tensors[f"{prefix}.counts"] = window.sample.counts
    return tensors


def windows_of(num_windows: Iterable[tuple[int, int]], tensors: Tensors) -> tuple[WindowStatistics, ...]:
    """The statistics of each (length, number of windows), from the tensors of a file. Errors: KeyError, ValueError."""
    return tuple(_window(length, number, tensors) for length, number in num_windows)


def load_profile(path: Path) -> Profile:
    """Reads and checks a profile file."""
    header, tensors = load_tensor_file(path, KIND, VERSION)
    try:
        return Profile(
            counts=tensors["counts"],
            windows=windows_of(header["windows"], tensors),
            sources=tuple(_known(SourceRow, row) for row in header["sources"]),
            sample_size=header["sample_size"],
            seed=header["seed"],
            dropped=header["dropped"],
            notes=tuple(header["notes"]),
            tokenizer=None if header["tokenizer"] is None else _known(TokenizerSizes, header["tokenizer"]),
            timeline=_timeline(tensors),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path} is not a complete profile: {error}") from None


def _timeline(tensors: Tensors) -> Timeline | None:
    if not any(name.startswith("timeline.") for name in tensors):
        return None
    return Timeline(**{name: tensors[f"timeline.{name}"] for name in _TIMELINE})


def _known(kind: type[Row], values: dict[str, Any]) -> Row:
    """Without the fields that a newer minor version may have added."""
    return kind(**{field.name: values[field.name] for field in fields(kind)})


def _window(length: int, num_windows: int, tensors: Tensors) -> WindowStatistics:
    parts = {part: tensors[f"sample.{length}.{part}"] for part in ("keys", "indptr", "ids", "counts")}
    return WindowStatistics(length, num_windows, tensors[f"presence.{length}"], WindowSample(**parts))
