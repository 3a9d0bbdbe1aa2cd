"""Reads in flight while counting: of a remote file a thread reads the next blocks, of a local one the kernel, on advice."""

import os
import queue
import threading
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from skewtool.corpus.locations import is_remote

__all__ = ["Advice", "in_flight", "read_ahead"]

_ITEMS_AHEAD = 2
_BYTES_AHEAD = 1 << 23

T = TypeVar("T")


class Advice:
    """Tells the kernel which bytes of an open local file, up to `end`, will be read soon; it then reads them meanwhile."""

    def __init__(self, descriptor: int, begin: int, end: int) -> None:
        self._descriptor = descriptor
        self._told = begin
        self._end = end if hasattr(os, "posix_fadvise") else begin

    def at(self, position: int) -> None:
        """When reading has come to `position`: 8 MiB from there on are always told, in steps of as many."""
        while self._told < min(position + _BYTES_AHEAD, self._end):
            with suppress(OSError):  # some file systems take no advice
                os.posix_fadvise(self._descriptor, self._told, _BYTES_AHEAD, os.POSIX_FADV_WILLNEED)
            self._told += _BYTES_AHEAD


def in_flight(path: Path, blocks: Iterator[T]) -> Iterator[T]:
    """The blocks of `path`, as they are; those of a remote file by `read_ahead`."""
    return read_ahead(blocks) if is_remote(path) else blocks


def read_ahead(items: Iterator[T]) -> Generator[T, None, None]:
    """The same items, of which a thread makes up to three (one of them in its hands) before they are asked for.

    What `items` raises is raised here, in its place. The thread ends with the iteration, also with one that is given up.
    """
    # Two, so that a thread whose items no one takes any more can put in the one in its hands, and the end.
    waiting: queue.Queue[T | _End] = queue.Queue(_ITEMS_AHEAD)
    given_up = threading.Event()
    thread = threading.Thread(target=_make, args=(items, waiting, given_up), name="skewtool read ahead")
    thread.start()
    try:
        while not isinstance(item := waiting.get(), _End):
            yield item
        if item.error is not None:
            raise item.error
    finally:
        given_up.set()
        with suppress(queue.Empty):
            while True:
                waiting.get_nowait()
        thread.join()


class _End:
    """After the last item, with what ended them too early."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def _make(items: Iterator[T], waiting: "queue.Queue[T | _End]", given_up: threading.Event) -> None:
    try:
        for item in items:
            waiting.put(item)
            if given_up.is_set():
                break
        if isinstance(items, Generator):
            items.close()  # here, where it has run: it may hold a file
        waiting.put(_End())
    except BaseException as error:
        waiting.put(_End(error))
