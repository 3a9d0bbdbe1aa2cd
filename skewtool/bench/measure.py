"""What one rank does: builds every layout, runs every step through all of them in turn, and tells what it saw."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from skewtool.bench.job import Job
from skewtool.bench.layouts import Built, Place, build
from skewtool.bench.peak_memory import peak_of
from skewtool.bench.table import table_rows
from skewtool.errors import BenchError
from skewtool.parallel import Collective, record_collectives
from skewtool.parallel.hidden_columns import columns_of
from skewtool.sharding import ShardMap

__all__ = ["PHASES", "Seen", "measure"]

PHASES = ("forward", "backward", "update")

_CHECKED_TOKENS = 64
_REHEARSALS = 4
"""Of which the least peak is taken: gloo's threads let go of a buffer somewhat after the call that used it."""


@dataclass
class Seen:
    """Of one layout on one rank.

    seconds       phase -> of each step
    collectives   phase -> of each step -> the calls made
    peak_bytes    phase -> most memory above what was allocated before it, of one step
    """

    seconds: dict[str, list[float]] = field(default_factory=lambda: {phase: [] for phase in PHASES})
    collectives: dict[str, list[list[Collective]]] = field(default_factory=lambda: {phase: [] for phase in PHASES})
    peak_bytes: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For `results`: of each collective [kind, what, bytes sent]."""
        collectives = {
            phase: [[[call.kind, call.what, call.sent_bytes] for call in calls] for calls in steps]
            for phase, steps in self.collectives.items()
        }
        return {"seconds": self.seconds, "collectives": collectives, "peak_bytes": self.peak_bytes}


def measure(job: Job, batches: Tensor, maps: dict[str, ShardMap], rank: int, device: torch.device) -> dict[str, Seen]:
    """All layouts of a job over batches int64 [steps, P, n]: name -> what this rank saw.

    Layouts take turns within each step, beginning with another one each time, so that a slow moment of the machine falls
    on all. The first step of each is a rehearsal: its rows are compared with the table, its memory is measured, and its
    time is not counted.
    """
    place = Place(job, rank, device)
    built = {name: build(name, place, maps) for name in job.layouts}
    seen = {name: Seen() for name in built}
    for name, layout in built.items():
        _rehearse(layout, batches[0].to(device), place, seen[name])
    names = list(built)
    for step, ids in enumerate(batches):
        first = step % len(names)
        for name in names[first:] + names[:first]:
            _step(built[name], ids.to(device), place, seen[name])
    return seen


def _phases(layout: Built, ids: Tensor, place: Place) -> dict[str, Callable[[], Any]]:
    """What each phase does; forward leaves its result for backward."""
    state: dict[str, Tensor] = {}

    def forward() -> None:
        state["out"] = layout.forward(ids)

    def backward() -> None:
        out = state.pop("out")
        out.backward(torch.ones_like(out))  # type: ignore[no-untyped-call]

    phases: dict[str, Callable[[], Any]] = {"forward": forward, "backward": backward}
    if layout.update is not None:
        phases["update"] = layout.update
    return phases


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _step(layout: Built, ids: Tensor, place: Place, seen: Seen) -> None:
    layout.module.zero_grad(set_to_none=True)
    for phase, do in _phases(layout, ids, place).items():
        _wait(place.device)
        dist.barrier()
        with record_collectives() as calls:
            start = time.perf_counter()
            do()
            _wait(place.device)
            seen.seconds[phase].append(time.perf_counter() - start)
        seen.collectives[phase].append(calls)


def _rehearse(layout: Built, ids: Tensor, place: Place, seen: Seen) -> None:
    _check_rows(layout, ids, place)
    for _ in range(_REHEARSALS):
        layout.module.zero_grad(set_to_none=True)
        for phase, do in _phases(layout, ids, place).items():
            dist.barrier()
            peak = peak_of(do, place.device)
            seen.peak_bytes[phase] = min(peak, seen.peak_bytes.get(phase, peak))


def _check_rows(layout: Built, ids: Tensor, place: Place) -> None:
    """The rows that come are those of the one table that all layouts have, whatever their map."""
    with torch.no_grad():
        rows = layout.forward(ids)
    if layout.rows == "loss":
        return
    of_rows = ids[place.rank] if layout.rows == "own" else ids.reshape(-1)
    columns = range(place.job.hidden)
    if layout.rows == "columns":
        columns = columns_of(place.job.hidden, place.job.shards, place.rank)
    checked = of_rows[:_CHECKED_TOKENS]
    expected = table_rows(checked, columns).to(rows.dtype)
    if not torch.equal(rows[: checked.numel()].cpu(), expected.cpu()):
        raise BenchError("a layout returned other rows than the table has: a fault of its code, not of the input")
