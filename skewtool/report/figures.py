"""The figures of a report, as matplotlib `Figure` objects. No pyplot, so no global state and no display is touched.

All are readable at V = 256,000 and P = 512: curves over ids are thinned to at most 2,000 points evenly spaced in log rank,
and loads per shard are steps, not bars, of many shards by falling load.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from skewtool.profiling import Profile
from skewtool.report.labels import plot_label
from skewtool.sharding import LOADS, Load
from skewtool.skew import Ageing, SkewReport

__all__ = [
    "hottest_ids",
    "load_per_shard",
    "lorenz_curve",
    "over_corpus",
    "rank_frequency",
    "render",
    "step_imbalance",
    "styled_figure",
]

_MOST_POINTS = 2000
_MOST_NAMED_SHARDS = 64  # beyond, lines would hide each other in the order of shards
_LOG_FROM = 3.0  # a wider range than this between layouts is shown on a log axis
_TICKS = (0, 0.5, 1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500)
_EXCESS_TICKS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
_ACCENT = "#1f5fa8"
_MARK = "#c0392b"
_COLORS = {"contiguous": "#c0392b", "strided": "#e08e0b", "hidden": "#7f8c8d", "snake": "#8e44ad", "random": "#a0785a"}
_MAP_COLORS = ("#1f5fa8", "#1e8449", "#16a2b8", "#5b2c6f", "#0b3d2e")
_TITLES: dict[Load, str] = {
    "unique": "distinct ids per rank and step (unique)",
    "raw": "every occurrence (raw)",
}


_PLAIN_TEXT = matplotlib.rc_context({"text.usetex": False})
"""Decorates whatever makes text: tokens and names are no markup, whatever the user's settings are."""


def styled_figure(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure with axes side by side, in the style of all figures; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.atleast_1d(figure.subplots(1, columns))
    for each in axes:
        each.spines[["top", "right"]].set_visible(False)
        each.grid(True, which="major", color="#dddddd", linewidth=0.6)
        each.set_axisbelow(True)
    return figure, list(axes)


def render(figure: Figure, kind: str) -> bytes:
    """The figure as "png" or "svg"; the same figure gives the same bytes."""
    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {}
    with matplotlib.rc_context({"svg.hashsalt": "skewtool", "text.usetex": False}):
        figure.savefig(buffer, format=kind, dpi=144, metadata=metadata)
    return buffer.getvalue()


def _thinned_ranks(number: int) -> npt.NDArray[np.int64]:
    """Ranks 1 to `number`, at most about 2,000 of them, evenly spaced on a log axis."""
    return np.unique(np.geomspace(1, number, _MOST_POINTS).round().astype(np.int64))


def _excess_label(value: float, _: object) -> str:
    return "even" if value <= _EXCESS_TICKS[0] else f"+{value * 100:g} %"


def _empty(axes: Axes, what: str) -> None:
    axes.text(0.5, 0.5, what, ha="center", va="center", transform=axes.transAxes, color="#555555")
    axes.set_xticks([])
    axes.set_yticks([])


@_PLAIN_TEXT
def rank_frequency(profile: Profile) -> Figure:
    """Count over rank on log axes for the ids that occur, the hottest 1 % of the vocabulary marked."""
    figure, (axes,) = styled_figure(7, 4.2)
    falling = np.sort(profile.counts)[::-1]
    seen = profile.num_distinct
    figure.suptitle(
        f"{profile.num_tokens:,} tokens, {seen:,} of {profile.vocab_size:,} ids occur, "
        f"{profile.vocab_size - seen:,} never", fontsize=11,
    )  # fmt: skip
    if not seen:
        _empty(axes, "no tokens")
        return figure
    ranks = _thinned_ranks(seen)
    axes.loglog(ranks, falling[ranks - 1], color=_ACCENT, linewidth=1.8, marker="o" if seen == 1 else None)
    hot = -(-profile.vocab_size // 100)
    share = int(falling[:hot].sum()) / profile.num_tokens
    axes.axvspan(0.9, hot, color=_MARK, alpha=0.08, linewidth=0)
    axes.axvline(hot, color=_MARK, linewidth=1)
    axes.annotate(
        f"hottest 1 % of ids ({hot:,}):\n{share:.1%} of all tokens", (hot, falling[0]), xytext=(6, 0),
        textcoords="offset points", va="top", color=_MARK, fontsize=9,
    )  # fmt: skip
    axes.set(xlabel="rank of the id by count", ylabel="occurrences", xlim=(0.9, None))
    return figure


@_PLAIN_TEXT
def lorenz_curve(profile: Profile) -> Figure:
    """Share of tokens held by the hottest share of ids: the Lorenz curve, hottest first, on a log axis of ids."""
    figure, (axes,) = styled_figure(7, 4.2)
    figure.suptitle(f"Lorenz curve of load over {profile.vocab_size:,} ids, hottest first", fontsize=11)
    if not profile.num_tokens:
        _empty(axes, "no tokens")
        return figure
    held = np.cumsum(np.sort(profile.counts)[::-1]) / profile.num_tokens
    ranks = _thinned_ranks(profile.vocab_size)
    axes.semilogx(ranks / profile.vocab_size, held[ranks - 1], color=_ACCENT, linewidth=1.8)
    axes.semilogx(ranks / profile.vocab_size, ranks / profile.vocab_size, "--", color="#999999", linewidth=1)
    axes.annotate("if all ids were equally frequent", (0.5, 0.5), xytext=(-8, 4), textcoords="offset points",
                  ha="right", color="#777777", fontsize=9)  # fmt: skip
    hot = -(-profile.vocab_size // 100)
    axes.plot(hot / profile.vocab_size, held[hot - 1], "o", color=_MARK)
    axes.annotate(f"1 % of ids: {held[hot - 1]:.1%}", (hot / profile.vocab_size, held[hot - 1]), xytext=(8, -10),
                  textcoords="offset points", color=_MARK, fontsize=9)  # fmt: skip
    axes.set(xlabel="share of ids", ylabel="share of tokens", ylim=(0, 1.03))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.4%}".rstrip("0%").rstrip(".") + " %")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    return figure


def _color(layouts: Sequence[str], name: str) -> str:
    if name in _COLORS:
        return _COLORS[name]
    maps = [each for each in layouts if each not in _COLORS]
    return _MAP_COLORS[maps.index(name) % len(_MAP_COLORS)]


def _names(report: SkewReport) -> list[str]:
    return list(dict.fromkeys(layout.layout for layout in report.layouts))


@_PLAIN_TEXT
def load_per_shard(report: SkewReport) -> Figure:
    """Load of each shard over the mean, for each layout; raw and unique side by side."""
    figure, panels = styled_figure(11, 4.2, columns=2)
    figure.suptitle(f"Load per shard, {report.num_shards} shards, on average over the corpus", fontsize=11)
    names = _names(report)
    for axes, load in zip(panels, LOADS, strict=True):
        axes.set(title=_TITLES[load])
        if all(layout.load != load for layout in report.layouts):
            _empty(axes, "the profile has no windows")
            continue
        widest = 1.0
        for each in (layout for layout in report.layouts if layout.load == load):
            mean = each.loads.mean()
            relative = each.loads / mean if mean else np.ones(report.num_shards)
            if report.num_shards > _MOST_NAMED_SHARDS:
                relative = np.sort(relative)[::-1]
            widest = max(widest, float(relative.max()))
            axes.stairs(relative, np.arange(report.num_shards + 1) - 0.5, color=_color(names, each.layout),
                        linewidth=1.6, baseline=None)  # fmt: skip
        if widest > _LOG_FROM:
            axes.set_yscale("symlog", linthresh=2.0, linscale=1.5)
            axes.set_yticks([tick for tick in _TICKS if tick <= widest])
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        in_order = report.num_shards <= _MOST_NAMED_SHARDS
        axes.set(
            xlabel="shard" if in_order else "shards of each layout, busiest first",
            ylabel="load / mean",
            xlim=(-0.5, report.num_shards - 0.5),
        )
        axes.set_ylim(bottom=0)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend(figure, names)
    return figure


@_PLAIN_TEXT
def step_imbalance(report: SkewReport) -> Figure:
    """Distribution over replayed steps of how far the busiest shard is above the mean, for each layout.

    The axis of the excess is logarithmic, so that even layouts can be told apart; up to 0.1 % counts as even.
    """
    figure, panels = styled_figure(11, 4.2, columns=2)
    figure.suptitle(
        f"Imbalance within a step: {report.num_steps:,} steps of {report.num_shards} ranks with "
        f"{report.tokens_per_rank:,} tokens each", fontsize=11,
    )  # fmt: skip
    names = _names(report)
    for axes, load in zip(panels, LOADS, strict=True):
        axes.set(title=_TITLES[load], xlabel="busiest shard above the mean", ylabel="share of steps at or below")
        if not report.num_steps:
            _empty(axes, "no whole window to replay")
            continue
        shown = [layout for layout in report.layouts if layout.load == load]
        for each in shown:
            axes.ecdf(np.maximum(each.steps - 1, _EXCESS_TICKS[0]), color=_color(names, each.layout), linewidth=1.8)
        widest = max(float(each.steps.max()) - 1 for each in shown)
        axes.set_xscale("log")
        axes.set_xlim(_EXCESS_TICKS[0] * 0.9, max(widest * 1.3, 0.02))
        axes.set_xticks([tick for tick in _EXCESS_TICKS if tick <= max(widest * 1.3, 0.02)])
        axes.minorticks_off()
        axes.xaxis.set_major_formatter(_excess_label)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    _legend(figure, names)
    return figure


def _legend(figure: Figure, names: Sequence[str]) -> None:
    lines = [Line2D([], [], color=_color(names, name), linewidth=1.8) for name in names]
    if lines:
        labels = [plot_label(name) for name in names]
        legend = figure.legend(lines, labels, loc="outside lower center", ncols=min(len(names), 6), frameon=False)
        for text in legend.get_texts():
            text.set_parse_math(False)


@_PLAIN_TEXT
def over_corpus(ageing: Ageing) -> Figure:
    """Imbalance in each block of the corpus for each layout, and how far its tokens are from those of the first block.

    The axis across is the share of tokens before; that of the excess is logarithmic, so that even layouts can be told
    apart.
    """
    figure, panels = styled_figure(13, 4.2, columns=3)
    blocks, total = ageing.num_tokens.size, int(ageing.num_tokens.sum())
    figure.suptitle(f"Over the corpus: {total:,} tokens in {blocks} block{'s' * (blocks > 1)}", fontsize=11)
    edges = np.concatenate([[0], np.cumsum(ageing.num_tokens)]) / total
    for axes, load in zip(panels, LOADS, strict=False):
        axes.set(title=_TITLES[load])
        if load in ageing.imbalance:
            _excess_over_corpus(axes, ageing.imbalance[load], edges)
        else:
            _empty(axes, "the profile has no windows")
    panels[2].stairs(ageing.drift, edges, color="#333333", linewidth=1.8, baseline=None)
    panels[2].set(title="how far from the first block", ylabel="share of tokens that differ")
    panels[2].set_ylim(0, max(float(ageing.drift.max()) * 1.1, 0.01))
    panels[2].yaxis.set_major_formatter(lambda value, _: f"{value * 100:g} %")
    for axes in panels:
        axes.set(xlabel="place in the corpus", xlim=(0, 1))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value * 100:g} %")
    _legend(figure, ageing.layouts)
    return figure


def _excess_over_corpus(axes: Axes, layouts: Mapping[str, npt.NDArray[np.float64]], edges: npt.NDArray[np.float64]) -> None:
    """A line for each layout."""
    highest = max(0.02, *(1.3 * (float(each.max()) - 1) for each in layouts.values()))
    for name, imbalance in layouts.items():
        excess = np.maximum(imbalance - 1, _EXCESS_TICKS[0])
        axes.stairs(excess, edges, color=_color(list(layouts), name), linewidth=1.8, baseline=None)
    axes.set(ylabel="busiest shard above the mean", yscale="log", ylim=(_EXCESS_TICKS[0] * 0.9, highest))
    axes.set_yticks([tick for tick in _EXCESS_TICKS if tick <= highest])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(_excess_label)


@_PLAIN_TEXT
def hottest_ids(profile: Profile, tokens: Sequence[str], ids: Sequence[int]) -> Figure:
    """Share of all tokens for each of the hottest ids, labelled with id and token text."""
    figure, (axes,) = styled_figure(7, 0.8 + 0.26 * max(len(ids), 2))
    figure.suptitle("Hottest ids", fontsize=11)
    if not ids:
        _empty(axes, "no tokens")
        return figure
    places = np.arange(len(ids))
    shares = profile.counts[list(ids)] / profile.num_tokens
    axes.barh(places, shares, color=_ACCENT, height=0.7)
    labels = [f"{plot_label(token)}  {token_id}" if token else str(token_id)
              for token, token_id in zip(tokens, ids, strict=True)]  # fmt: skip
    axes.set_yticks(places, labels, fontsize=9, parse_math=False)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("share of all tokens")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.1%}")
    return figure
