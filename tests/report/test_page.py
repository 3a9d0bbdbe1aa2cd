"""The page: one file, no outside references, and all text of users escaped."""

import base64
import re
from collections.abc import Callable
from html.parser import HTMLParser

import numpy as np
import numpy.typing as npt
import pytest

from skewtool import Profile, SkewReport, measure_skew, partition
from skewtool.report.page import HotId, Picture, page
from skewtool.skew import WHERE_SKEW_DOES_NOT_MATTER

ProfileOf = Callable[..., Profile]
EVIL = "<script>alert('1')</script>\"&"
SVG = b"<svg xmlns='http://www.w3.org/2000/svg'></svg>"


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def _read(html: str) -> _Reader:
    reader = _Reader()
    reader.feed(html)
    reader.close()
    return reader


@pytest.fixture
def profile(profile_of: ProfileOf, zipf_tokens: Callable[..., npt.NDArray[np.int64]]) -> Profile:
    return profile_of(zipf_tokens(1280, 60), 60, notes=[EVIL])


@pytest.fixture
def skew(profile: Profile) -> SkewReport:
    return measure_skew(profile, {EVIL: partition(profile, 4)})


def test_all_text_of_users_is_escaped(profile: Profile, skew: SkewReport) -> None:
    html = page(profile, skew, [HotId(0, EVIL[:20], 9)], [Picture("a", EVIL, SVG)], [EVIL])
    reader = _read(html)
    assert "script" not in reader.tags
    assert set(reader.tags) <= {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "table", "tr", "th",
                                "td", "code", "img"}  # fmt: skip
    assert reader.text.count(EVIL) >= 5  # name of the map for both loads, two notes, caption
    assert EVIL[:20] in reader.text


def test_nothing_is_loaded_from_elsewhere(profile: Profile, skew: SkewReport) -> None:
    html = page(profile, skew, [], [Picture("a", "A figure", SVG)], [])
    assert re.findall(r"https?:|//\w|@import|url\(", re.sub(r"base64,[A-Za-z0-9+/=]*", "", html)) == []
    for name, value in _read(html).attributes:
        if name in ("src", "href"):
            assert (value or "").startswith("data:image/svg+xml;base64,")
            assert base64.b64decode((value or "").split(",")[1]) == SVG


@pytest.mark.parametrize("token", ["$$", "\\frac{", "的", "🙂", "\x00", "\x1b", "\u202e", "\n", "&lt;", "'", "\ud800"])
def test_odd_tokens_are_shown(profile: Profile, skew: SkewReport, token: str) -> None:
    html = page(profile, skew, [HotId(0, token, 9)], [], [])
    html.encode()
    shown = _read(html).text
    assert not any(ord(c) < 32 and c != "\n" for c in shown)
    assert "\u202e" not in shown
    if token.isprintable():
        assert token in shown


def test_every_layout_has_a_row(profile: Profile, skew: SkewReport) -> None:
    html = page(profile, skew, [], [], [])
    assert html.count("<tr>") == 1 + len(skew.layouts) + 1
    for sentence in WHERE_SKEW_DOES_NOT_MATTER:
        assert sentence in _read(html).text


def test_no_tokens_and_no_steps(profile_of: ProfileOf) -> None:
    empty = profile_of([], 10)
    html = page(empty, measure_skew(empty, num_shards=4), [], [], [])
    assert "0 of 10 ids occur" in html
    assert "nan" not in html.lower()
    assert "None" not in html


def test_a_token_of_no_tokenizer_is_a_dash(profile: Profile, skew: SkewReport) -> None:
    assert "<td class='text'>–</td><td>7</td><td>9</td>" in page(profile, skew, [HotId(7, "", 9)], [], [])
