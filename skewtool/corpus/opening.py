"""`open_corpus`: from a path, or several, to a Corpus. Each format is one module; `_OPENERS` is where they meet."""

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

import numpy as np
import numpy.typing as npt

from skewtool.corpus.corpus import Corpus
from skewtool.corpus.detection import READABLE, UNREADABLE, detect_format, head_of
from skewtool.corpus.llmc import open_llmc
from skewtool.corpus.megatron import open_megatron
from skewtool.corpus.npy import open_npy
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.raw import open_raw
from skewtool.corpus.source import Source
from skewtool.corpus.text import open_jsonl, open_text
from skewtool.errors import CorpusError

__all__ = ["FORMATS", "open_corpus"]

_OPENERS: dict[str, Callable[[Path, str, ReadOptions], Source]] = {
    "megatron": open_megatron,
    "npy": open_npy,
    "llmc": open_llmc,
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
    column: str = "text",
) -> Corpus:
    """Opens a tokenized corpus: a file, a directory (searched below, in order of names), or several of either.

    Formats are told by content: llm.c shards, real .npy, Megatron .idx/.bin pairs (by either file or their common
    prefix), and with a `tokenizer` (a tokenizer.json) plain text and JSON lines whose field `column` holds the text.
    Header-less ids need `dtype`. `format` overrides the detection, except that a file that begins like a known format is
    never read as raw.

    Errors: CorpusError when nothing can be read, with what was found and the way out.
    """
    if format is not None and format not in FORMATS:
        raise CorpusError(f"unknown format {format!r}; known are {', '.join(FORMATS)}")
    options = ReadOptions(_integer_dtype(dtype), None if tokenizer is None else Path(tokenizer), column)
    roots = [path] if isinstance(path, str | PathLike) else list(path)
    if not all(str(root) for root in roots):
        raise CorpusError("the path of a corpus is empty")
    corpora = [_open_root(Path(root), format, options) for root in roots]
    if not corpora:
        raise CorpusError("no corpus was given")
    return Corpus(
        tuple(sorted((s for corpus in corpora for s in corpus.sources), key=lambda source: source.name)),
        tuple(name for corpus in corpora for name in corpus.empty_files),
        tuple(name for corpus in corpora for name in corpus.ignored_files),
    )


def _integer_dtype(dtype: npt.DTypeLike | None) -> "np.dtype[np.generic] | None":
    if dtype is None:
        return None
    try:
        return np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        raise CorpusError(f"--dtype {dtype!r} is no type known to NumPy; token ids are uint16, uint32, int32, …") from None


def _open_root(root: Path, format: str | None, options: ReadOptions) -> Corpus:
    if root.is_dir():
        return _open_directory(root, format, options)
    if not root.exists() and Path(f"{root}.idx").is_file():
        root = Path(f"{root}.idx")  # Megatron names a pair by its prefix
    if not root.exists():
        raise CorpusError(f"there is no file or directory {root}")
    if not root.is_file():
        raise CorpusError(f"{root} is neither a regular file nor a directory; write its content to a file first")
    kind = _kind_of(root, format)
    if kind == "empty":
        raise CorpusError(f"{root} is empty: it has 0 bytes and no tokens")
    source = _open_file(root, _printable(root.name), kind, options)
    if source.num_tokens == 0:
        raise CorpusError(f"{root} holds no tokens ({source.format} with a token count of 0)")
    return Corpus((source,))


def _printable(name: str) -> str:
    """The name with bytes that are no UTF-8 as \\xNN."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _kind_of(path: Path, format: str | None) -> str:
    """The format to open `path` with: as detected, or as given where the content does not forbid it."""
    found = detect_format(head_of(path))
    if _is_megatron_data(path):
        found = "megatron"
    marked = found not in ("unknown", "text", "jsonl", "empty")
    if format is None or found == "empty":
        return found
    if marked and format != found:
        raise CorpusError(f"{path} begins like {found}, so it cannot be read as {format}; leave out --format")
    if format not in ("raw", "text", "jsonl") and format != found:
        raise CorpusError(f"{path} does not begin like {format}; it looks like {found}")
    return format


def _is_megatron_data(path: Path) -> bool:
    index = path.with_suffix(".idx")
    return (
        path.suffix == ".bin"
        and index.is_file()
        and detect_format(head_of(index)) == "megatron"
        and detect_format(head_of(path)) != "megatron"
    )


def _open_file(path: Path, name: str, kind: str, options: ReadOptions) -> Source:
    if kind in UNREADABLE:
        raise CorpusError(f"{path} is {kind}, not a token corpus this version reads: {UNREADABLE[kind]}")
    if kind == "megatron" and _is_megatron_data(path):
        path, name = path.with_suffix(".idx"), Path(name).with_suffix(".idx").as_posix()
    return _OPENERS["raw" if kind == "unknown" else kind](path, name, options)


def _open_directory(root: Path, format: str | None, options: ReadOptions) -> Corpus:
    found = _search(root, format)
    empty = [name for _, name in found.pop("empty", [])]
    if empty and not found:
        raise CorpusError(f"{root} holds no tokens: all of its {len(empty)} files are empty")
    chosen = _choose(root, found, format, options)
    sources = [_open_file(path, name, chosen, options) for path, name in found.pop(chosen)]
    empty += [source.name for source in sources if source.num_tokens == 0]
    sources = [source for source in sources if source.num_tokens != 0]
    if not sources:
        raise CorpusError(f"{root} holds no tokens: all of its {len(empty)} files are empty")
    ignored = sorted(name for files in found.values() for _, name in files)
    return Corpus(tuple(sources), tuple(sorted(empty)), tuple(ignored))


def _search(root: Path, format: str | None) -> Found:
    """All files below `root` by format; hidden files and the .bin of a Megatron pair are left out."""
    found: Found = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        name = _printable(path.relative_to(root).as_posix())
        if any(part.startswith(".") for part in Path(name).parts) or _is_megatron_data(path):
            continue
        kind = detect_format(head_of(path))
        if format == "raw" and kind == "unknown":
            kind = "raw"
        found.setdefault(kind, []).append((path, name))
    return found


def _choose(root: Path, found: Found, format: str | None, options: ReadOptions) -> str:
    """The one format of a directory that is read."""
    if format is not None:
        if format not in found:
            raise CorpusError(f"{root} holds no {format} file; found {_listing(found)}")
        return format
    stored = [kind for kind in READABLE if kind in found and kind not in ("text", "jsonl")]
    texts = [kind for kind in ("jsonl", "text") if kind in found] if options.tokenizer is not None else []
    kinds = stored or texts
    if not stored and "unknown" in found and (options.dtype is not None or not texts):
        kinds = ["unknown"]
    if len(kinds) > 1:
        raise CorpusError(f"{root} mixes formats ({_listing(found)}); pass --format to choose one")
    if not kinds:
        raise CorpusError(f"{root} holds nothing that can be read as tokens; found {_listing(found)}")
    return kinds[0]


def _listing(found: Found) -> str:
    return ", ".join(f"{len(files)} {kind}" for kind, files in sorted(found.items())) or "no files"
