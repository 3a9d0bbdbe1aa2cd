"""`linear_cross_entropy`: hidden states and the head's weight in, loss out; logits exist for a chunk of tokens at a time.

For each chunk: logits of this shard's classes, their softmax statistics (two small all_reduces), and at once their
gradient and what it adds to the gradients of weight and hidden states, so that no product is taken twice. A mean or sum
needs no upstream gradient for that. Per-token losses ("none") do, and take the product again in backward.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from skewtool.errors import LabelError
from skewtool.parallel.groups import Group
from skewtool.parallel.head.cross_entropy import Reduction, check_reduction
from skewtool.parallel.head.labels import Labels, checked_labels, mean_divisor
from skewtool.parallel.head.objective import Objective, reduced
from skewtool.parallel.head.softmax_statistics import LocalSums, SoftmaxStatistics, own_targets, statistics_of
from skewtool.parallel.head.squashing import Squashing
from skewtool.parallel.head.token_chunks import PartitionedChunks, ReplicatedChunks, TokenChunks
from skewtool.parallel.home_rows import HomeRows, home_rows_of
from skewtool.parallel.wide_product import wide_product
from skewtool.sharding import ShardMap

__all__ = ["linear_cross_entropy"]

_CHUNK_ELEMENTS = 2**24
"""Logits of a chunk by default: 64 MiB in float32."""


@dataclass(frozen=True, eq=False)
class _Chunk:
    """One chunk on its way: exponentials [c, R], from which the gradient of the logits is made in place."""

    hidden: Tensor
    labels: Labels
    targets: tuple[Tensor, Tensor]
    exponentials: Tensor
    squashed: Tensor | None
    statistics: SoftmaxStatistics


@dataclass(frozen=True, eq=False)
class _Head:
    """What turns chunks of hidden states into losses, beside the tensors that have gradients."""

    chunks: TokenChunks
    home: HomeRows
    group: Group
    objective: Objective
    squashing: Squashing

    def room(self, rows: Tensor) -> Tensor | None:
        """For the logits of one chunk after the other: a CPU would get memory for each anew, page by page, which takes as
        long as a third of the product. A GPU's allocator keeps it."""
        if rows.is_cuda or not self.chunks.number:
            return None
        tokens = self.chunks.labels_of(0).ids.numel()  # as many as any chunk has
        return rows.new_empty(tokens, rows.size(0), dtype=torch.promote_types(rows.dtype, torch.float32))

    def chunk(self, number: int, hidden: Tensor, rows: Tensor, bias: Tensor | None, room: Tensor | None) -> _Chunk:
        """hidden of this rank, rows [R, H], bias [R] -> the softmax of a chunk."""
        part, labels = self.chunks.hidden_of(hidden, number), self.chunks.labels_of(number)
        targets = own_targets(labels, self.home)
        logits = wide_product(part, rows.t(), room)
        if bias is not None:
            logits += bias
        logits, squashed = self.squashing.apply_(logits)
        local = LocalSums.reduce_(logits, targets, self.home, self.objective.smooths)
        statistics = statistics_of(local, targets[1], self.home, self.group)
        return _Chunk(part, labels, targets, logits, squashed, statistics)

    def gradient_of_products(self, chunk: _Chunk, upstream: Tensor) -> Tensor:
        """[c, R], in place of the chunk's exponentials; `upstream` [c] or a scalar."""
        each = torch.where(chunk.labels.counted, upstream.to(chunk.exponentials.dtype), 0)
        gradient = self.objective.gradient_(chunk.exponentials, chunk.statistics, chunk.targets, each, self.home)
        return self.squashing.backward_(gradient, chunk.squashed)


class _Gradients:
    """Gradients of hidden [n, H], weight [S, H] and bias [R], added up chunk by chunk; the latter two in float32."""

    def __init__(self, hidden: Tensor, weight: Tensor, bias: Tensor | None, needs: tuple[bool, ...]) -> None:
        wide = torch.promote_types(weight.dtype, torch.float32)
        self.hidden = torch.empty_like(hidden) if needs[0] else None
        self.weight = torch.zeros_like(weight, dtype=wide) if needs[1] else None
        self.bias = torch.zeros_like(bias, dtype=wide) if bias is not None and needs[2] else None

    def add(self, products: Tensor, number: int, chunk: _Chunk, chunks: TokenChunks, rows: Tensor) -> None:
        """From the gradient of the products [c, R] of one chunk."""
        if self.bias is not None:
            self.bias += products.sum(dim=0)
        if self.hidden is not None:
            chunks.put_gradient(self.hidden, number, wide_product(products.to(rows.dtype), rows))
        if self.weight is not None:
            home = self.weight[: rows.size(0)]
            if chunk.hidden.dtype == home.dtype:
                home.addmm_(products.t(), chunk.hidden)
            else:
                home += wide_product(products.to(chunk.hidden.dtype).t(), chunk.hidden)

    def scaled(self, factor: Tensor | None, dtypes: tuple[torch.dtype, ...]) -> tuple[Tensor | None, ...]:
        """In the dtypes of their tensors, times a factor, in place where they have it already."""
        both = zip((self.hidden, self.weight, self.bias), dtypes, strict=True)
        return tuple(
            None if gradient is None else (gradient if factor is None else gradient.mul_(factor)).to(dtype)
            for gradient, dtype in both
        )


class _LinearCrossEntropy(torch.autograd.Function):
    """The loss of every token of the group, chunk by chunk. `at_once`: gradients are made in forward, for an upstream
    gradient of one for every token, and scaled in backward by the one that all tokens then share."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor | None, head: _Head, at_once: bool, wants_gradients: bool
    ) -> Tensor:
        rows = weight[: head.home.ids.numel()]
        needs = tuple(wants_gradients and each for each in ctx.needs_input_grad[:3])
        gradients = _Gradients(hidden, weight, bias, needs) if at_once and any(needs) else None
        losses = [torch.zeros(0, dtype=torch.promote_types(weight.dtype, torch.float32), device=weight.device)]
        room = head.room(rows)
        for number in range(head.chunks.number):
            chunk = head.chunk(number, hidden, rows, bias, room)
            losses.append(head.objective.loss(chunk.statistics, chunk.labels))
            if gradients is not None:
                products = head.gradient_of_products(chunk, torch.ones_like(losses[-1]))
                gradients.add(products, number, chunk, head.chunks, rows)
                del products
            del chunk  # before the next takes as much
        ctx.head, ctx.needs, ctx.at_once, ctx.gradients = head, needs, at_once, gradients
        ctx.dtypes = (hidden.dtype, weight.dtype, weight.dtype if bias is None else bias.dtype)
        if not at_once:
            ctx.save_for_backward(hidden, weight, bias)
        return torch.cat(losses)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.at_once:
            if ctx.gradients is None:
                raise RuntimeError('linear_cross_entropy can go backward once; with reduction="none" it can again')
            gradients, ctx.gradients = ctx.gradients, None
            counts = ctx.head.chunks.labels.counted.any()  # if none does, a mean's upstream gradient may be infinite
            factor = torch.where(counts, upstream[0][:1], 0) if upstream[0].numel() else None
            return *gradients.scaled(factor, ctx.dtypes), None, None, None
        hidden, weight, bias = ctx.saved_tensors
        rows, chunks = weight[: ctx.head.home.ids.numel()], ctx.head.chunks
        gradients = _Gradients(hidden, weight, bias, ctx.needs)
        first, room = 0, ctx.head.room(rows)
        for number in range(chunks.number):
            chunk = ctx.head.chunk(number, hidden, rows, bias, room)
            each = upstream[0][first : first + chunk.labels.ids.numel()]
            gradients.add(ctx.head.gradient_of_products(chunk, each), number, chunk, chunks, rows)
            first += each.numel()
            del chunk
        return *gradients.scaled(None, ctx.dtypes), None, None, None


def linear_cross_entropy(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    shard_map: ShardMap,
    group: Group = None,
    *,
    bias: Tensor | None = None,
    tokens: Literal["replicated", "partitioned"] = "replicated",
    soft_cap: float | None = None,
    temperature: float = 1.0,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    data_parallel_group: Group = None,
    nan_if_empty: bool = False,
    check_labels: bool = True,
    tokens_per_chunk: int | None = None,
) -> Tensor:
    """Cross-entropy of hidden [..., H] times this rank's rows, weight [S, H] or [R, H] (the first `home_slots` count),
    for labels int [...]. At least float32: a scalar, or [...] for reduction "none". Never more than [c, R] logits.

    Unsharded equivalent::

        logits = F.linear(hidden, table, bias)  # then soft_cap * tanh(logits / soft_cap), / temperature
        F.cross_entropy(logits[:, :real_vocab], labels, ignore_index=..., reduction=..., label_smoothing=...)

    `tokens`: "replicated", the same hidden states and labels on every rank; or "partitioned", each rank its own, of any
    number. The loss is that of all tokens on every rank ("none": of its own), and backward is called on every rank, for
    "mean" and "sum" once. Gradients: hidden in its dtype; weight and bias [R] added up in float32, then in theirs.
    `z_loss`, `data_parallel_group`, `nan_if_empty`, `check_labels`: see `vocab_parallel_cross_entropy`.

    Memory beside the results: some buffers of `tokens_per_chunk` * R numbers (default: 64 MiB in float32).

    Collectives over `group`, replicated: one all_gather of two integers, then for each chunk all_reduce MAX of c numbers,
    SUM of 2 c (3 c with label smoothing), and, where hidden needs gradients, SUM of c * H in at least float32. For "none"
    these come again in backward. Partitioned: two all_gathers more, of counts and labels, for each chunk one all_gather
    of hidden states, and instead of the last all_reduce one reduce_scatter.

    Errors: LabelError on every rank for labels that are neither ignored nor in [0, real_vocab).
    """
    check_reduction(reduction)
    home = home_rows_of(shard_map, group, hidden.device)
    if weight.size(0) not in (shard_map.home_slots, shard_map.num_slots) or hidden.shape[:-1] != labels.shape:
        raise LabelError(
            f"weight must have {shard_map.home_slots} or {shard_map.num_slots} rows, and hidden [*labels.shape, H]; got "
            f"weight {list(weight.shape)}, hidden {list(hidden.shape)}, labels {list(labels.shape)}"
        )
    if tokens not in ("replicated", "partitioned"):
        raise LabelError(f'tokens must be "replicated" or "partitioned", got {tokens!r}')
    checked = checked_labels(labels, ignore_index, shard_map.real_vocab, group, check_labels)
    size = max(1, _CHUNK_ELEMENTS // shard_map.home_slots) if tokens_per_chunk is None else tokens_per_chunk
    replicated = tokens == "replicated"
    chunks: TokenChunks = (
        ReplicatedChunks(checked, size, group) if replicated else PartitionedChunks.of(checked, size, group)
    )
    objective = Objective(shard_map.real_vocab, label_smoothing, z_loss)
    head = _Head(chunks, home, group, objective, Squashing(soft_cap, temperature))
    losses: Tensor = _LinearCrossEntropy.apply(  # type: ignore[no-untyped-call]
        hidden.reshape(-1, hidden.size(-1)), weight, bias, head, reduction != "none", torch.is_grad_enabled()
    )
    if reduction == "none":
        return chunks.own(losses).reshape(labels.shape)
    divisor = mean_divisor(chunks.labels.counted, data_parallel_group, nan_if_empty) if reduction == "mean" else None
    return reduced(losses, divisor, reduction)
