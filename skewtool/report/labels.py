"""Token text as a label that any font, file and browser shows as it is."""

import unicodedata
from functools import cache
from typing import Any

__all__ = ["plot_label", "visible"]

_LONGEST = 24


def visible(text: str) -> str:
    """Shows white space and control characters: a space as ␣, a newline as \\n, others as \\uXXXX; cut at 24 characters."""
    return _cut([_visible_character(character) for character in text])


def _cut(shown: list[str]) -> str:
    """Joins characters and escapes, as many whole ones as fit."""
    if sum(map(len, shown)) <= _LONGEST:
        return "".join(shown)
    kept = ""
    for each in shown:
        if len(kept) + len(each) > _LONGEST - 1:
            break
        kept += each
    return kept + "…"


def _visible_character(character: str) -> str:
    named = {" ": "␣", "\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    if named is not None:
        return named
    return _escaped(character) if unicodedata.category(character)[0] in "CZ" else character


def _escaped(character: str) -> str:
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"


@cache
def _font() -> Any:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    return get_font(findfont(FontProperties()))


def plot_label(text: str) -> str:
    """`visible` text with characters that the plot's font lacks as \\uXXXX, instead of boxes and a warning for each.

    Set it with `parse_math=False`: a token may hold dollars.
    """
    shown = [_visible_character(character) for character in text]
    return _cut([each if len(each) > 1 or _font().get_char_index(ord(each)) else _escaped(each) for each in shown])
