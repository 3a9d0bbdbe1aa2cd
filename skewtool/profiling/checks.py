"""Checks of ids against their type and vocabulary, before anything is indexed (`skewtool.corpus.checks` has their names).

Each ends the run with place and count; `allow` with its name goes on instead, and the profile says what was dropped or
cannot be there.
"""

from collections.abc import Collection
from typing import Any

import numpy as np

from skewtool.corpus import Corpus, Ids, Source
from skewtool.corpus.checks import BAD_IDS, CHECKS, NARROW_DTYPE
from skewtool.corpus.evidence import pairs_of_narrower_ids
from skewtool.errors import CorpusError

__all__ = ["ALLOWABLE", "as_table_index", "check_dtype_holds_vocabulary", "check_no_end_mark"]

ALLOWABLE = tuple(CHECKS)
"""Names that `allow` and --allow take."""


def check_dtype_holds_vocabulary(corpus: Corpus, vocab_size: int, allow: Collection[str]) -> tuple[str, ...]:
    """Stops when some ids of the vocabulary cannot be stored in a source's type; returns notes where that is allowed.

    A writer that stored larger ids has wrapped them to other, valid-looking ones, and nothing in the file shows it.
    """
    notes = []
    for source in corpus.sources:
        if source.dtype is None or np.iinfo(source.dtype).max >= vocab_size - 1:
            continue
        limit = int(np.iinfo(source.dtype).max)
        missing = vocab_size - 1 - limit
        if NARROW_DTYPE not in allow:
            raise CorpusError(
                f"{source.path} stores {source.dtype.name}, at most {limit}, but the vocabulary has {vocab_size} ids: "
                f"{missing} of them ({missing / vocab_size:.0%}) can never appear, and if the writer wrapped them the "
                f"counts are wrong; write the corpus again, or pass --allow {NARROW_DTYPE} if it really is so"
            )
        notes.append(f"{source.name}: {source.dtype.name} cannot contain ids >= {limit + 1} of {vocab_size}")
    return tuple(notes)


def as_table_index(ids: Ids, vocab_size: int, source: Source, position: int, allow: Collection[str]) -> Ids:
    """Ids as uint16, uint32 or uint64, all at most `vocab_size`: where bad ids are allowed they all become `vocab_size`.

    Errors: CorpusError for a negative id or one >= vocab_size, unless "bad-ids" is allowed.
    """
    index = _unsigned(ids)
    if not index.size or int(index.max()) < vocab_size:
        return index
    if BAD_IDS not in allow:
        raise CorpusError(_bad_ids(ids, index, vocab_size, source, position))
    smallest: Ids = np.minimum(index, index.dtype.type(vocab_size))
    return smallest


def check_no_end_mark(ids: Ids, source: Source, position: int) -> None:
    """Stops at a 16-bit id of all ones where no vocabulary says that it is one: it would make a vocabulary of 65,536."""
    marks = np.flatnonzero(ids == (1 << 16) - 1) if ids.dtype == np.uint16 else np.empty(0, np.intp)
    if marks.size:
        raise CorpusError(
            f"{source.path} holds 65535, all ones in {ids.dtype.name}, {marks.size} times in the {ids.size} tokens from "
            f"token {position} on, first at token {position + marks[0]}: an id, or a -1 or end mark? Pass --vocab-size"
        )


def _unsigned(ids: Ids) -> Ids:
    """A view where possible. Negative ids become larger than any vocabulary, which narrow types need widening for."""
    if ids.dtype.itemsize >= 4:
        return ids.view(np.dtype(f"u{ids.dtype.itemsize}"))
    if ids.dtype.kind == "i":
        return ids.astype(np.int32).view(np.uint32)
    return ids.astype(np.uint16, copy=False)


def _bad_ids(ids: Ids, index: Ids, vocab_size: int, source: Source, position: int) -> str:
    bad = np.flatnonzero(index >= vocab_size)
    worst = ids[bad][np.argmax(index[bad])]
    return (
        f"{source.path} holds ids outside the vocabulary of {vocab_size}: {bad.size} of the {ids.size} tokens from token "
        f"{position} on, first {ids[bad[0]]} at token {position + bad[0]}, up to {worst}"
        f"{_hint(ids, worst, vocab_size)}; pass a larger --vocab-size, another --dtype, or --allow {BAD_IDS} to leave them "
        "out"
    )


def _hint(ids: Ids, worst: np.integer[Any], vocab_size: int) -> str:
    """What the ids look like, for the likeliest reasons."""
    if pairs_of_narrower_ids(ids, vocab_size):
        return "; pairs of them look like uint16 ids, pass --dtype uint16?"
    if ids.dtype.kind == "i" and bool((ids < 0).any()):
        return "; negative ids mark what is no token: -100 in files of labels, -1 for a null"
    if ids.dtype.kind == "u" and worst == np.iinfo(ids.dtype).max:
        return f"; {worst} is all ones, a -1 or an end mark in an unsigned type"
    return ""
