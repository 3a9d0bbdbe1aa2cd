"""`Traffic`: one collective call as every rank of a group makes it, predicted. All costs are lists of these.

The prediction mirrors the code of `skewtool.parallel` call by call, and the same bytes are counted there when it runs
(`record_collectives`), so that the two can be compared to the byte, per rank, phase and kind of content.

Where the code moves other bytes than the table "Layouts, and what each costs" of the design (section 5) says:

- sums of 16-bit tensors travel as float32: partial logits, gradients of hidden states, gradients of ids on every shard.
  Only rows of which one rank has all (vocab all-reduce and reduce-scatter, forward) travel as they are;
- ids, counts and labels are int64, 8 bytes;
- a route first agrees on counts: P + 2 integers of each rank, or 3 for the hidden layout and fixed capacity. In a large
  group these are not nothing: (P - 1)(P + 2) 8 bytes are sent by each rank;
- hidden with tokens wanted sends ids to every shard with or without repeats, because each rank knows only its own;
- the hidden all-gather and the sequence's reduce-scatter pad to equal parts: ceil(H / P) columns, ceil(N / P) tokens.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from skewtool.errors import MapError

__all__ = [
    "BACKENDS",
    "Backend",
    "Kind",
    "PerRank",
    "Phase",
    "Traffic",
    "equal",
    "exchange",
    "received",
    "repeated",
    "select",
    "sent",
]

Backend = Literal["gloo", "nccl"]
Kind = Literal["all_gather", "all_reduce", "all_to_all", "reduce_scatter"]
Phase = Literal["forward", "backward", "update"]
PerRank = npt.NDArray[np.int64]
"""int64 [P], by rank."""

BACKENDS: tuple[Backend, ...] = ("gloo", "nccl")

_MOST_ELEMENTS = 2**31 - 1
"""Elements of one transfer; `skewtool.parallel.routing.exchange` splits larger ones."""


_MOST_PARTS = 2**12

@dataclass(frozen=True, eq=False)
class Traffic:
    """One collective call of all P ranks.

    phase            forward, backward, or update (once per optimizer step)
    kind, what       as in `skewtool.parallel.collectives.Collective`
    payload_bytes    int64 [P], bytes of the tensor that each rank hands in; for all_to_all, of its parts for other ranks
    arriving_bytes   int64 [P], for all_to_all: bytes that come from other ranks; else as payload_bytes
    """

    phase: Phase
    kind: Kind
    what: str
    payload_bytes: PerRank
    arriving_bytes: PerRank

    def sent_bytes(self, backend: Backend) -> PerRank:
        """int64 [P]: bytes that each rank sends, by a ring or pairwise; the rule of `Collective.sent_bytes`.

        all_reduce 2 (P-1)/P of the payload, rounded up, reduce_scatter (P-1)/P (gloo: as all_reduce, which it is made
        of), all_gather P - 1 times it, all_to_all the payload.
        """
        return self._moved(self.payload_bytes, backend)

    def received_bytes(self, backend: Backend) -> PerRank:
        """int64 [P]: bytes that each rank gets. Only in an all_to_all do they differ from those it sends."""
        return self._moved(self.arriving_bytes, backend)

    def busiest_bytes(self, backend: Backend) -> int:
        """The most that a rank sends or receives: what the others wait for."""
        return int(max(self.sent_bytes(backend).max(), self.received_bytes(backend).max()))

    def _moved(self, payload: PerRank, backend: Backend) -> PerRank:
        num_ranks = payload.size
        if self.kind == "all_to_all":
            return payload
        if self.kind == "all_gather":
            return (num_ranks - 1) * payload
        parts = (2 if self.kind == "all_reduce" or backend == "gloo" else 1) * (num_ranks - 1)
        whole, rest = np.divmod(payload, num_ranks)
        return np.asarray(parts * whole - (-parts * rest // num_ranks))


def equal(phase: Phase, kind: Kind, what: str, payload_bytes: int, num_ranks: int) -> Traffic:
    """A call for which every rank hands in as much; for all_to_all, for the others. Errors: MapError above 2^62 bytes."""
    if payload_bytes * 2 * num_ranks >= 2**63:
        raise MapError(f"{payload_bytes} bytes of {what} on each of {num_ranks} ranks are too many to count; use less")
    payload = np.full(num_ranks, payload_bytes, np.int64)
    return Traffic(phase, kind, what, payload, payload)


def exchange(
    phase: Phase, what: str, units: npt.NDArray[np.int64], bytes_per_unit: int, elements_per_unit: int = 1
) -> list[Traffic]:
    """The all_to_all calls that bring units[a, b] rows, ids or elements of rank a to rank b, int64 [P, P]; those of a
    rank to itself move nothing. One call, or one for each part of at most 2^31 - 1 elements.

    Errors: MapError where the bytes do not fit in 64 bits, or the parts are thousands.
    """
    num_ranks = units.shape[0]
    most = max(1, _MOST_ELEMENTS // (max(1, elements_per_unit) * num_ranks))
    largest = int(units.max())
    if largest * num_ranks * bytes_per_unit >= 2**63 or largest > _MOST_PARTS * most:
        raise MapError(f"{largest} times {bytes_per_unit} bytes of {what} for {num_ranks} ranks are too many; use less")
    parts = [units] if largest <= most else [(units - first).clip(0, most) for first in range(0, largest, most)]
    calls = []
    for part in parts:
        own = part.diagonal()
        out, into = part.sum(axis=1) - own, part.sum(axis=0) - own
        calls.append(Traffic(phase, "all_to_all", what, out * bytes_per_unit, into * bytes_per_unit))
    return calls


def select(traffic: Iterable[Traffic], phase: Phase, what: str | None = None) -> list[Traffic]:
    """The calls of a phase, and of one kind of content where that is given."""
    return [each for each in traffic if each.phase == phase and what in (None, each.what)]


def sent(traffic: Iterable[Traffic], num_ranks: int, backend: Backend) -> PerRank:
    """int64 [P]: bytes that each rank sends in all calls."""
    return _sum(((number, each.sent_bytes(backend)) for each, number in repeated(traffic)), num_ranks)


def received(traffic: Iterable[Traffic], num_ranks: int, backend: Backend) -> PerRank:
    """int64 [P]: bytes that each rank receives in all calls."""
    return _sum(((number, each.received_bytes(backend)) for each, number in repeated(traffic)), num_ranks)


def repeated(traffic: Iterable[Traffic]) -> Iterable[tuple[Traffic, int]]:
    """Each call once, and how often it is made: the chunks of a loss are many, and mostly the same."""
    return Counter(traffic).items()


def _sum(figures: Iterable[tuple[int, PerRank]], num_ranks: int) -> PerRank:
    return sum((number * each for number, each in figures), start=np.zeros(num_ranks, np.int64))
