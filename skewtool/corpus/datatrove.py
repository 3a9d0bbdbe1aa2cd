"""datatrove's and nanotron's tokenized files.

Layout: X.ds, bare little-endian ids; X.ds.metadata, text: ``tokenizer|bytes per id``, the number of tokens, the same for
people; X.ds.index, u64 ends of documents in tokens; X.ds.loss, a byte for each token.
"""

import re
from pathlib import Path

import numpy as np

from skewtool.corpus.checks import SIZE, stop_unless_allowed
from skewtool.corpus.extent import extent_of
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.raw import document_ends
from skewtool.corpus.source import ArraySource
from skewtool.errors import CorpusError

__all__ = ["files_of_datatrove", "open_datatrove"]

_METADATA = re.compile(r"\A([^\n]*)\|([1248])\n(\d{1,18})\n")
_CHUNKS = "_chunk_shuffled.ds"


def files_of_datatrove(path: Path) -> list[Path]:
    """The files that belong to a metadata file."""
    data = path.with_suffix("")
    return [data, *(data.with_name(f"{data.name}.{ending}") for ending in ("index", "loss"))]


def open_datatrove(path: Path, name: str, options: ReadOptions) -> list[ArraySource]:
    """Opens a .ds file by its metadata.

    A total of several files has metadata and no .ds of its own: it gives no source. Errors: CorpusError when the size,
    the metadata and the index disagree, unless "size" is allowed.
    """
    match = _METADATA.match(path.read_text(encoding="utf-8", errors="replace"))
    if match is None:
        raise CorpusError(f"{path} is no metadata of datatrove: tokenizer|bytes per id, then the number of tokens")
    tokenizer, width, num_tokens = match[1], int(match[2]), int(match[3])
    data, index, _ = files_of_datatrove(path)
    if not data.is_file():
        return []
    dtype = np.dtype(f"<u{width}")
    options.check_dtype(data, dtype, path.name)
    extent = extent_of(data, num_tokens, dtype, path.name, options.allow)
    notes = (*extent.notes, f"{name}: tokenized by {tokenizer}, says its metadata")
    num_documents = None
    if index.is_file():
        ends = document_ends(index)
        last = int(ends[-1]) if ends.size else 0
        if last != num_tokens:
            problem = f"{index} ends at token {last}, but {path.name} promises {num_tokens} tokens"
            stop_unless_allowed(SIZE, problem, options.allow)
            notes += (f"{name}: its index ends at token {last} of {num_tokens}",)
        num_documents = None if data.name.endswith(_CHUNKS) else int(ends.size)  # there the ends of chunks are among them
    return [ArraySource(
        data, name.removesuffix(".metadata"), "datatrove", dtype, extent.num_tokens, num_documents,
        extent.num_tokens * width, notes, dropped=extent.dropped,
    )]  # fmt: skip
