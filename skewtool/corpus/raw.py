"""Ids without any header (nanoGPT's train.bin, OLMo's and Dolma's so-called .npy): the type must be said.

Layout: bare little-endian integers from the first byte to the last. Nothing in the file tells their width.
"""

from pathlib import Path

import numpy as np

from skewtool.corpus.evidence import dtype_evidence, halves_of_wider_ids
from skewtool.corpus.options import ReadOptions
from skewtool.corpus.source import ArraySource
from skewtool.errors import CorpusError

__all__ = ["open_raw"]


def open_raw(path: Path, name: str, options: ReadOptions) -> ArraySource:
    """Opens header-less ids.

    Errors: CorpusError when no dtype is given (with the evidence for each), when it is no integer type, or when the
    file's size is no multiple of it (the trailing bytes are named, never dropped).
    """
    num_bytes = path.stat().st_size
    if options.dtype is None and options.tokenizer is not None:
        raise CorpusError(
            f"{path} is neither UTF-8 text nor of a known format; convert text to UTF-8, or pass --dtype if it holds ids"
        )
    if options.dtype is None:
        raise CorpusError(
            f"{path} has no header that tells the type of its ids; pass --dtype ({dtype_evidence(path, num_bytes)})"
        )
    dtype = options.dtype
    if dtype.kind not in "iu":
        raise CorpusError(f"--dtype must be an integer type such as uint16 or uint32, not {dtype}")
    num_tokens, trailing = divmod(num_bytes, dtype.itemsize)
    if trailing:
        raise CorpusError(
            f"{path} has {num_bytes} bytes, no multiple of the {dtype.itemsize} bytes of {dtype}: {trailing} trailing "
            f"bytes at offset {num_bytes - trailing}; is the file cut off or the dtype another?"
        )
    notes: tuple[str, ...] = ()
    if path.suffix == ".npy":
        notes = (f"{name} is called .npy but has no NumPy header: read as raw {dtype}",)
    head = np.fromfile(path, dtype, count=1 << 16)
    if halves_of_wider_ids(head):
        notes += (f"{name}: every second id is below 4, as if {dtype} were half of the stored type: is it uint32?",)
    return ArraySource(path, name, "raw", dtype, num_tokens, None, num_bytes, notes)
