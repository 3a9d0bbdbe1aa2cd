"""Token text as labels: nothing invisible, nothing that a font lacks."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool.report.labels import plot_label, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("the", "the"),
        (" the", "␣the"),
        ("\n", "\\n"),
        ("\r\n\t", "\\r\\n\\t"),
        ("\x00", "\\u0000"),
        ("\x1b[31m", "\\u001b[31m"),
        ("\x7f", "\\u007f"),
        ("\u00a0", "\\u00a0"),
        ("\u202e", "\\u202e"),  # right to left from here on
        ("\u200b", "\\u200b"),
        ("\ufeff", "\\ufeff"),
        ("\ud800", "\\ud800"),
        ("\ue000", "\\ue000"),
        ("\U000e0001", "\\U000e0001"),
        ("的", "的"),
        ("🙂", "🙂"),
        ("$$", "$$"),
        ("\\frac{", "\\frac{"),
        ("<script>", "<script>"),
    ],
)
def test_what_a_reader_sees(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_long_text_is_cut() -> None:
    assert visible("a" * 24) == "a" * 24
    assert visible("a" * 25) == "a" * 23 + "…"
    assert visible("\n" * 1000) == "\\n" * 11 + "…", "an escape is never cut in two"


@given(st.text(max_size=40))
def test_nothing_invisible_is_left(text: str) -> None:
    shown = visible(text)
    assert len(shown) <= 24
    assert all(unicodedata.category(character)[0] not in "CZ" for character in shown)
    shown.encode()


@pytest.mark.parametrize(
    ("text", "shown"),
    [("的", "\\u7684"), ("한", "\\ud55c"), ("🙂", "\\U0001f642"), ("é$_^%", "é$_^%"), ("a 的", "a␣\\u7684"), ("", "")],
)
def test_characters_without_a_glyph_are_written_out(text: str, shown: str) -> None:
    assert plot_label(text) == shown


@given(st.text(max_size=30))
def test_labels_hold_only_what_the_font_has(text: str) -> None:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    font = get_font(findfont(FontProperties()))
    assert all(font.get_char_index(ord(character)) for character in plot_label(text))
