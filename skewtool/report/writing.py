"""`write_report`: figures (PNG and SVG), tables (CSV, JSON) and `index.html` in one directory.

Everything is made in memory first and written only when all of it exists. Without matplotlib the figures are left out,
and the page says so.
"""

import csv
import io
import json
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from skewtool.errors import SkewtoolError
from skewtool.profiling import Profile
from skewtool.report.page import HotId, Picture, page
from skewtool.skew import SkewReport
from skewtool.storage import replacing

__all__ = ["HOTTEST", "write_report"]

HOTTEST = 20
"""How many of the hottest ids a report lists."""


def write_report(
    directory: str | PathLike[str],
    profile: Profile,
    skew: SkewReport,
    token_text: "dict[int, str] | None" = None,
    bench: "dict[str, Any] | None" = None,
) -> Path:
    """Writes the report of `profile` and `skew`; returns the path of index.html.

    `token_text` names tokens by id, at least the hottest ones; `bench`: what `skewtool bench --json` printed.
    Errors: SkewtoolError when the directory cannot be made.
    """
    hot = _hottest(profile, token_text or {})
    files: dict[str, bytes] = {}
    pictures, notes = [], []
    try:
        pictures = _pictures(profile, skew, hot, bench, files)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "matplotlib":
            raise
        notes.append("Figures are left out: matplotlib is not installed (pip install matplotlib).")
    files["hottest.csv"] = _hottest_csv(profile, hot)
    files["layouts.csv"] = skew.table().to_csv(index=False).encode()
    files["skew.json"] = (json.dumps(skew.to_json(), indent=1, allow_nan=False) + "\n").encode()
    files["index.html"] = page(profile, skew, hot, pictures, notes).encode(errors="backslashreplace")
    return _write(Path(directory), files)


def _hottest(profile: Profile, token_text: dict[int, str]) -> list[HotId]:
    order = np.argsort(-profile.counts, kind="stable")[:HOTTEST]
    return [HotId(int(i), token_text.get(int(i), ""), int(profile.counts[i])) for i in order if profile.counts[i]]


def _pictures(
    profile: Profile, skew: SkewReport, hot: list[HotId], bench: dict[str, Any] | None, files: dict[str, bytes]
) -> list[Picture]:
    from skewtool.report import figures
    from skewtool.report.bench_figure import bench_bars

    made = {
        "load_per_shard": ("Load per shard", figures.load_per_shard(skew)),
        "step_imbalance": ("Imbalance within a step", figures.step_imbalance(skew)),
        "rank_frequency": ("Frequency by rank", figures.rank_frequency(profile)),
        "lorenz_curve": ("Lorenz curve", figures.lorenz_curve(profile)),
        "hottest_ids": (
            "Hottest ids, as shares",
            figures.hottest_ids(profile, [each.token for each in hot], [each.token_id for each in hot]),
        ),
    }
    if skew.over_corpus is not None and skew.over_corpus.layouts:
        made["over_corpus"] = ("Imbalance over the corpus, estimated", figures.over_corpus(skew.over_corpus))
    if bench is not None:
        made["bench"] = ("Steps on real collectives, beside what was predicted", bench_bars(bench))
    pictures = []
    for name, (caption, figure) in made.items():
        svg = figures.render(figure, "svg")
        files[f"{name}.png"], files[f"{name}.svg"] = figures.render(figure, "png"), svg
        pictures.append(Picture(name, caption, svg))
    return pictures


def _hottest_csv(profile: Profile, hot: list[HotId]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["id", "token", "count", "share"])
    writer.writerows([each.token_id, each.token, each.count, each.count / profile.num_tokens] for each in hot)
    return text.getvalue().encode(errors="backslashreplace")


def _write(directory: Path, files: dict[str, bytes]) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            with replacing(directory / name) as temporary:
                temporary.write_bytes(content)
    except OSError as error:
        raise SkewtoolError(f"cannot write the report to {directory}: {error.strerror}") from None
    return directory / "index.html"
