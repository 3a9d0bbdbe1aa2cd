"""`glance`: what the first ids of a corpus are, without reading it all."""

from dataclasses import dataclass

import numpy as np

from skewtool.corpus.corpus import Corpus

__all__ = ["Glance", "glance"]

_SOURCES = 16
_IDS_PER_SOURCE = 1 << 16


@dataclass(frozen=True)
class Glance:
    """`num_ids` were looked at, the first of some sources. `num_outside` are negative or not in the vocabulary."""

    num_ids: int
    lowest: int
    highest: int
    num_distinct: int
    num_outside: int


def glance(corpus: Corpus, vocab_size: int | None = None) -> Glance | None:
    """Looks at up to 65,536 ids of up to 16 sources, spread over the corpus; None when there are none.

    Errors: CorpusError when a source cannot be read.
    """
    heads = []
    for source in corpus.sources[:: -(-len(corpus.sources) // _SOURCES)]:
        head = next(source.blocks(block_tokens=_IDS_PER_SOURCE), None)
        if head is not None:
            heads.append(head)
    if not heads:
        return None
    outside = sum(int(np.count_nonzero(head < 0)) for head in heads)
    if vocab_size is not None:
        outside += sum(int(np.count_nonzero(head >= vocab_size)) for head in heads)
    return Glance(
        num_ids=sum(head.size for head in heads),
        lowest=min(int(head.min()) for head in heads),
        highest=max(int(head.max()) for head in heads),
        num_distinct=len(set().union(*(np.unique(head).tolist() for head in heads))),
        num_outside=outside,
    )
