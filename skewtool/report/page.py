"""The HTML page of a report: one file without scripts or outside references, figures as embedded SVG."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from skewtool.profiling import Profile
from skewtool.report.labels import visible
from skewtool.skew import WHERE_SKEW_DOES_NOT_MATTER, Quantiles, SkewReport

__all__ = ["HotId", "Picture", "page"]

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 62rem; padding: 0 1rem; color: #222; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid #ddd; text-align: right; }
th:first-child, td:first-child, td.text, th.text { text-align: left; }
img { max-width: 100%; } code { background: #f4f4f4; padding: 0 .2em; } .note { color: #555; }
@media (prefers-color-scheme: dark) { body { background: #fff; } }
"""


@dataclass(frozen=True)
class HotId:
    """One of the most frequent ids; `token` is "" without a tokenizer."""

    token_id: int
    token: str
    count: int


@dataclass(frozen=True)
class Picture:
    """A figure as written beside the page: its file name without ending, what it shows, and its SVG."""

    name: str
    caption: str
    svg: bytes


def page(profile: Profile, skew: SkewReport, hot: Sequence[HotId], pictures: Sequence[Picture], notes: Sequence[str]) -> str:
    """The whole page. All text of users (names, tokens, notes) is escaped."""
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>skewtool report</title>",
        f"<style>{_STYLE}</style></head><body><h1>Vocabulary skew</h1>",
        _summary(profile, skew),
        "".join(f"<p class='note'>{escape(note)}</p>" for note in [*notes, *profile.notes]),
        "<h2>Layouts</h2>",
        _layout_table(skew),
        "".join(f"<p class='note'>{escape(sentence)}</p>" for sentence in WHERE_SKEW_DOES_NOT_MATTER),
        *(_picture(picture) for picture in pictures),
        "<h2>Hottest ids</h2>",
        _hot_table(profile, hot),
        "</body></html>\n",
    ]
    return "".join(parts)


def _summary(profile: Profile, skew: SkewReport) -> str:
    slope = "" if skew.rank_frequency_slope is None else f" Rank-frequency slope {skew.rank_frequency_slope:.2f}."
    return (
        f"<p>{profile.num_tokens:,} tokens from {len(profile.sources):,} files; {profile.num_distinct:,} of "
        f"{profile.vocab_size:,} ids occur. The hottest 1 % of ids are {skew.top1_percent_share:.1%} of all tokens, the "
        f"hottest 10 ids {skew.top10_share:.1%}.{slope} {skew.num_steps:,} steps of {skew.num_shards} ranks with "
        f"{skew.tokens_per_rank:,} tokens each were replayed.</p>"
    )


def _row(cells: Sequence[str], text_cells: int, tag: str = "td") -> str:
    marked = [f"<{tag} class='text'>{c}</{tag}>" if i < text_cells else f"<{tag}>{c}</{tag}>" for i, c in enumerate(cells)]
    return f"<tr>{''.join(marked)}</tr>"


def _number(quantiles: Quantiles | None, name: str) -> str:
    return "–" if quantiles is None else f"{getattr(quantiles, name):.3f}"


def _layout_table(skew: SkewReport) -> str:
    head = ["layout", "load", "mean imbalance", "lower bound", "step p50", "step p99", "step max",
            "busiest rows / token (p50)", "extra rows"]  # fmt: skip
    rows = [
        _row([escape(each.layout), each.load, f"{each.mean_imbalance:.4f}", f"{each.lower_bound:.4f}",
              *(_number(each.step_imbalance, name) for name in ("p50", "p99", "max")),
              _number(each.busiest_rows_per_token, "p50"), f"{each.extra_rows_per_shard:,}"], 2)
        for each in skew.layouts
    ]  # fmt: skip
    return f"<table>{_row(head, 2, 'th')}{''.join(rows)}</table>"


def _picture(picture: Picture) -> str:
    data = base64.b64encode(picture.svg).decode()
    caption = escape(picture.caption)
    return f"<h2>{caption}</h2><img alt='{caption}' src='data:image/svg+xml;base64,{data}'>"


def _hot_table(profile: Profile, hot: Sequence[HotId]) -> str:
    rows = [
        _row([f"<code>{escape(visible(each.token))}</code>" if each.token else "–", str(each.token_id),
              f"{each.count:,}", f"{each.count / profile.num_tokens:.2%}"], 1)
        for each in hot
    ]  # fmt: skip
    return f"<table>{_row(['token', 'id', 'count', 'share'], 1, 'th')}{''.join(rows)}</table>"
