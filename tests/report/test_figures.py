"""Figures: odd tokens and names, empty and large profiles, and no global state."""

import struct
from collections.abc import Callable

import matplotlib
import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.patches import StepPatch

from skewtool import Profile, measure_skew, partition
from skewtool.report import figures
from skewtool.sharding import Load
from skewtool.skew import Ageing

ProfileOf = Callable[..., Profile]
Tokens = Callable[..., npt.NDArray[np.int64]]

ODD = ["$$", "$x_", "\\frac{", "_", "^", "%", "的", "한", "🙂", "<script>", '"', ",", "\x00", "\x1b", "\u202e", "\n", " ",
       "&amp;", "${", "{}"]  # fmt: skip

MOST_BYTES = 2_000_000


@pytest.fixture(scope="module")
def profile(profile_of: ProfileOf, zipf_tokens: Tokens) -> Profile:
    return profile_of(zipf_tokens(1280, 60), 60)


def _check_png(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    assert len(png) < MOST_BYTES
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_odd_tokens_are_drawn_as_they_are(profile: Profile) -> None:
    figure = figures.hottest_ids(profile, ODD, list(range(len(ODD))))
    _check_png(figures.render(figure, "png"))
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[:3] == ["$$  0", "$x_  1", "\\frac{  2"]
    assert labels[6] == "\\u7684  6"
    assert labels[9] == "<script>  9"


@pytest.mark.parametrize("token", ["的" * 24, "🙂" * 24, "W" * 24, "\x00" * 24])
def test_long_tokens_leave_room_for_the_bars(profile: Profile, token: str) -> None:
    figure = figures.hottest_ids(profile, [token, "a"], [0, 1])
    _check_png(figures.render(figure, "png"))
    assert figure.axes[0].get_position().width > 0.2


def test_tokens_of_no_tokenizer_are_ids(profile: Profile) -> None:
    figure = figures.hottest_ids(profile, ["", ""], [7, 3])
    figures.render(figure, "png")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["7", "3"]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["$$", "$x$", "\\frac{", "a$b_c$", "<b>", "%"], id="markup"),
        pytest.param(["的", "🙂"], id="no glyph"),
        pytest.param(["_mine"], id="underscore"),
        pytest.param(["m" * 120], id="long"),
    ],
)
def test_odd_names_of_maps_are_in_the_legend(profile: Profile, names: list[str]) -> None:
    report = measure_skew(profile, {name: partition(profile, 2) for name in names}, against=["strided"])
    figure = figures.load_per_shard(report)
    _check_png(figures.render(figure, "png"))
    (legend,) = figure.legends
    assert len(legend.get_texts()) == len(names) + 1  # a name must not vanish because of how it begins
    assert "strided" in [text.get_text() for text in legend.get_texts()]


@pytest.mark.parametrize("num_shards", [1, 512])
def test_loads_of_one_and_of_many_shards(profile: Profile, num_shards: int) -> None:
    report = measure_skew(profile, num_shards=num_shards)
    _check_png(figures.render(figures.load_per_shard(report), "png"))
    _check_png(figures.render(figures.step_imbalance(report), "png"))


@pytest.mark.parametrize("loads", [("unique", "raw"), ("raw",)])
def test_over_the_corpus_each_layout_is_a_step_for_each_block(loads: tuple[Load, ...]) -> None:
    layouts = {"$mine$": np.array([1.0, 1.2, 1.3]), "contiguous": np.array([4.0, 4.1, 3.9])}
    ageing = Ageing(np.array([50, 30, 20]), np.array([0, 0.1, 0.2]), dict.fromkeys(loads, layouts))
    figure = figures.over_corpus(ageing)
    _check_png(figures.render(figure, "png"))
    unique, raw, drift = figure.axes
    assert len(unique.patches) == (2 if "unique" in loads else 0)
    values = [patch.get_data() for patch in raw.patches if isinstance(patch, StepPatch)]
    assert [each[0].tolist() for each in values] == [pytest.approx([0.001, 0.2, 0.3]), pytest.approx([3, 3.1, 2.9])]
    assert [each[1].tolist() for each in values] == [[0, 0.5, 0.8, 1]] * 2
    assert len(drift.patches) == 1
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["$mine$", "contiguous"]


def test_over_a_corpus_of_one_block_where_all_is_even() -> None:
    ageing = Ageing(np.array([50]), np.zeros(1), {"unique": {"m": np.ones(1)}, "raw": {"m": np.ones(1)}})
    figure = figures.over_corpus(ageing)
    _check_png(figures.render(figure, "png"))
    assert figure.get_suptitle() == "Over the corpus: 50 tokens in 1 block"


def test_no_tokens(profile_of: ProfileOf) -> None:
    empty = profile_of([], 50)
    report = measure_skew(empty, num_shards=4)
    made = [
        figures.rank_frequency(empty), figures.lorenz_curve(empty), figures.hottest_ids(empty, [], []),
        figures.load_per_shard(report), figures.step_imbalance(report),
    ]  # fmt: skip
    for figure in made:
        _check_png(figures.render(figure, "png"))
    assert "50 never" in made[0].get_suptitle()


@pytest.mark.parametrize("vocab_size", [1, 2, 100])
def test_a_single_token(profile_of: ProfileOf, vocab_size: int) -> None:
    single = profile_of([0], vocab_size)
    for figure in (figures.rank_frequency(single), figures.lorenz_curve(single), figures.hottest_ids(single, ["x"], [0])):
        _check_png(figures.render(figure, "png"))
    assert f"{vocab_size - 1:,} never" in figures.rank_frequency(single).get_suptitle()


def test_ids_that_never_occur_are_told_and_not_drawn(profile: Profile) -> None:
    figure = figures.rank_frequency(profile)
    figures.render(figure, "png")
    seen = profile.num_distinct
    assert f"1,280 tokens, {seen} of 60 ids occur, {60 - seen} never" in figure.get_suptitle()
    drawn = np.asarray(figure.axes[0].lines[0].get_ydata())
    assert drawn.size == seen
    assert (drawn > 0).all()


def test_a_large_vocabulary_is_thinned(profile_of: ProfileOf) -> None:
    large = profile_of(np.repeat(np.arange(100_000), 100_000 // np.arange(1, 100_001)), 256_000, windows=())
    for figure in (figures.rank_frequency(large), figures.lorenz_curve(large)):
        for line in figure.axes[0].lines:
            assert np.asarray(line.get_xdata()).size <= 2000
        width, height = _check_png(figures.render(figure, "png"))
        assert width > 600
        assert height > 300


def test_the_same_figure_gives_the_same_bytes(profile: Profile) -> None:
    for kind in ("png", "svg"):
        first, second = (figures.render(figures.hottest_ids(profile, ["a"], [0]), kind) for _ in range(2))
        assert first == second


def test_settings_of_the_user_do_not_break_or_change(profile: Profile) -> None:
    with matplotlib.rc_context({"text.usetex": True, "text.parse_math": True}):
        figure = figures.hottest_ids(profile, ["$$", "\\frac{"], [0, 1])
        _check_png(figures.render(figure, "png"))
        assert matplotlib.rcParams["text.usetex"] is True


def test_drawing_leaves_all_settings_alone(profile: Profile) -> None:
    before = dict(matplotlib.rcParams)
    figures.render(figures.rank_frequency(profile), "svg")
    assert dict(matplotlib.rcParams) == before
