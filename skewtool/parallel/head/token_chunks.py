"""`TokenChunks`: the tokens of a vocabulary-parallel loss, a chunk at a time, replicated or partitioned over the ranks.

Replicated: every rank has all N tokens; a chunk is a slice, and gradients of hidden states, partial because each shard
knows its classes only, are summed by an all_reduce. Partitioned, as a routed embedding and sequence parallelism leave
them: each rank has its own; a chunk is an equal number of tokens of each, gathered when it is needed, and gradients go
back by a reduce_scatter. Ranks with fewer tokens fill up with ignored ones.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from skewtool.parallel.collectives import all_gather, reduce_scatter
from skewtool.parallel.differentiable import summed
from skewtool.parallel.groups import Group, rank_of, size_of
from skewtool.parallel.head.labels import Labels

__all__ = ["PartitionedChunks", "ReplicatedChunks", "TokenChunks"]


@dataclass(frozen=True, eq=False)
class ReplicatedChunks:
    """Chunks of `size` tokens of those that all ranks have, labels of all N."""

    labels: Labels
    size: int
    group: Group

    @property
    def number(self) -> int:
        return -(-self.labels.ids.numel() // self.size)

    def labels_of(self, chunk: int) -> Labels:
        rows = self._rows(chunk)
        return Labels(self.labels.ids[rows], self.labels.counted[rows])

    def hidden_of(self, hidden: Tensor, chunk: int) -> Tensor:
        """From hidden [N, H] those of a chunk."""
        return hidden[self._rows(chunk)]

    def put_gradient(self, into: Tensor, chunk: int, gradient: Tensor) -> None:
        """Writes the sum over ranks of a chunk's gradient to its place in [N, H]. One all_reduce."""
        into[self._rows(chunk)] = summed(gradient, self.group, "gradients")

    def own(self, losses: Tensor) -> Tensor:
        """Losses of all chunks -> of this rank's tokens: all of them."""
        return losses

    def _rows(self, chunk: int) -> slice:
        return slice(chunk * self.size, (chunk + 1) * self.size)


class _OwnRow(torch.autograd.Function):
    """Row `rank` of values [P, n] that all ranks know. Their gradients are each rank's own: backward gathers them."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, values: Tensor, group: Group) -> Tensor:
        ctx.group = group  # type: ignore[attr-defined]
        return values[rank_of(group)].clone()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None]:
        return all_gather(gradients[0], ctx.group, "gradients"), None  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False)
class PartitionedChunks:
    """Chunks of at most `size` tokens of each rank, labels [P, n] of all, where n is the most that a rank has."""

    labels: Labels
    num_own: int
    size: int
    group: Group

    @classmethod
    def of(cls, own: Labels, tokens_per_chunk: int, group: Group) -> "PartitionedChunks":
        """Gathers labels [n] of each rank: one all_gather of one integer, one of labels padded to the most."""
        num_own = own.ids.numel()
        most = int(all_gather(own.ids.new_tensor([num_own]), group, "counts").max())
        both = torch.where(own.counted, own.ids, -1)
        gathered = all_gather(torch.nn.functional.pad(both, (0, most - num_own), value=-1), group, "labels")
        labels = Labels(gathered.clamp(min=0), gathered >= 0)
        return cls(labels, num_own, max(1, tokens_per_chunk // size_of(group)), group)

    @property
    def number(self) -> int:
        return -(-self.labels.ids.size(1) // self.size)

    def labels_of(self, chunk: int) -> Labels:
        tokens = self._tokens(chunk)
        return Labels(self.labels.ids[:, tokens].reshape(-1), self.labels.counted[:, tokens].reshape(-1))

    def hidden_of(self, hidden: Tensor, chunk: int) -> Tensor:
        """From hidden [n, H], this rank's, those of a chunk of all ranks. One all_gather."""
        part, tokens = hidden[self._tokens(chunk)], self._tokens(chunk)
        padded = torch.nn.functional.pad(part, (0, 0, 0, tokens.stop - tokens.start - part.size(0)))
        return all_gather(padded, self.group, "hidden").reshape(-1, hidden.size(1))

    def put_gradient(self, into: Tensor, chunk: int, gradient: Tensor) -> None:
        """Writes the sum over ranks of this rank's part of a chunk's gradient to its place in [n, H]. One
        reduce_scatter."""
        place = into[self._tokens(chunk)]
        parts = gradient.reshape(size_of(self.group), -1, gradient.size(1))
        place.copy_(reduce_scatter(parts, self.group, "gradients")[: place.size(0)])

    def own(self, losses: Tensor) -> Tensor:
        """Losses of all chunks -> of this rank's tokens [n]; one all_gather of gradients in backward."""
        num_ranks = size_of(self.group)
        by_rank = [part.reshape(num_ranks, -1) for part in torch.split(losses, num_ranks * self.size)]
        if not by_rank:
            return losses
        own: Tensor = _OwnRow.apply(torch.cat(by_rank, dim=1), self.group)  # type: ignore[no-untyped-call]
        return own[: self.num_own]

    def _tokens(self, chunk: int) -> slice:
        return slice(chunk * self.size, min((chunk + 1) * self.size, self.labels.ids.size(1)))


TokenChunks = ReplicatedChunks | PartitionedChunks
