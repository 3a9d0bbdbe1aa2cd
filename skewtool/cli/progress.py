"""The progress bar of long work, on stderr and only at a terminal."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

__all__ = ["Meter", "progress"]


class Meter:
    """Moves a progress bar from any thread and remembers when the first bytes came, which is after all start-up."""

    def __init__(self, bar: Any) -> None:
        self._bar = bar
        self._lock = threading.Lock()
        self._started = time.perf_counter()
        self._moving = False

    def __call__(self, count: int) -> None:
        with self._lock:
            if not self._moving:
                self._started, self._moving = time.perf_counter(), True
            self._bar.update(count)

    def seconds(self) -> float:
        """Since the first bytes."""
        return time.perf_counter() - self._started


@contextmanager
def progress(label: str, num_bytes: int) -> Iterator[Meter]:
    """A bar with remaining time on stderr; nothing when that is no terminal."""
    with click.progressbar(
        length=num_bytes, label=label, file=sys.stderr, show_pos=False, hidden=not sys.stderr.isatty(), update_min_steps=1
    ) as bar:
        yield Meter(bar)
