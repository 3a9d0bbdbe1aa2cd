"""What the ranks of a bench saw, put together: one object of figures per layout, as the command prints it.

A step is as slow as its slowest rank, in each phase: phases begin together, behind a barrier that is not timed. Bytes are
those handed to collectives for other ranks, by ring or pairwise (`Collective.sent_bytes`), and stand beside what was
predicted from the ids of the very same steps.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from skewtool.bench.job import Job
from skewtool.bench.measure import PHASES
from skewtool.bench.prediction import Prediction

__all__ = ["BenchResult", "bench_result"]

Figures = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BenchResult:
    """One object for JSON; see the design for its keys."""

    content: dict[str, Any]

    def with_wire(self, rate: str | None) -> "BenchResult":
        """The same, with the rate of the links it ran over; None is loopback."""
        return BenchResult(self.content | {"wire": rate})

    def to_json(self) -> str:
        return json.dumps(self.content, allow_nan=False)

    def to_text(self) -> str:
        """A table: medians in milliseconds, quartiles, bytes sent in kB, rows served. "-" where nothing was counted."""
        head = self.content
        wire = head.get("wire")
        title = (
            f"{head['shards']} ranks, {head['backend']}{f', links of {wire}' if wire else ''}; {head['tokens_per_rank']:,} "
            f"tokens per rank, V = {head['vocab_size']:,}, H = {head['hidden']}, {head['dtype']}; {head['steps']} steps"
        )
        columns = ["layout", "forward ms", "(quartiles)", "backward ms", "update ms", "step ms", "sent kB busiest", "mean",
                   "as predicted", "rows served busiest", "mean", "peak MB"]  # fmt: skip
        rows = [columns, *(_row(each) for each in self.layouts)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([title, "", *lines])

    @property
    def layouts(self) -> list[dict[str, Any]]:
        layouts: list[dict[str, Any]] = self.content["layouts"]
        return layouts

    def step_seconds(self, layout: str, phase: str = "forward") -> float:
        """The median of a layout's phase."""
        (found,) = [each for each in self.layouts if each["layout"] == layout]
        return float(found[f"{phase}_seconds"]["p50"])


def bench_result(job: Job, everyone: Sequence[dict[str, Any]], predictions: dict[str, Prediction | None]) -> BenchResult:
    """From what each rank saw, by rank and layout; None predicts nothing (layouts of others)."""
    layouts = [_layout(name, [seen[name] for seen in everyone], predictions[name]) for name in job.layouts]
    head = {
        "backend": job.backend, "shards": job.shards, "tokens_per_rank": job.tokens_per_rank, "hidden": job.hidden,
        "vocab_size": job.vocab_size, "dtype": job.dtype, "head_tokens_per_rank": job.head_tokens,
        "steps": len(next(iter(everyone[0].values()))["seconds"]["forward"]),
    }  # fmt: skip
    return BenchResult(head | {"layouts": layouts})


def _layout(name: str, ranks: list[dict[str, Any]], prediction: Prediction | None) -> dict[str, Any]:
    seconds = {phase: _slowest(ranks, phase) for phase in PHASES}
    step = seconds["forward"] + seconds["backward"] + (seconds["update"] if seconds["update"].size else 0.0)
    sent = _sent(ranks)
    result: dict[str, Any] = {"layout": name, "step_seconds": _quantiles(step)}
    result |= {f"{phase}_seconds": _quantiles(times) for phase, times in seconds.items() if times.size}
    if prediction is not None:
        result["bytes_sent_per_rank"] = _by_rank(_total(sent))
        result["predicted_bytes_sent_per_rank"] = _by_rank(_total(prediction.sent))
        result["bytes_by_phase"] = {
            phase: {
                what: _by_rank(found) | {"predicted": _by_rank(prediction.sent.get((phase, what), np.zeros((1, 1))))}
                for (of_phase, what), found in sorted(sent.items())
                if of_phase == phase
            }
            for phase in PHASES
            if any(of_phase == phase for of_phase, _ in sent)
        }
        result["bytes_as_predicted"] = prediction.is_exactly(sent)
        result["rows_served_per_rank"] = None if prediction.rows_served is None else _by_rank(prediction.rows_served)
        result["predicted_peak_bytes"] = prediction.peak_bytes
    result["peak_bytes"] = {phase: max(rank["peak_bytes"].get(phase, 0) for rank in ranks) for phase in PHASES}
    return result


def _slowest(ranks: list[dict[str, Any]], phase: str) -> Figures:
    """Seconds of each step."""
    return np.asarray(np.max([rank["seconds"][phase] for rank in ranks], axis=0), np.float64)


def _sent(ranks: list[dict[str, Any]]) -> dict[tuple[str, str], npt.NDArray[np.int64]]:
    """(phase, what) -> bytes sent in each step by each rank, int64 [steps, P]."""
    num_steps = len(ranks[0]["seconds"]["forward"])
    sent: dict[tuple[str, str], npt.NDArray[np.int64]] = {}
    for rank, seen in enumerate(ranks):
        for phase, steps in seen["collectives"].items():
            for step, calls in enumerate(steps):
                for _, what, number in calls:
                    table = sent.setdefault((phase, what), np.zeros((num_steps, len(ranks)), np.int64))
                    table[step, rank] += number
    return sent


def _total(sent: dict[tuple[str, str], npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return sum(sent.values(), start=np.zeros((1, 1), np.int64))


def _by_rank(table: npt.NDArray[Any]) -> dict[str, float]:
    """Of [steps, P]: the mean step's busiest rank and mean rank."""
    return {"max": float(table.max(axis=1).mean()), "mean": float(table.mean())}


def _quantiles(seconds: Figures) -> dict[str, float]:
    """Medians, and the spread: the quartiles and the slowest."""
    names = {"p25": 25, "p50": 50, "p75": 75, "p99": 99}
    return {name: float(np.percentile(seconds, at)) for name, at in names.items()} | {"max": float(seconds.max())}


def _row(layout: dict[str, Any]) -> list[str]:
    forward = layout["forward_seconds"]
    cells = [layout["layout"], f"{forward['p50'] * 1e3:.1f}", f"({forward['p25'] * 1e3:.1f}-{forward['p75'] * 1e3:.1f})"]
    for name in ("backward_seconds", "update_seconds", "step_seconds"):
        cells.append(f"{layout[name]['p50'] * 1e3:.1f}" if name in layout else "-")
    if "bytes_sent_per_rank" in layout:
        sent, served = layout["bytes_sent_per_rank"], layout["rows_served_per_rank"]
        cells += [f"{sent['max'] / 1e3:,.1f}", f"{sent['mean'] / 1e3:,.1f}", "yes" if layout["bytes_as_predicted"] else "NO"]
        cells += ["-", "-"] if served is None else [f"{served['max']:,.0f}", f"{served['mean']:,.0f}"]
    else:
        cells += ["-"] * 5
    return [*cells, f"{max(layout['peak_bytes'].values()) / 1e6:.1f}"]
