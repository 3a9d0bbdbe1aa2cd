"""`corpus_windows`: the whole windows of a corpus one after the other, to replay real steps from."""

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from skewtool.compiled import compiled
from skewtool.corpus import Corpus, Ids, Source
from skewtool.profiling.checks import as_table_index

__all__ = ["WindowContent", "corpus_windows"]

WindowContent = tuple[Ids, Ids]
"""Distinct ids of a window, ascending, and how often each occurs."""


@compiled
def _distinct(ids: Any, in_window: Any, found: Any, counts: Any) -> Any:
    distinct = 0
    for token in ids:
        if in_window[token] == 0:
            found[distinct] = token
            distinct += 1
        in_window[token] += 1
    found[:distinct].sort()
    for i in range(distinct):
        counts[i] = in_window[found[i]]
        in_window[found[i]] = 0
    return distinct


def corpus_windows(corpus: Corpus, length: int, vocab_size: int, allow: Collection[str] = ()) -> Iterator[WindowContent]:
    """Yields (ids int32 [n], counts int32 [n]) of each whole window of `length` tokens, source by source.

    Windows start at multiples of `length` within a source; a shorter tail is left out. Errors: CorpusError as `profile`.
    """
    in_window = np.zeros(vocab_size + 1, np.int32)
    found, counts = np.empty(length, np.int32), np.empty(length, np.int32)
    for source in corpus.sources:
        for window in _whole_windows(source, length, vocab_size, allow):
            distinct = _distinct(window, in_window, found, counts)
            kept = found[:distinct] < vocab_size  # the id that stands for dropped tokens is no lookup
            yield found[:distinct][kept], counts[:distinct][kept]


def _whole_windows(source: Source, length: int, vocab_size: int, allow: Collection[str]) -> Iterator[Ids]:
    rest: Ids = np.empty(0, np.uint32)
    position = 0
    for block in source.blocks():
        index = as_table_index(block, vocab_size, source, position, allow)
        position += block.size
        joined = np.concatenate([rest, index]) if rest.size else index
        whole = joined.size // length * length
        yield from joined[:whole].reshape(-1, length)
        rest = joined[whole:]
