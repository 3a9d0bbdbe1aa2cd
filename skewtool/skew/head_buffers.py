"""Memory that each LM head allocates beside its weight for a loss: what is alive at the peak of forward and of backward.

Counted are tensors of logits, rows and hidden states, read off the code of `skewtool.parallel.head`; each term names one.
Hidden states that are handed in are not counted, their gradient and the weight's are; what forward kept and backward frees
is taken off. Where elements have 16 bits,
products are taken in float32; the CPU, which is taken to be under gloo, widens operands for that, blocks of columns at a
time. The loss of "hidden all-reduce" is torch's own, of all logits in their type.

Symbols: n tokens of a rank, N in all, R home rows, H_r columns, e bytes per element, w of one that is summed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skewtool.skew.embedding_buffers import Buffers
from skewtool.skew.head_traffic import LossOptions
from skewtool.skew.table_sizes import TableSizes
from skewtool.skew.traffic import Backend, PerRank

__all__ = ["head_buffers", "logits_bytes"]

_BLOCK_COLUMNS = 2**13
_BLOCK_ELEMENTS = 2**22


@dataclass(frozen=True, eq=False)
class _Loss:
    """One loss: sizes, tokens of each rank int64 [P], and what `head_traffic` takes too."""

    sizes: TableSizes
    tokens: PerRank
    options: LossOptions
    on_cpu: bool

    @property
    def num_tokens(self) -> int:
        return int(self.tokens.sum())

    @property
    def rows(self) -> int:
        return self.options.rows(self.sizes)

    @property
    def table(self) -> int:
        """The gradient of the shard's rows, R H e; hidden heads have V H_r e."""
        return self.rows * self.sizes.bytes_per_row

    def narrow(self, elements: int) -> int:
        """A copy in 16 bits of what is computed in float32; nothing where no element is narrow."""
        return elements * self.sizes.bytes_per_element if self.sizes.is_narrow else 0

    def product(self, rows: int, inner: int, columns: int) -> int:
        """`wide_product` of [rows, inner] and [inner, columns]."""
        wide = self.sizes.bytes_per_sum
        block = min(columns, _BLOCK_COLUMNS)
        widened = rows * inner + (inner + rows) * block if self.sizes.is_narrow and self.on_cpu else 0
        return (rows * columns + widened) * wide

    def block(self) -> int:
        """Logits that `vocab_parallel_cross_entropy` widens at a time."""
        rows = min(self.num_tokens, max(1, _BLOCK_ELEMENTS // self.rows))
        return rows * self.rows * self.sizes.bytes_per_sum

    def chunk(self, most: int) -> int:
        """Tokens of a chunk, of all ranks, where there are `most`."""
        return min(most, self.options.chunk(self.sizes))


def head_buffers(
    layout: str,
    sizes: TableSizes,
    tokens: npt.ArrayLike,
    options: LossOptions | None = None,
    *,
    backend: Backend = "nccl",
) -> Buffers:
    """The peaks of one loss of `head_traffic` and its backward, of each rank."""
    given = LossOptions() if options is None else options
    return _HEADS[layout](_Loss(sizes, np.asarray(tokens, np.int64), given, backend == "gloo"))


def logits_bytes(layout: str, sizes: TableSizes, tokens: npt.ArrayLike, options: LossOptions | None = None) -> int:
    """The largest buffer of logits that a rank has: a chunk's, all of its shard's, or all of the vocabulary's."""
    loss = _Loss(sizes, np.asarray(tokens, np.int64), LossOptions() if options is None else options, False)
    if layout in ("vocab", "vocab partitioned"):
        return loss.chunk(loss.num_tokens) * loss.rows * sizes.bytes_per_sum
    if layout.startswith("vocab"):
        return loss.num_tokens * loss.rows * sizes.bytes_per_element
    columns = sizes.vocab_size if layout == "hidden all-reduce" else sizes.num_shards * loss.rows
    return loss.num_tokens * columns * sizes.bytes_per_sum


def _same(loss: _Loss, forward: int, backward: int) -> Buffers:
    return Buffers(*(np.full(loss.sizes.num_shards, each, np.int64) for each in (forward, backward)))


def _vocab(loss: _Loss) -> Buffers:
    return _chunked(loss, np.full_like(loss.tokens, loss.num_tokens), loss.chunk(loss.num_tokens), 0)


def _vocab_partitioned(loss: _Loss) -> Buffers:
    num_ranks = loss.sizes.num_shards
    most = int(loss.tokens.max())
    tokens = min(most, max(1, loss.options.chunk(loss.sizes) // num_ranks)) * num_ranks
    return _chunked(loss, loss.tokens, tokens, tokens * loss.sizes.bytes_per_row)


def _chunked(loss: _Loss, own: PerRank, tokens: int, gathered: int) -> Buffers:
    """linear_cross_entropy: gradients of all own tokens and of the rows, and the buffers of one chunk."""
    sizes, rows = loss.sizes, loss.rows
    logits, hidden = tokens * rows * sizes.bytes_per_sum, tokens * sizes.hidden * sizes.bytes_per_sum
    gradient = loss.narrow(tokens * rows)
    moments = (
        loss.product(tokens, sizes.hidden, rows),
        logits + gradient + loss.product(tokens, rows, sizes.hidden),
        logits + 2 * hidden,  # and a copy of it that is reduced
        logits + gradient + loss.product(rows, tokens, sizes.hidden) if sizes.is_narrow else 0,
    )
    kept = own * sizes.bytes_per_row + rows * sizes.hidden * sizes.bytes_per_sum
    # backward only scales gradients, which the CPU widens for it, and narrows the weight's
    scaled = 2 * own * sizes.hidden * sizes.bytes_per_sum * (sizes.is_narrow and loss.on_cpu)
    return Buffers(kept + gathered + max(moments), np.maximum(scaled, loss.narrow(rows * sizes.hidden)))


def _vocab_logits(loss: _Loss) -> Buffers:
    """VocabParallelLMHead, vocab_parallel_cross_entropy."""
    sizes = loss.sizes
    logits = loss.num_tokens * loss.rows * sizes.bytes_per_element
    hidden = loss.num_tokens * sizes.bytes_per_row
    wide = loss.num_tokens * sizes.hidden * sizes.bytes_per_sum
    # backward: gradients of logits, a block of them widened; then of hidden states and rows; then a copy that is reduced
    backward = max(logits + loss.block(), logits + hidden + loss.table, hidden + 2 * loss.table, hidden + loss.table + wide)
    return _same(loss, logits + loss.block(), backward)


def _vocab_logits_partitioned(loss: _Loss) -> Buffers:
    """The same with hidden states gathered before, padded to equal parts, and scattered after."""
    sizes, most = loss.sizes, int(loss.tokens.max())
    gathered = most * sizes.num_shards * sizes.bytes_per_row
    found = _vocab_logits(loss)
    return Buffers(found.forward + gathered, found.backward)


def _hidden_all_reduce(loss: _Loss) -> Buffers:
    """HiddenParallelLMHead: partial logits, a copy that is reduced; then torch's log-softmax of them."""
    sizes, number = loss.sizes, loss.num_tokens * loss.sizes.vocab_size
    columns = sizes.most_columns
    partial = number * sizes.bytes_per_sum
    element = number * sizes.bytes_per_element
    gradient = loss.narrow(number)
    forward = max(loss.product(loss.num_tokens, columns, sizes.vocab_size), 2 * partial, gradient + 2 * element)
    products = max(
        loss.product(loss.num_tokens, sizes.vocab_size, columns), loss.product(sizes.vocab_size, loss.num_tokens, columns)
    )
    return _same(loss, forward, max(2 * element, partial + gradient + products - element))


def _hidden_reduce_scatter(loss: _Loss) -> Buffers:
    """HiddenParallelLMHead(output="vocab"): rows by home slot, partial logits, these by shard, this shard's of them."""
    sizes, slots = loss.sizes, loss.sizes.num_shards * loss.rows
    columns = sizes.most_columns
    read = slots * columns * sizes.bytes_per_element
    partial = loss.num_tokens * slots * sizes.bytes_per_sum
    own, kept = (loss.num_tokens * loss.rows * each for each in (sizes.bytes_per_sum, sizes.bytes_per_element))
    gradient = loss.narrow(loss.num_tokens * slots)
    copied = partial if loss.on_cpu and sizes.num_shards > 1 else 0
    forward = read + max(loss.product(loss.num_tokens, columns, slots), 2 * partial + copied + own)
    products = max(loss.product(loss.num_tokens, slots, columns), loss.product(slots, loss.num_tokens, columns))
    backward = max(own + partial + copied, 2 * partial + kept, partial + gradient + products) - kept
    return _same(loss, forward, backward)


_HEADS: dict[str, Callable[[_Loss], Buffers]] = {
    "vocab": _vocab,
    "vocab partitioned": _vocab_partitioned,
    "vocab logits": _vocab_logits,
    "vocab logits partitioned": _vocab_logits_partitioned,
    "hidden all-reduce": _hidden_all_reduce,
    "hidden reduce-scatter": _hidden_reduce_scatter,
}
