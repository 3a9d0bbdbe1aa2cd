"""How skewtool writes files: beside the target and then renamed; and the tensor file that Profile and ShardMap share.

A tensor file is a safetensors file (no pickle, memory-mapped, readable from numpy, torch, Rust or C++) whose metadata
has the single key ``skewtool``: a JSON object with

- ``format``: what the file is, as "profile" or "shard-map";
- ``version``: "major.minor". Another major version cannot be read; a newer minor one is read with a warning;
- ``digest``: sha256 over the rest of the header and all tensors, checked at load;
- whatever the object adds.

One metadata key, because safetensors does not promise an order among several, and equal content must give equal bytes.
"""

import hashlib
import json
import os
import secrets
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from skewtool.errors import FileFormatError

__all__ = ["canonical_json", "check_target", "load_tensor_file", "peek_header", "replacing", "save_tensor_file"]

_KEY = "skewtool"

Tensors = Mapping[str, npt.NDArray[Any]]


def check_target(target: Path) -> None:
    """Tells early that a file cannot be written: FileFormatError when its folder is missing, or when it is a directory or
    a device: renaming a file over those would destroy them."""
    if target.exists() and not target.is_file() and not target.is_dir():
        raise FileFormatError(f"cannot write {target}: it is no regular file; give the name of one")
    if not target.parent.is_dir():
        raise FileFormatError(f"cannot write {target}: there is no directory {target.parent}; make it first")
    if target.is_dir():
        raise FileFormatError(f"cannot write {target}: it is a directory; give a file name")
    if not os.access(target.parent, os.W_OK):
        raise FileFormatError(f"cannot write {target}: the directory {target.parent} is not writable")


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Gives a temporary path beside `target`; renames it to `target` when the block ends well, else removes it.

    A symbolic link is followed: the file it points to is replaced.

    Errors: FileFormatError as `check_target`.
    """
    check_target(target)
    target = target.resolve()
    # Not by process and thread: containers on one file system all have the same.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def canonical_json(value: object) -> str:
    """The one JSON text of `value`: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _digest(header: Mapping[str, Any], tensors: Tensors) -> str:
    digest = hashlib.sha256(canonical_json({k: v for k, v in header.items() if k != "digest"}).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        little_endian = np.ascontiguousarray(tensor, dtype=tensor.dtype.newbyteorder("<"))
        digest.update(f"\0{name}\0{tensor.dtype.name}\0{tensor.shape}\0".encode())
        digest.update(little_endian.tobytes())
    return digest.hexdigest()


def save_tensor_file(path: Path, kind: str, version: str, header: Mapping[str, Any], tensors: Tensors) -> str:
    """Writes one tensor file; returns its digest. Equal content gives equal bytes."""
    full = {"format": kind, "version": version, **header}
    full["digest"] = _digest(full, tensors)
    contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        temporary.write_bytes(save(contiguous, metadata={_KEY: canonical_json(full)}))
    return str(full["digest"])


def _header_of(path: Path, metadata: Mapping[str, str] | None) -> dict[str, Any]:
    try:
        header = json.loads((metadata or {})[_KEY])
    except (KeyError, json.JSONDecodeError):
        raise FileFormatError(f"{path} is a safetensors file, but not one of skewtool's (no '{_KEY}' header)") from None
    if not isinstance(header, dict) or not all(isinstance(header.get(k), str) for k in ("format", "version", "digest")):
        raise FileFormatError(f"{path} has a damaged skewtool header: it needs format, version and digest")
    return header


def _open(path: Path) -> Any:
    if not path.is_file():
        raise FileFormatError(f"{path} is not a file" if path.exists() else f"there is no file {path}")
    try:
        return safe_open(path, framework="numpy")
    except SafetensorError as error:
        raise FileFormatError(f"{path} is no profile or map of skewtool: not a safetensors file ({error})") from None


def peek_header(path: Path) -> dict[str, Any] | None:
    """The skewtool header of `path`, or None when it is another kind of file. Tensors are not read."""
    try:
        with _open(path) as file:
            return _header_of(path, file.metadata())
    except FileFormatError:
        return None


def _check_version(path: Path, kind: str, found: str, version: str) -> None:
    try:
        major, minor = (int(part) for part in found.split("."))
    except ValueError:
        raise FileFormatError(f"{path} has the unreadable {kind} version {found!r}, expected like {version}") from None
    known_major, known_minor = (int(part) for part in version.split("."))
    if major != known_major:
        raise FileFormatError(
            f"{path} has {kind} version {found}; this skewtool reads {known_major}.x: "
            f"{'upgrade skewtool' if major > known_major else 'write the file again'}"
        )
    if minor > known_minor:
        warnings.warn(f"{path} has {kind} version {found}, newer than {version}: parts unknown to this skewtool "
                      "are ignored", stacklevel=4)  # fmt: skip


def load_tensor_file(path: Path, kind: str, version: str) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Reads and checks one tensor file of the given kind; returns its header and tensors.

    Errors: FileFormatError for a missing file, another kind, another major version, or a digest that does not match.
    """
    with _open(path) as file:
        header = _header_of(path, file.metadata())
        if header["format"] != kind:
            raise FileFormatError(f"{path} is a skewtool {header['format']} file, expected a {kind} file")
        _check_version(path, kind, header["version"], version)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    try:
        found = _digest(header, tensors)
    except ValueError:  # a number in the header that no JSON text has
        found = "none"
    if found != header["digest"]:
        raise FileFormatError(
            f"{path} is damaged: its content has digest {found[:12]}…, its header says {header['digest'][:12]}…; "
            "make or copy the file again"
        )
    return header, tensors
