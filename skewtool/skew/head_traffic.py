"""What each LM head moves for the loss of a step, and for choosing tokens, as `skewtool.parallel.head` and
`skewtool.parallel.decoding` make the calls.

  vocab                       linear_cross_entropy, the same tokens on every rank: logits a chunk of tokens at a time
  vocab partitioned           the same with tokens="partitioned": each rank its own tokens
  vocab logits                VocabParallelLMHead and vocab_parallel_cross_entropy: all [N, R] logits at once
  vocab logits partitioned    the same with tokens="partitioned"
  hidden all-reduce           HiddenParallelLMHead(output="replicated"): all [N, V] logits on every rank, whose loss then
                              moves nothing
  hidden reduce-scatter       HiddenParallelLMHead(output="vocab") and vocab_parallel_cross_entropy

Symbols: P ranks, N tokens in all, R home rows of a shard, w bytes of an element that is summed (at least 4).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from skewtool.errors import MapError
from skewtool.skew.table_sizes import BYTES_PER_ID, TableSizes
from skewtool.skew.traffic import Kind, Phase, Traffic, equal

__all__ = ["DECODING", "HEAD_LAYOUTS", "LossOptions", "decoding_traffic", "head_traffic"]

_CHUNK_ELEMENTS = 2**24
_MOST_CHUNKS = 2**20
_CANDIDATE = 2 * BYTES_PER_ID
"""A value's key and its id."""


@dataclass(frozen=True)
class LossOptions:
    """What of a loss changes its traffic; the defaults are those of the losses.

    home_rows          R, home slots of the map, where they are not ceil(V / P)
    tokens_per_chunk   of the chunked losses; None: 2^24 / R
    per_token          reduction "none", whose chunks come again in backward
    gradients          whether hidden states need gradients
    smoothing          whether labels are smoothed
    check_labels       whether labels are checked
    states             what a hidden head is given: "hidden", its columns, or "replicated"
    """

    home_rows: int | None = None
    tokens_per_chunk: int | None = None
    per_token: bool = False
    gradients: bool = True
    smoothing: bool = False
    check_labels: bool = True
    states: str = "hidden"

    def rows(self, sizes: TableSizes) -> int:
        """R."""
        return sizes.home_rows if self.home_rows is None else self.home_rows

    def chunk(self, sizes: TableSizes) -> int:
        """Tokens per chunk."""
        return max(1, _CHUNK_ELEMENTS // self.rows(sizes)) if self.tokens_per_chunk is None else self.tokens_per_chunk


def head_traffic(
    layout: str, sizes: TableSizes, tokens: npt.ArrayLike, options: LossOptions | None = None
) -> list[Traffic]:
    """The collectives of one loss and its backward, in the order of the code; none where P = 1.

    `tokens`: int [P], those of each rank; of replicated tokens only the sum N counts. A chunked loss with a mean or sum
    makes all gradients in forward.

    Errors: MapError for an unknown layout or tokens of another shape.
    """
    if layout not in _HEADS:
        raise MapError(f"unknown LM-head layout {layout!r}; known are {', '.join(_HEADS)}")
    found = np.asarray(tokens)
    if found.shape != (sizes.num_shards,):
        raise MapError(f"tokens must be [{sizes.num_shards}], one number per rank, got {list(found.shape)}")
    if sizes.num_shards == 1:
        return []
    return _HEADS[layout](sizes, found.astype(np.int64), LossOptions() if options is None else options)


def _labels(sizes: TableSizes, options: LossOptions) -> list[Traffic]:
    """checked_labels: position and value of a bad one."""
    return [_counts(sizes, 2)] if options.check_labels else []


def _counts(sizes: TableSizes, numbers: int) -> Traffic:
    return equal("forward", "all_gather", "counts", numbers * BYTES_PER_ID, sizes.num_shards)


def _statistics(sizes: TableSizes, tokens: int, options: LossOptions, phase: Phase = "forward") -> list[Traffic]:
    """statistics_of: the maximum, then exponentials and targets, and differences for label smoothing."""
    numbers = tokens * sizes.bytes_per_sum
    return [
        equal(phase, "all_reduce", "statistics", numbers, sizes.num_shards),
        equal(phase, "all_reduce", "statistics", (3 if options.smoothing else 2) * numbers, sizes.num_shards),
    ]


def _gradients(sizes: TableSizes, tokens: int, phase: Phase, partitioned: bool) -> Traffic:
    """Gradients of hidden states, partial on each shard: summed for all, or each rank's part of them."""
    kind: Kind = "reduce_scatter" if partitioned else "all_reduce"
    return equal(phase, kind, "gradients", tokens * sizes.hidden * sizes.bytes_per_sum, sizes.num_shards)


def _in_chunks(tokens: int, size: int, calls_of: Callable[[int], list[Traffic]]) -> list[Traffic]:
    """The calls of all chunks of at most `size` tokens. Errors: MapError for more than a million."""
    whole, rest = divmod(tokens, size)
    if whole > _MOST_CHUNKS:
        raise MapError(f"{tokens} tokens are too many for chunks of {size}; use fewer tokens")
    return whole * calls_of(size) + (calls_of(rest) if rest else [])


def _vocab(sizes: TableSizes, tokens: npt.NDArray[np.int64], options: LossOptions) -> list[Traffic]:
    calls = _labels(sizes, options)
    for phase, gradients in _passes(options):

        def chunk(number: int, phase: Phase = phase, gradients: bool = gradients) -> list[Traffic]:
            partial = [_gradients(sizes, number, phase, False)] if gradients else []
            return _statistics(sizes, number, options, phase) + partial

        calls += _in_chunks(int(tokens.sum()), options.chunk(sizes), chunk)
    return calls


def _vocab_partitioned(sizes: TableSizes, tokens: npt.NDArray[np.int64], options: LossOptions) -> list[Traffic]:
    most, num_ranks = int(tokens.max()), sizes.num_shards
    calls = [
        *_labels(sizes, options),
        _counts(sizes, 1),
        equal("forward", "all_gather", "labels", most * BYTES_PER_ID, num_ranks),
    ]
    for phase, gradients in _passes(options):
        if phase == "backward" and most:
            calls.append(equal(phase, "all_gather", "gradients", most * sizes.bytes_per_sum, num_ranks))

        def chunk(number: int, phase: Phase = phase, gradients: bool = gradients) -> list[Traffic]:
            hidden = equal(phase, "all_gather", "hidden", number * sizes.bytes_per_row, num_ranks)
            partial = [_gradients(sizes, number * num_ranks, phase, True)] if gradients else []
            return [hidden, *_statistics(sizes, number * num_ranks, options, phase), *partial]

        calls += _in_chunks(most, max(1, options.chunk(sizes) // num_ranks), chunk)
    return calls


def _passes(options: LossOptions) -> list[tuple[Phase, bool]]:
    """The passes of a chunked loss over its chunks, and whether each makes gradients."""
    if not options.per_token:
        return [("forward", options.gradients)]
    return [("forward", False), ("backward", True)] if options.gradients else [("forward", False)]


def _vocab_logits(sizes: TableSizes, tokens: npt.NDArray[np.int64], options: LossOptions) -> list[Traffic]:
    number = int(tokens.sum())
    calls = _labels(sizes, options) + _statistics(sizes, number, options)
    return calls + ([_gradients(sizes, number, "backward", False)] if options.gradients else [])


def _vocab_logits_partitioned(
    sizes: TableSizes, tokens: npt.NDArray[np.int64], options: LossOptions
) -> list[Traffic]:
    """gather_tokens in front: hidden states padded to the most tokens of a rank."""
    most = int(tokens.max())
    gathered = equal("forward", "all_gather", "rows", most * sizes.bytes_per_row, sizes.num_shards)
    calls = [_counts(sizes, 1), gathered, *_labels(sizes, options), *_statistics(sizes, int(tokens.sum()), options)]
    return calls + ([_gradients(sizes, most * sizes.num_shards, "backward", True)] if options.gradients else [])


def _hidden_all_reduce(sizes: TableSizes, tokens: npt.NDArray[np.int64], options: LossOptions) -> list[Traffic]:
    number = int(tokens.sum())
    logits = number * sizes.vocab_size * sizes.bytes_per_sum
    calls = [equal("forward", "all_reduce", "logits", logits, sizes.num_shards)]
    return calls + _hidden_gradients(sizes, number, options)


def _hidden_reduce_scatter(sizes: TableSizes, tokens: npt.NDArray[np.int64], options: LossOptions) -> list[Traffic]:
    number, num_ranks = int(tokens.sum()), sizes.num_shards
    part = number * options.rows(sizes) * sizes.bytes_per_sum
    return [
        equal("forward", "reduce_scatter", "logits", part * num_ranks, num_ranks),
        *_labels(sizes, options),
        *_statistics(sizes, number, options),
        *([equal("backward", "all_gather", "gradients", part, num_ranks)] if options.gradients else []),
        *_hidden_gradients(sizes, number, options),
    ]


def _hidden_gradients(sizes: TableSizes, tokens: int, options: LossOptions) -> list[Traffic]:
    """Replicated states: each rank has the gradient of its columns, others are zero; in their own type."""
    if options.states != "replicated" or not options.gradients:
        return []
    return [equal("backward", "all_reduce", "gradients", tokens * sizes.bytes_per_row, sizes.num_shards)]


_HEADS: dict[str, Callable[[TableSizes, npt.NDArray[np.int64], LossOptions], list[Traffic]]] = {
    "vocab": _vocab,
    "vocab partitioned": _vocab_partitioned,
    "vocab logits": _vocab_logits,
    "vocab logits partitioned": _vocab_logits_partitioned,
    "hidden all-reduce": _hidden_all_reduce,
    "hidden reduce-scatter": _hidden_reduce_scatter,
}

HEAD_LAYOUTS = tuple(_HEADS)
"""Names of all LM-head layouts."""

DECODING = ("top-k", "sampling", "argmax", "full gather")
"""Ways to choose tokens from vocabulary-sharded logits; a full gather is what they spare."""


def decoding_traffic(name: str, sizes: TableSizes, rows: int, top_k: int = 1, home_rows: int | None = None) -> list[Traffic]:
    """The collectives of one choice for `rows` rows of logits, `top_k` candidates each for "top-k" (at most R and V).

    "sampling" is without filters. "full gather": all [rows, P R] logits on every rank. Errors: MapError for an unknown name.
    """
    if name not in DECODING:
        raise MapError(f"unknown way to choose tokens {name!r}; known are {', '.join(DECODING)}")
    slots = sizes.home_rows if home_rows is None else home_rows
    if sizes.num_shards == 1:
        return []
    if name == "full gather":
        return [equal("forward", "all_gather", "logits", rows * slots * sizes.bytes_per_element, sizes.num_shards)]
    number = min(top_k, sizes.vocab_size, slots) if name == "top-k" else 1
    return [equal("forward", "all_gather", "candidates", rows * number * _CANDIDATE, sizes.num_shards)]
