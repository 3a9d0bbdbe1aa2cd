"""The names of all checks, and what going on after each means.

Each check ends the run with place and count. `allow` with its name (`--allow` on the command line) goes on instead, and
the profile says what was left out. Checks of files are made when a corpus is opened, checks of ids when they are counted.
"""

from collections.abc import Collection

from skewtool.errors import CorpusError

__all__ = [
    "BAD_IDS",
    "CHECKS",
    "COUNTED_TWICE",
    "IMAGES",
    "LABELS",
    "NARROW_DTYPE",
    "NESTED_LISTS",
    "SIZE",
    "WRONG_WIDTH",
    "ZERO_TAIL",
    "stop_unless_allowed",
]

BAD_IDS = "bad-ids"
COUNTED_TWICE = "counted-twice"
IMAGES = "images"
LABELS = "labels"
NARROW_DTYPE = "narrow-dtype"
NESTED_LISTS = "nested-lists"
SIZE = "size"
WRONG_WIDTH = "wrong-width"
ZERO_TAIL = "zero-tail"

CHECKS = {
    BAD_IDS: "leave out ids outside the vocabulary",
    COUNTED_TWICE: "leave out files that hold the tokens of another one again",
    IMAGES: "leave out the images of multimodal pairs",
    LABELS: "leave out files of labels, rewards and masks",
    NARROW_DTYPE: "count a type that cannot hold the whole vocabulary",
    NESTED_LISTS: "flatten lists of lists of ids",
    SIZE: "count the whole tokens that are there",
    WRONG_WIDTH: "count ids that look like halves of wider ones",
    ZERO_TAIL: "leave out the zeros at the end",
}
"""Each check and what allowing it does."""


def stop_unless_allowed(check: str, problem: str, allow: Collection[str]) -> None:
    """Raises CorpusError with `problem` and the way out, unless `check` is allowed."""
    if check not in allow:
        raise CorpusError(f"{problem}; or pass --allow {check} to {CHECKS[check]}")
