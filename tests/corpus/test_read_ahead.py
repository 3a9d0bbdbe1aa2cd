"""Reading ahead: the same items in the same order, errors in their place, and no thread that stays."""

import os
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from skewtool.corpus import open_corpus
from skewtool.corpus.read_ahead import Advice, read_ahead


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


class Counter:
    """Numbers up to a failure; knows how many were made, and whether it was closed."""

    def __init__(self, last: int = 1_000_000, failure: BaseException | None = None) -> None:
        self.made = 0
        self.closed_by: str | None = None
        self.items = self._items(last, failure)

    def _items(self, last: int, failure: BaseException | None) -> Iterator[int]:
        try:
            for number in range(last):
                self.made += 1
                yield number
            if failure is not None:
                raise failure
        finally:
            self.closed_by = threading.current_thread().name


@pytest.mark.parametrize("size", [0, 1, 2, 3, 100])
def test_the_same_items(size: int) -> None:
    assert list(read_ahead(iter(range(size)))) == list(range(size))


@pytest.mark.parametrize("size", [0, 1, 5])
@pytest.mark.parametrize("failure", [ValueError("bad"), KeyboardInterrupt(), MemoryError()])
def test_an_error_comes_after_the_items_before_it(size: int, failure: BaseException) -> None:
    items = read_ahead(Counter(size, failure).items)
    assert list(islice(items, size)) == list(range(size))
    with pytest.raises(type(failure)) as raised:
        next(items)
    assert raised.value is failure


@pytest.mark.parametrize("taken", [1, 2, 3, 10])
def test_an_iteration_that_is_given_up_ends_the_thread(taken: int) -> None:
    counter = Counter()
    items = read_ahead(counter.items)
    assert list(islice(items, taken)) == list(range(taken))
    items.close()
    assert taken <= counter.made <= taken + 3
    assert counter.closed_by == "skewtool read ahead"


def test_some_items_are_made_before_they_are_asked_for() -> None:
    counter = Counter()
    items = read_ahead(counter.items)
    assert next(items) == 0
    until = time.monotonic() + 10
    while counter.made < 4 and time.monotonic() < until:
        time.sleep(0.001)
    assert counter.made == 4
    time.sleep(0.02)
    assert counter.made == 4
    items.close()


def test_nothing_is_made_before_the_first_is_asked_for() -> None:
    counter = Counter()
    read_ahead(counter.items).close()
    assert counter.made == 0


def test_advice_covers_what_is_read_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda descriptor, begin, length, advice: told.append((begin, length)))
    advice = Advice(0, 100, 100 + (20 << 20))
    for position in range(100, 100 + (20 << 20), 1 << 20):
        advice.at(position)
        assert told[-1][0] + told[-1][1] >= min(position + (8 << 20), 100 + (20 << 20))
    assert told == [(100 + (step << 20), 8 << 20) for step in (0, 8, 16)]


@pytest.mark.parametrize("advise", [None, OSError("no advice here")])
def test_a_platform_without_advice_reads_the_same(
    advise: Exception | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: int) -> None:
        assert advise is not None
        raise advise

    if advise is None:
        monkeypatch.delattr(os, "posix_fadvise", raising=False)
    else:
        monkeypatch.setattr(os, "posix_fadvise", refuse)
    np.save(tmp_path / "a.npy", np.arange(70_000, dtype=np.uint32))
    assert [int(block.sum()) for block in open_corpus(tmp_path / "a.npy").blocks(50_000)] == [
        sum(range(50_000)), sum(range(50_000, 70_000)),
    ]  # fmt: skip
