"""`Timeline`: a corpus block by block, coarsely, so that skew over it can be plotted and a map's ageing measured.

Arrays (B = blocks that hold tokens, at most 32, in the order of the corpus; K = at most 4,096 ids; all read-only):
  num_tokens  int64 [B]      counted tokens
  ids         int32 [K]      the most frequent ids of the whole corpus, most frequent first, ties by lower id
  counts      int64 [B, K]   occurrences of these ids
  loads       int64 [B, 64]  tokens by equal ranges of the vocabulary: range r holds the ids with id * 64 // V = r

Ids from 2**18 on are not followed: they are in `num_tokens`, but neither among `ids` nor in `loads`, which then add up to
less. Blocks have equal bytes, as near as window ends and files that cannot be cut allow;
small corpora have fewer than 32 (see `skewtool.profiling.blocks`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skewtool.errors import ProfileError

__all__ = ["NUM_FOLLOWED", "NUM_IDS", "NUM_RANGES", "Timeline"]

NUM_IDS = 4096
NUM_RANGES = 64

NUM_FOLLOWED = 1 << 18
"""Ids below this are counted in each block, others all together: 64 MiB for a worker at most, whatever the vocabulary."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """See the head of this file. Errors: ProfileError for arrays that do not fit together."""

    num_tokens: npt.NDArray[np.int64]
    ids: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int64]
    loads: npt.NDArray[np.int64]

    def __post_init__(self) -> None:
        shapes = {"num_tokens": (len(self),), "ids": (self.ids.size,), "counts": (len(self), self.ids.size),
                  "loads": (len(self), NUM_RANGES)}  # fmt: skip
        for name, shape in shapes.items():
            array = getattr(self, name)
            if array.shape != shape or array.dtype.kind not in "iu" or (array < 0).any():
                raise ProfileError(
                    f"{name} of a time line must be whole numbers of at least 0 of shape {shape}, got {array.dtype} "
                    f"{array.shape}"
                )
            view = array.view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        if np.unique(self.ids).size != self.ids.size:
            raise ProfileError("an id is twice in a time line")
        listed, in_ranges = self.counts.sum(axis=1), self.loads.sum(axis=1)
        if (self.num_tokens < 1).any() or (listed > in_ranges).any() or (in_ranges > self.num_tokens).any():
            raise ProfileError("a block of a time line has no tokens, or fewer than its ids have")

    def __len__(self) -> int:
        """The number of blocks."""
        return int(self.num_tokens.size)

    @classmethod
    def of(cls, tables: Sequence[npt.NDArray[np.int64]], others: Sequence[int], vocab_size: int) -> "Timeline":
        """From a table of counts for each block, int64 [followed ids], and its tokens of `others`."""
        total: npt.NDArray[np.int64] = np.sum(tables, axis=0, dtype=np.int64)
        most = np.argsort(-total, kind="stable")[:NUM_IDS]
        ids = most[total[most] > 0].astype(np.int32)
        bounds = -(-np.arange(NUM_RANGES + 1) * vocab_size // NUM_RANGES)  # the first id of each range
        before = np.array([np.append(0, np.cumsum(each))[np.minimum(bounds, each.size)] for each in tables], np.int64)
        return cls(
            num_tokens=np.array([int(table.sum()) + more for table, more in zip(tables, others, strict=True)], np.int64),
            ids=ids,
            counts=np.array([table[ids] for table in tables], np.int64).reshape(len(tables), ids.size),
            loads=before[:, 1:] - before[:, :-1],
        )

    def check_fits(self, counts: npt.NDArray[np.int64]) -> None:
        """ProfileError unless the blocks add up to counts int64 [V] of the whole corpus."""
        if self.ids.size and int(self.ids.max()) >= counts.size:
            raise ProfileError(f"the time line has id {self.ids.max()}, ids end at {counts.size - 1}")
        if int(self.num_tokens.sum()) != int(counts.sum()) or (self.counts.sum(axis=0) != counts[self.ids]).any():
            raise ProfileError("the blocks of the time line do not add up to the counts")
