"""Data sets that Hugging Face's `save_to_disk` wrote: state.json names the Arrow streams, dataset_dict.json the splits.

Other Arrow files in the folder, as cache files, are not part of the data set.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from skewtool.corpus.arrow import open_arrow
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.shards import shard_path
from skewtool.corpus.source import Source
from skewtool.errors import CorpusError

__all__ = ["files_of_hf", "open_hf"]


def files_of_hf(path: Path) -> list[Path]:
    """What belongs to a state.json or dataset_dict.json, files that are not read among them."""
    splits = _splits(path)
    if splits is not None:
        return [file for split in splits for file in (split, *files_of_hf(split))]
    beside = path.parent
    return [*_data_files(path), *beside.glob("*.arrow"), beside / "dataset_info.json"]


def open_hf(path: Path, name: str, options: ReadOptions) -> list[Source]:
    """Opens a saved data set, or all splits of a DatasetDict, by the file that describes it.

    Errors: CorpusError for a damaged description, missing files, and as `open_arrow`.
    """
    folder = name.rpartition("/")[0]
    prefix = f"{folder}/" if folder else ""
    splits = _splits(path)
    if splits is not None:
        return [
            source
            for split in splits
            for source in open_hf(split, f"{prefix}{split.parent.name}/{split.name}", options)
        ]  # fmt: skip
    listed = _data_files(path)
    sources: list[Source] = []
    for file in listed:
        if not file.is_file():
            raise CorpusError(f"{path} lists {file}, which is not there")
        sources += [
            replace(source, format="hf")
            for source in open_arrow(file, f"{prefix}{file.relative_to(path.parent).as_posix()}", options)
        ]
    others = sorted(file.name for file in set(path.parent.glob("*.arrow")) - set(listed))
    if others and sources:
        note = f"{name} does not list {len(others)} Arrow files beside it, which were not read: {', '.join(others[:3])}"
        sources[0] = replace(sources[0], notes=(*sources[0].notes, note))
    return sources


def _described(path: Path) -> dict[str, Any]:
    content = path.read_bytes()
    try:
        described = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{path} is damaged: no JSON ({error})") from None
    if not isinstance(described, dict):
        raise CorpusError(f"{path} is damaged: no JSON object")
    return described


def _splits(path: Path) -> list[Path] | None:
    """The state.json of each split, or None for a single data set."""
    splits = _described(path).get("splits")
    if not isinstance(splits, list):
        return None
    found = [shard_path(path, split) / "state.json" for split in splits]
    for split in found:
        if not split.is_file():
            raise CorpusError(f"{path} lists the split {split.parent.name}, but {split} is not there")
    return found


def _data_files(path: Path) -> list[Path]:
    described = _described(path)
    listed = described.get("_data_files")
    if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise CorpusError(f"{path} is damaged: '_data_files' must be a list of objects")
    if described.get("_indices_data_files"):
        raise CorpusError(f"{path} selects rows by indices; save the data set again with a newer version of datasets")
    return [shard_path(path, each.get("filename")) for each in listed]
