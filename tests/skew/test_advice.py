"""The sentences of a plan: when each is said, and when not."""

import pytest

from skewtool.skew import LayoutPlan
from skewtool.skew.advice import advise, human_bytes

NAMES = (
    "contiguous all-reduce", "contiguous routed", "strided routed", "balanced routed", "balanced with copies",
    "hidden distinct",
)  # fmt: skip


def _layouts(**moved: int) -> dict[str, LayoutPlan]:
    """Layouts that move so many bytes, 1,000 where nothing is said."""
    return {
        name: LayoutPlan(name, 10, 10, True, 0, 0, 0, moved.get(name.replace(" ", "_").replace("-", "_"), 1000), 0)
        for name in NAMES
    }


def _advice(best: str, **moved: int) -> str:
    layouts = _layouts(**moved)
    return "\n".join(advise(list(layouts.values()), layouts[best], None, None, 0.0, 5))


def test_a_small_saving_is_not_worth_a_map() -> None:
    assert (
        "all-reduce is fine for you: it moves 1000 bytes per lookup step; balanced routed, the best, saves 9.9%"
        in _advice("balanced routed", balanced_routed=901)
    )
    assert _advice("balanced routed", balanced_routed=900).startswith(
        "Take balanced routed: its busiest rank moves 900 bytes"
    )


def test_hidden_is_called_as_good_within_5_percent() -> None:
    said = _advice("balanced routed", balanced_routed=100, hidden_distinct=105)
    assert "hidden with distinct ids is as good (5.0% more bytes)" in said
    assert "the LM head is not tied" in said
    assert "hidden with distinct" not in _advice("balanced routed", balanced_routed=100, hidden_distinct=106)


def test_where_hidden_is_best_a_layout_for_tied_heads_is_named() -> None:
    said = _advice("hidden distinct", hidden_distinct=100, balanced_routed=110)
    assert "hidden distinct is for you only if the LM head is not tied" in said
    assert "otherwise take balanced routed, which moves 10.0% more" in said


def test_strided_needs_no_map_file() -> None:
    assert "strided routed is as good on this text (3.0% more" in _advice(
        "balanced routed", balanced_routed=100, strided_routed=103
    )
    assert "strided routed is as good" not in _advice("balanced routed", balanced_routed=100, strided_routed=106)
    assert "strided routed is as good" not in _advice("strided routed", balanced_routed=101, strided_routed=100)


def test_copies_pay_or_do_not() -> None:
    layouts = _layouts(balanced_routed=100, balanced_with_copies=120)
    (said,) = [
        each for each in advise(list(layouts.values()), layouts["balanced routed"], 2, None, 0.5, 1) if "copy" in each
    ]
    assert "With 2 lookups per update a copy pays for its gradient if its id is in 50.00% of the windows or more" in said
    assert "as 1 id is." in said
    assert "do not pay: they cost 20.0%" in said
    assert "pay: they save 10.0%" in _advice("balanced with copies", balanced_routed=100, balanced_with_copies=90)


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1536, "1.5 KiB"),
        (2**21, "2.0 MiB"),
        (3 * 2**30, "3.0 GiB"),
        (2**50, "1,024.0 TiB"),
    ],
)
def test_human_bytes(number: int, expected: str) -> None:
    assert human_bytes(number) == expected
