"""`open_corpus`: from a path, or several, to a Corpus. Each format is one module; `_OPENERS` is where they meet."""

from collections.abc import Callable, Collection, Sequence
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from skewtool.corpus.arrow import open_arrow
from skewtool.corpus.checks import CHECKS
from skewtool.corpus.corpus import Corpus
from skewtool.corpus.datatrove import open_datatrove
from skewtool.corpus.descriptions import described_files, description_of, kind_of_description, may_describe
from skewtool.corpus.detection import READABLE, UNREADABLE, format_of
from skewtool.corpus.fairseq import open_fairseq
from skewtool.corpus.hf import open_hf
from skewtool.corpus.jsonl import column_of_ids, open_jsonl
from skewtool.corpus.litdata import open_litdata
from skewtool.corpus.llmc import open_llmc
from skewtool.corpus.locations import files_below, location
from skewtool.corpus.mds import open_mds
from skewtool.corpus.megatron import open_megatron
from skewtool.corpus.mixture import open_mixture
from skewtool.corpus.npy import open_npy
from skewtool.corpus.npz import open_npz
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.packed import open_packed
from skewtool.corpus.parquet import open_parquet
from skewtool.corpus.paths import expand
from skewtool.corpus.raw import open_raw, places_of_documents
from skewtool.corpus.source import Source
from skewtool.corpus.suspicions import examine, sort_out
from skewtool.corpus.tar import open_tar
from skewtool.corpus.text import open_text
from skewtool.errors import CorpusError

__all__ = ["FORMATS", "open_corpus"]

_OPENERS: dict[str, Callable[[Path, str, ReadOptions], Sequence[Source]]] = {
    "megatron": open_megatron,
    "fairseq": open_fairseq,
    "npy": open_npy,
    "npz": open_npz,
    "llmc": open_llmc,
    "packed": open_packed,
    "litdata": open_litdata,
    "mds": open_mds,
    "datatrove": open_datatrove,
    "hf": open_hf,
    "arrow": open_arrow,
    "parquet": open_parquet,
    "tar": open_tar,
    "jsonl": open_jsonl,
    "text": open_text,
    "raw": open_raw,
}


FORMATS = tuple(_OPENERS)
"""Names that `format` and --format take."""

Found = dict[str, list[tuple[Path, str]]]


def open_corpus(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    *,
    format: str | None = None,
    dtype: npt.DTypeLike | None = None,
    tokenizer: str | PathLike[str] | None = None,
    column: str | None = None,
    allow: Collection[str] = (),
) -> Corpus:
    """Opens a tokenized corpus: a file, a directory (searched below), a pattern as ``{00..99}.tar`` or
    ``*/*.npy``, a mixture file (`skewtool.corpus.mixture`), or several of these. Any may be a URL (``s3://bucket/corpus``)
    that fsspec knows, with the package `skewtool[remote]` and the driver of the store.

    Formats are told by content (FORMATS lists them). Header-less ids need `dtype`; text needs a `tokenizer` (a
    tokenizer.json). `column` names the column, field or array with the ids or the text; by default input_ids, tokens,
    token_ids or ids, and "text". `format` overrides the detection, except that a file that begins like a known format is
    never read as raw. `allow` names checks to go on after (`skewtool.corpus.checks`).

    Errors: CorpusError when nothing can be read or a check fails, with what was found, where, and the way out.
    """
    if format is not None and format not in FORMATS:
        raise CorpusError(f"unknown format {format!r}; known are {', '.join(FORMATS)}")
    if set(allow) - set(CHECKS):
        raise CorpusError(f"unknown check {sorted(set(allow) - set(CHECKS))[0]!r} to allow; known are {', '.join(CHECKS)}")
    options = ReadOptions(
        _integer_dtype(dtype), None if tokenizer is None else Path(tokenizer), column, frozenset(allow)
    )  # fmt: skip
    roots = list(path) if isinstance(path, Sequence) and not isinstance(path, str) else [path]
    if not all(str(root) for root in roots):
        raise CorpusError("the path of a corpus is empty")
    corpora = [_open_root(each, name, format, options) for root in roots for each, name in expand(location(root))]
    if not corpora:
        raise CorpusError("no corpus was given")
    return corpora[0] if len(corpora) == 1 else _together(corpora, options)


def _together(corpora: Sequence[Corpus], options: ReadOptions) -> Corpus:
    in_order = sorted(corpora, key=lambda corpus: corpus.sources[0].name)
    sources, left_out = sort_out([source for corpus in in_order for source in corpus.sources], options.allow)
    return Corpus(
        sources,
        tuple(name for corpus in corpora for name in corpus.empty_files),
        tuple(name for corpus in corpora for name in corpus.ignored_files),
        (*(each for corpus in corpora for each in corpus.left_out), *left_out),
    )


def _integer_dtype(dtype: npt.DTypeLike | None) -> "np.dtype[np.generic] | None":
    if dtype is None:
        return None
    try:
        return np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        raise CorpusError(f"--dtype {dtype!r} is no type known to NumPy; token ids are uint16, uint32, int32, …") from None


def _open_root(root: Path, name: str, format: str | None, options: ReadOptions) -> Corpus:
    if root.is_dir():
        return _open_directory(root, name, format, options)
    if not root.exists() and (index := root.with_name(f"{root.name}.idx")).is_file():
        root, name = index, f"{name}.idx"  # Megatron names a pair by its prefix
    if not root.exists():
        raise CorpusError(f"there is no file or directory {root}")
    if not root.is_file():
        raise CorpusError(f"{root} is neither a regular file nor a directory; write its content to a file first")
    description = description_of(root)
    kind = _kind_of(root if description is None else description, format)
    if kind == "mixture":
        return open_mixture(root, _opener_within(options))
    if kind == "empty":
        raise CorpusError(f"{root} is empty: it has 0 bytes and no tokens")
    name = _printable(name)
    if description is None:
        opened = _open_file(root, name, kind, options)
    else:  # of all that is described, what was asked for
        beside = f"{name[: len(name) - len(root.name)]}{description.name}"
        opened = [source for source in _open_file(description, beside, kind, options) if source.path == root]
    sources, left_out = sort_out(opened, options.allow)
    if not sources and not left_out:
        raise CorpusError(f"{root} describes data of {kind} that are not there")
    if all(source.num_tokens == 0 for source in sources):
        raise CorpusError(f"{root} holds no tokens ({kind} with a token count of 0)")
    return Corpus(sources, left_out=left_out)


def _opener_within(options: ReadOptions) -> Callable[..., Corpus]:
    """`open_corpus` with the options of a mixture, each of which may be another for one of its corpora."""

    def open_one(path: Path, **changed: str) -> Corpus:
        common = {"dtype": options.dtype, "column": options.column, "tokenizer": options.tokenizer}
        return open_corpus(path, allow=options.allow, **(common | changed))  # type: ignore[arg-type]

    return open_one


def _printable(name: str) -> str:
    """The name with bytes that are no UTF-8 as \\xNN."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _kind_of(path: Path, format: str | None) -> str:
    """The format to open `path` with: as detected, or as given where the content does not forbid it."""
    found = format_of(path)
    marked = found not in ("unknown", "text", "jsonl", "empty")
    if format is None or found == "empty":
        return found
    if marked and format != found:
        raise CorpusError(f"{path} begins like {found}, so it cannot be read as {format}; leave out --format")
    if format not in ("raw", "text", "jsonl") and format != found:
        raise CorpusError(f"{path} does not begin like {format}; it looks like {found}")
    return format


def _open_file(path: Path, name: str, kind: str, options: ReadOptions) -> list[Source]:
    if kind in UNREADABLE:
        raise CorpusError(f"{path} is {kind}, not a token corpus this version reads: {UNREADABLE[kind]}")
    sources = _OPENERS["raw" if kind == "unknown" else kind](path, name, options)
    return [examine(source, options.allow) for source in sources]


def _open_directory(root: Path, name: str, format: str | None, options: ReadOptions) -> Corpus:
    found = _search(root, f"{name}/" if name else "", format)
    empty = [each for _, each in found.pop("empty", [])]
    if empty and not found:
        raise CorpusError(f"{root} holds no tokens: all of its {len(empty)} files are empty")
    chosen = _choose(root, found, format, options)
    opened = [source for path, each in found.pop(chosen) for source in _open_file(path, each, chosen, options)]
    sources, left_out = sort_out(opened, options.allow)
    empty += [source.name for source in sources if source.num_tokens == 0]
    sources = tuple(source for source in sources if source.num_tokens != 0)
    if not sources:
        raise CorpusError(f"{root} holds no tokens: all of its {len(empty)} files are empty")
    ignored = sorted(each for files in found.values() for _, each in files)
    return Corpus(tuple(sources), tuple(sorted(empty)), tuple(ignored), left_out)


def _search(root: Path, prefix: str, format: str | None) -> Found:
    """All files below `root` by format; hidden files and those that others describe are left out."""
    below = {path: path.relative_to(root) for path in files_below(root)}
    files = {
        path: _printable(f"{prefix}{relative.as_posix()}")
        for path, relative in below.items()
        if not any(part.startswith(".") for part in relative.parts)
    }
    kinds = {path: kind_of_description(path) for path in files if may_describe(path)}
    described = {each for path, kind in kinds.items() for each in described_files(path, kind)}
    found: Found = {}
    for path, name in files.items():
        if path in described:
            continue
        kind = kinds.get(path) or format_of(path)
        if kind in ("unknown", "raw"):
            places = places_of_documents(path)
            described.update({places} if places is not None else ())
            kind = "raw" if format == "raw" else kind
        found.setdefault(kind, []).append((path, name))
    return {kind: kept for kind, files in found.items() if (kept := [each for each in files if each[0] not in described])}


def _choose(root: Path, found: Found, format: str | None, options: ReadOptions) -> str:
    """The one format of a directory that is read."""
    if format is not None:
        if format not in found:
            raise CorpusError(f"{root} holds no {format} file; found {_listing(found)}")
        return format
    stored = [kind for kind in READABLE if kind in found and kind not in ("text", "jsonl")]
    if not stored and _only_ids_of_jsonl(found, options):
        stored = ["jsonl"]
    texts = [kind for kind in ("jsonl", "text") if kind in found] if options.tokenizer is not None else []
    kinds = stored or texts
    if not stored and "unknown" in found and (options.dtype is not None or not texts):
        kinds = ["unknown"]
    if len(kinds) > 1:
        raise CorpusError(f"{root} mixes formats ({_listing(found)}); pass --format to choose one")
    if not kinds:
        raise CorpusError(f"{root} holds nothing that can be read as tokens; found {_listing(found)}")
    return kinds[0]


def _only_ids_of_jsonl(found: Found, options: ReadOptions) -> bool:
    """Whether there are JSON lines of ids; then other JSON, as configurations, is put among the text."""
    of_ids = [each for each in found.get("jsonl", []) if column_of_ids(each[0], options) is not None]
    if of_ids:
        found["text"] = found.get("text", []) + [each for each in found["jsonl"] if each not in of_ids]
        found["jsonl"] = of_ids
    return bool(of_ids)


def _listing(found: Found) -> str:
    return ", ".join(f"{len(files)} {kind}" for kind, files in sorted(found.items())) or "no files"
