"""The bar charts of a bench: time, bytes and rows of every layout, side by side."""

from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from skewtool.report.figures import styled_figure

__all__ = ["bench_bars"]

_PHASES = {"forward": "#1f5fa8", "backward": "#8fb3d9", "update": "#c0392b"}
_BUSIEST, _MEAN, _PREDICTED = "#1f5fa8", "#b9cfe6", "#c0392b"


@rc_context({"text.usetex": False})
def bench_bars(content: dict[str, Any]) -> Figure:
    """`content`: the object that `skewtool bench --json` prints. Layouts from top to bottom in its order."""
    layouts = content["layouts"]
    figure, (times, sent, served) = styled_figure(13, 1.7 + 0.3 * len(layouts), 3)
    wire = content.get("wire")
    figure.suptitle(
        f"{content['shards']} ranks, {content['backend']}{f', links of {wire}' if wire else ''}, "
        f"{content['tokens_per_rank']:,} tokens per rank, V = {content['vocab_size']:,}, H = {content['hidden']}",
        fontsize=11,
    )  # fmt: skip
    _times(times, layouts)
    _pairs(sent, [each.get("bytes_sent_per_rank") for each in layouts], 1e6, "MB sent per rank and step")
    for place, each in enumerate(layouts):
        if each.get("predicted_bytes_sent_per_rank"):
            sent.plot(each["predicted_bytes_sent_per_rank"]["max"] / 1e6, place, "|", color=_PREDICTED, markersize=11)
    sent.plot([], [], "|", color=_PREDICTED, markersize=9, label="predicted, busiest")
    _pairs(served, [each.get("rows_served_per_rank") for each in layouts], 1, "rows served per rank and step")
    for axes in (sent, served):
        axes.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
        axes.set_yticks(range(len(layouts)), [])
    for axes in (times, sent, served):
        axes.set_ylim(len(layouts) - 0.5, -0.5)
    return figure


def _times(axes: Axes, layouts: list[dict[str, Any]]) -> None:
    left = [0.0] * len(layouts)
    for phase, color in _PHASES.items():
        widths = [1e3 * each.get(f"{phase}_seconds", {"p50": 0.0})["p50"] for each in layouts]
        axes.barh(range(len(layouts)), widths, left=left, color=color, label=phase, height=0.7)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_yticks(range(len(layouts)), [each["layout"] for each in layouts], fontsize=9, parse_math=False)
    axes.set_xlabel("ms, medians of the slowest rank")
    axes.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)


def _pairs(axes: Axes, figures: list[dict[str, float] | None], unit: float, title: str) -> None:
    for place, each in enumerate(figures):
        if each is None:
            axes.text(0, place, " not counted", va="center", fontsize=8, color="#777777")
            continue
        axes.barh(place, each["max"] / unit, color=_BUSIEST, height=0.7)
        axes.barh(place, each["mean"] / unit, color=_MEAN, height=0.7)
    axes.barh(0, 0, color=_BUSIEST, label="busiest rank")
    axes.barh(0, 0, color=_MEAN, label="mean rank")
    axes.set_xlabel(title)
