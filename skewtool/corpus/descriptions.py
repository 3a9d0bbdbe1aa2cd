"""Files that describe others: the index of a Megatron pair, MDS or litdata, the state of a saved data set, metadata.

Where there is one, it is detected and opened, and what it describes is not looked at for itself: ids without a header may
look like anything, and a shard read as raw ids would have its header counted.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from skewtool.corpus.datatrove import files_of_datatrove
from skewtool.corpus.detection import format_of
from skewtool.corpus.hf import files_of_hf
from skewtool.corpus.litdata import files_of_litdata
from skewtool.corpus.mds import files_of_mds
from skewtool.errors import CorpusError

__all__ = ["described_files", "description_of", "kind_of_description", "may_describe"]


def _data_of_pair(index: Path) -> list[Path]:
    return [index.with_suffix(".bin")]


_DESCRIBED: dict[str, Callable[[Path], Iterable[Path]]] = {
    "megatron": _data_of_pair,
    "fairseq": _data_of_pair,
    "fairseq Huffman index": _data_of_pair,
    "litdata": files_of_litdata,
    "mds": files_of_mds,
    "datatrove": files_of_datatrove,
    "hf": files_of_hf,
}

_ENDINGS = (".idx", ".json", ".metadata")

_DATA_BESIDE = {
    "state.json": ("*.arrow",),
    "dataset_dict.json": ("*/state.json",),
    "index.json": ("*.mds", "*.mds.*", "chunk-*-*.bin"),
}
"""What lies beside a describing file of such a name."""


def may_describe(path: Path) -> bool:
    """Whether a file has one of the usual endings; only its content decides what it is."""
    return path.suffix in _ENDINGS


def described_files(path: Path, kind: str) -> Iterable[Path]:
    """What a file of the given kind describes; nothing for kinds that do not. Errors: CorpusError when it is damaged."""
    return _DESCRIBED[kind](path) if kind in _DESCRIBED else ()


def kind_of_description(path: Path) -> str:
    """As `format_of`. Errors: CorpusError for a file that by its name and what lies beside it should describe data, and
    by its content does not: without it the data could be misread or counted twice."""
    kind = format_of(path)
    if kind in _DESCRIBED:
        return kind
    if path.suffix == ".idx":
        data = [path.with_suffix(".bin")]
    elif path.suffix == ".metadata":
        data = [path.with_suffix("")] if path.with_suffix("").suffix == ".ds" else []
    else:
        data = [each for pattern in _DATA_BESIDE.get(path.name, ()) for each in sorted(path.parent.glob(pattern))]
    found = next((each for each in data if each.is_file()), None)
    if found is not None:
        raise CorpusError(
            f"{path} should describe {found.name}, but its content ({kind}) does not: it is damaged, or has the name by "
            "chance; restore it, or move it away"
        )
    return kind


def description_of(path: Path) -> Path | None:
    """The file that describes `path`, if there is one beside it: its own index, or that of all its folder."""
    if may_describe(path) and format_of(path) in _DESCRIBED:
        return None
    own = [path.with_suffix(".idx")] if path.suffix == ".bin" else []
    common = [path.parent / name for name in ("index.json", "state.json")]
    for description in (*own, path.with_name(f"{path.name}.metadata"), *common):
        if description == path or not description.is_file():
            continue
        if path in described_files(description, kind_of_description(description)):
            return description
    return None
