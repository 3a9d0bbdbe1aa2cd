"""The file of a Part: tensors as in a profile (`counts`, `presence.<w>`, `sample.<w>.…`) and `block.<number>` for the counts
of each block, ranges and setup as header."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from skewtool.errors import FileFormatError
from skewtool.profiling.part import Part
from skewtool.profiling.places import Place, Range
from skewtool.profiling.profile import TokenizerSizes
from skewtool.profiling.profile_file import tensors_of, windows_of
from skewtool.profiling.setup import Setup
from skewtool.profiling.tally import BlockTally, SourceTally, Tally
from skewtool.storage import load_tensor_file, save_tensor_file

__all__ = ["KIND", "VERSION", "load_part", "save_part"]

KIND = "profile-part"
VERSION = "2.0"
"""1.x had no blocks: without those of all parts the time line would be wrong."""


def save_part(part: Part, path: Path, more: Mapping[str, Any] | None = None) -> None:
    """Writes `part` to `path`, beside it first, with `more` keys in the header."""
    header = {
        "setup": asdict(part.setup),
        "ranges": part.ranges,
        "num_windows": [[window.length, window.num_windows] for window in part.tally.windows],
        "sources": [[each.number, each.name, each.num_tokens, f"{each.digest:016x}"] for each in part.tally.sources],
        "blocks": [[number, block.others] for number, block in part.tally.blocks.items()],
        **(more or {}),
    }
    tensors = tensors_of(part.tally.counts, part.tally.windows)
    tensors |= {f"block.{number}": block.counts for number, block in part.tally.blocks.items()}
    save_tensor_file(path, KIND, VERSION, header, tensors)


def load_part(path: Path) -> tuple[Part, dict[str, Any]]:
    """Reads and checks a file of a part; the second is its whole header."""
    header, tensors = load_tensor_file(path, KIND, VERSION)
    try:
        sources = tuple(SourceTally(number, name, tokens, int(digest, 16))
                        for number, name, tokens, digest in header["sources"])  # fmt: skip
        blocks = {number: BlockTally(tensors[f"block.{number}"], others) for number, others in header["blocks"]}
        tally = Tally(tensors["counts"], windows_of(header["num_windows"], tensors), sources, blocks)
        return Part(_setup(header["setup"]), tuple(_range(each) for each in header["ranges"]), tally), header
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{path} is not a complete part of a profile: {error}") from None


def _place(values: list[int]) -> Place:
    source, token = values
    return source, token


def _range(values: list[list[int]]) -> Range:
    first, last = values
    return _place(first), _place(last)


def _setup(values: dict[str, Any]) -> Setup:
    tokenizer = values["tokenizer"]
    lists = {name: tuple(values[name]) for name in ("windows", "allow", "empty", "notes")}
    return Setup(**{
        **values,
        **lists,
        "first": _place(values["first"]),
        "last": _place(values["last"]),
        "tokenizer": None if tokenizer is None else TokenizerSizes(**tokenizer),
    })  # fmt: skip
