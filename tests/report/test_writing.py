"""The report on disk: which files, what is in them, and where matplotlib or the machine is odd."""

import base64
import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from skewtool import Profile, SkewReport, SkewtoolError, measure_skew, partition
from skewtool.report import HOTTEST, figures, write_report

ProfileOf = Callable[..., Profile]

FIGURES = ["hottest_ids", "load_per_shard", "lorenz_curve", "rank_frequency", "step_imbalance"]
TABLES = ["hottest.csv", "index.html", "layouts.csv", "skew.json"]
ODD = ["$$", "$x_", "\\frac{", "_", "^", "%", "的", "한", "🙂", "<script>", '"', ",", "\x00", "\x1b", "\n", "=1+1", " "]


@pytest.fixture(scope="module")
def profile(profile_of: ProfileOf, zipf_tokens: Callable[..., npt.NDArray[np.int64]]) -> Profile:
    return profile_of(zipf_tokens(1280, 60), 60)


@pytest.fixture(scope="module")
def skew(profile: Profile) -> SkewReport:
    return measure_skew(profile, {"$mine$": partition(profile, 4)})


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are not drawn: what they look like is tested beside figures.py."""
    monkeypatch.setattr(figures, "render", lambda figure, kind: kind.encode())


def _refuse(value: str) -> float:
    raise AssertionError(f"{value} is no JSON")


def test_a_whole_report(tmp_path: Path, profile: Profile, skew: SkewReport) -> None:
    index = write_report(tmp_path / "a" / "b", profile, skew, dict(enumerate(ODD)))
    assert index == tmp_path / "a" / "b" / "index.html"
    found = sorted(path.name for path in index.parent.iterdir())
    assert found == sorted([*TABLES, *(f"{name}.{kind}" for name in FIGURES for kind in ("png", "svg"))])
    assert all(0 < path.stat().st_size < 2_000_000 for path in index.parent.iterdir())
    html = index.read_text()
    assert re.findall(r"https?://|<script|@import", re.sub(r"base64,[A-Za-z0-9+/=]*", "", html)) == []
    embedded = [base64.b64decode(data) for data in re.findall(r"base64,([A-Za-z0-9+/=]*)", html)]
    assert sorted(embedded) == sorted((index.parent / f"{name}.svg").read_bytes() for name in FIGURES)
    for svg in embedded:
        outside = set(re.findall(rb"https?://[^\s\"'<>]*", svg))
        assert all(re.match(rb"https?://(www\.w3\.org|purl\.org|creativecommons\.org|matplotlib\.org)/", url)
                   for url in outside)  # fmt: skip
        assert b"<script" not in svg
        assert not re.search(rb"(?:href|src)=[\"'](?!#)(?!data:)", svg)


def test_tables_are_quoted_and_complete(tmp_path: Path, profile: Profile, skew: SkewReport, quick: None) -> None:
    write_report(tmp_path, profile, skew, dict(enumerate(ODD)))
    with (tmp_path / "hottest.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    order = np.argsort(-profile.counts, kind="stable")[:HOTTEST]
    assert [int(row["id"]) for row in rows] == order.tolist()
    assert [int(row["count"]) for row in rows] == profile.counts[order].tolist()
    assert [row["token"] for row in rows] == [ODD[i] if i < len(ODD) else "" for i in order]
    with (tmp_path / "layouts.csv").open(newline="", encoding="utf-8") as file:
        layouts = list(csv.DictReader(file))
    assert [(row["layout"], row["load"]) for row in layouts] == [(each.layout, each.load) for each in skew.layouts]
    found = json.loads((tmp_path / "skew.json").read_text(), parse_constant=_refuse)
    assert found == json.loads(json.dumps(skew.to_json()))


@pytest.mark.parametrize("num_shards", [1, 4, 512])
@pytest.mark.parametrize("tokens", [[], [0], [3] * 200])
def test_next_to_nothing(tmp_path: Path, profile_of: ProfileOf, quick: None, tokens: list[int], num_shards: int) -> None:
    little = profile_of(tokens, 4)
    html = write_report(tmp_path, little, measure_skew(little, num_shards=num_shards)).read_text()
    json.loads((tmp_path / "skew.json").read_text(), parse_constant=_refuse)
    assert "nan" not in html.lower()
    assert len((tmp_path / "hottest.csv").read_text().splitlines()) == 1 + bool(tokens)


def test_tokens_that_are_no_text_do_not_stop_it(tmp_path: Path, profile: Profile, skew: SkewReport, quick: None) -> None:
    write_report(tmp_path, profile, skew, {0: "\ud800", 1: "\udcff"})
    assert (tmp_path / "hottest.csv").read_text(encoding="utf-8")


def test_names_that_are_no_text_do_not_stop_it(tmp_path: Path, profile: Profile, quick: None) -> None:
    """As the stem of a file whose name is no UTF-8."""
    report = measure_skew(profile, {"map\udcff": partition(profile, 4)})
    assert "map" in write_report(tmp_path, profile, report).read_text(encoding="utf-8")


def test_a_directory_that_cannot_be_made(tmp_path: Path, profile: Profile, skew: SkewReport, quick: None) -> None:
    (tmp_path / "file").write_bytes(b"")
    for target in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(SkewtoolError, match="cannot write"):
            write_report(target, profile, skew)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_error_leaves_no_files(
    tmp_path: Path, profile: Profile, skew: SkewReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(figure: object, kind: str) -> bytes:
        raise RuntimeError("no fonts")

    monkeypatch.setattr(figures, "render", fail)
    with pytest.raises(RuntimeError, match="no fonts"):
        write_report(tmp_path / "report", profile, skew)
    assert list(tmp_path.iterdir()) == []


def test_writing_again_replaces(tmp_path: Path, profile: Profile, skew: SkewReport, quick: None) -> None:
    (tmp_path / "index.html").write_text("old")
    (tmp_path / "mine.txt").write_text("kept")
    write_report(tmp_path, profile, skew)
    assert "old" not in (tmp_path / "index.html").read_text()[:3]
    assert (tmp_path / "mine.txt").read_text() == "kept"
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


WITHOUT_MATPLOTLIB = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None

sys.meta_path.insert(0, Blocked())
import skewtool
from skewtool.report import write_report
profile = skewtool.Profile.load(sys.argv[1])
print(write_report(sys.argv[2], profile, skewtool.measure_skew(profile, num_shards=4), {0: "<b>"}))
"""


def test_without_matplotlib_there_is_a_page_with_a_note(
    tmp_path: Path, profile: Profile, run_python: Callable[..., Any]
) -> None:
    profile.save(tmp_path / "p.safetensors")
    done = run_python(WITHOUT_MATPLOTLIB, tmp_path / "p.safetensors", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == TABLES
    html = (tmp_path / "out" / "index.html").read_text()
    assert "Figures are left out: matplotlib is not installed" in html
    assert "<img" not in html
    assert "&lt;b&gt;" in html


HEADLESS = """
import sys
import skewtool
from skewtool.report import write_report
profile = skewtool.Profile.load(sys.argv[1])
print(write_report(sys.argv[2], profile, skewtool.measure_skew(profile, num_shards=4)))
assert "matplotlib" in sys.modules
assert "matplotlib.pyplot" not in sys.modules, "pyplot holds global state"
assert "tkinter" not in sys.modules
"""


def test_a_server_without_display_and_with_a_home_that_cannot_be_written(
    tmp_path: Path, profile: Profile, run_python: Callable[..., Any]
) -> None:
    profile.save(tmp_path / "p.safetensors")
    (tmp_path / "home").write_bytes(b"")  # no directory can be made below a file, not even by root
    done = run_python(
        HEADLESS, tmp_path / "p.safetensors", tmp_path / "out",
        env={"DISPLAY": None, "WAYLAND_DISPLAY": None, "MPLBACKEND": "TkAgg", "HOME": str(tmp_path / "home"),
             "MPLCONFIGDIR": None, "XDG_CONFIG_HOME": None, "XDG_CACHE_HOME": None},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "load_per_shard.png").read_bytes().startswith(b"\x89PNG")
