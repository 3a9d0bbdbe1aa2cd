"""The collectives of torch.distributed that skewtool calls: all of them pass here, so that they can be counted.

Each takes a process group (None: the default one, or a single process without any), does nothing in a group of one, and
makes its input contiguous. None is differentiable; see `skewtool.parallel.differentiable`.

    with record_collectives() as calls:
        loss = ...
    sum(call.payload_bytes for call in calls if call.what == "rows")
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from skewtool.parallel.groups import Group, size_of

__all__ = ["Collective", "all_gather", "all_reduce", "all_to_all", "record_collectives", "reduce_scatter"]

Kind = Literal["all_gather", "all_reduce", "all_to_all", "reduce_scatter"]


@dataclass(frozen=True)
class Collective:
    """One call as this rank made it.

    kind            all_gather, all_reduce, all_to_all or reduce_scatter
    what            what was moved: "ids", "counts", "rows", "gradients", "statistics", ...
    payload_bytes   bytes of the tensor this rank handed in; for all_to_all, of its parts for other ranks
    group_size      ranks in the group
    backend         "gloo" or "nccl"
    """

    kind: Kind
    what: str
    payload_bytes: int
    group_size: int
    backend: str

    @property
    def sent_bytes(self) -> int:
        """Bytes this rank sends, by a ring or pairwise, rounded up: what a wire sees without headers.

        all_reduce 2 (P-1)/P of its payload, reduce_scatter (P-1)/P of it (gloo: as all_reduce, which it is made of),
        all_gather P - 1 times it, all_to_all the payload.
        """
        others = self.group_size - 1
        if self.kind == "all_to_all":
            return self.payload_bytes
        if self.kind == "all_gather":
            return others * self.payload_bytes
        rounds = 2 if self.kind == "all_reduce" or self.backend == "gloo" else 1
        return -(-rounds * others * self.payload_bytes // self.group_size)


_FEW_BYTES = 4096

_recorders: list[list[Collective]] = []  # not a context variable: on GPUs backward runs in another thread
_lock = threading.Lock()


@contextmanager
def record_collectives() -> Iterator[list[Collective]]:
    """A list that grows by one `Collective` for each call this process makes inside; may be nested."""
    calls: list[Collective] = []
    with _lock:
        _recorders.append(calls)
    try:
        yield calls
    finally:
        with _lock:
            _recorders[:] = [each for each in _recorders if each is not calls]


def _record(kind: Kind, what: str, payload: int, group: Group) -> None:
    with _lock:
        if _recorders:
            call = Collective(kind, what, payload, size_of(group), dist.get_backend(group))
            for each in _recorders:
                each.append(call)


def all_reduce(tensor: Tensor, group: Group, what: str, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> Tensor:
    """Reduces over the group, in place where the tensor is contiguous; returns the result, of its shape and dtype.

    gloo rounds 16-bit sums differently from element to element, so hand in float32. MAX may lose a NaN.
    """
    if size_of(group) == 1:
        return tensor
    tensor = tensor.contiguous()
    _record("all_reduce", what, tensor.nbytes, group)
    dist.all_reduce(tensor, op, group=group)
    return tensor


def all_gather(tensor: Tensor, group: Group, what: str) -> Tensor:
    """tensor [...] of the same shape on every rank -> [P, ...], by rank.

    gloo's passes a ring of P - 1 rounds one after the other. A few numbers go to all ranks at once instead, by its
    all_to_all: the same bytes, of which nothing but the delay counts.
    """
    if size_of(group) == 1:
        return tensor[None]
    tensor = tensor.contiguous()
    _record("all_gather", what, tensor.nbytes, group)
    if tensor.nbytes <= _FEW_BYTES and dist.get_backend(group) == "gloo":
        to_each = tensor.expand(size_of(group), *tensor.shape).contiguous()
        gathered = torch.empty_like(to_each)
        dist.all_to_all_single(gathered, to_each, group=group)
        return gathered
    gathered = tensor.new_empty((size_of(group), *tensor.shape))
    # Newer torch has it under another name, and warns at this one.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    gather(gathered.view(-1), tensor.view(-1), group=group)
    return gathered


def reduce_scatter(tensor: Tensor, group: Group, what: str) -> Tensor:
    """tensor [P, ...], part p for rank p -> the sum over ranks of this rank's parts, [...]."""
    if size_of(group) == 1:
        return tensor[0]
    tensor = tensor.contiguous()
    _record("reduce_scatter", what, tensor.nbytes, group)
    result = torch.empty_like(tensor[0])
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
    scatter(result.view(-1), tensor.view(-1), group=group)
    return result


def all_to_all(
    rows: Tensor, group: Group, what: str, sent: list[int] | None = None, received: list[int] | None = None
) -> Tensor:
    """rows [sum(sent), ...], by target -> [sum(received), ...], by source. Without counts, equal parts both ways.

    All ranks' counts must agree: the backends do not check them.
    """
    if size_of(group) == 1:
        return rows
    rows = rows.contiguous()
    own_rows = rows.size(0) // size_of(group) if sent is None else sent[dist.get_rank(group)]
    _record("all_to_all", what, rows.nbytes - rows[:own_rows].nbytes, group)
    result = torch.empty_like(rows) if received is None else rows.new_empty((sum(received), *rows.shape[1:]))
    dist.all_to_all_single(result, rows, received, sent, group=group)
    return result
