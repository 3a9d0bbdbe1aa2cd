"""`RangedFile`: a remote object as a file, of which only what is read is fetched."""

import io
from collections.abc import Callable
from typing import Any

__all__ = ["RangedFile"]

_SMALLEST, _LARGEST = 1 << 16, 1 << 23
_NEAR = 1 << 20  # to be read takes no longer than another request

Fetch = Callable[[int, int], bytes]


class RangedFile(io.RawIOBase):
    """Bytes [0, `size`) of what `fetch(begin, end)` gives ranges of.

    Requests begin with 64 KiB and double, up to 8 MiB, as long as reading goes on where the last request ended, or up to 1
    MiB after it: a look at a header or at a footer stays small, and reading through takes few requests.
    """

    def __init__(self, fetch: Fetch, size: int) -> None:
        self._fetch = fetch
        self._size = size
        self._position = 0
        self._request = _SMALLEST
        self._held = memoryview(b"")
        self._held_from = 0
        self._expected = range(0)

    def expect(self, begin: int, end: int) -> None:
        """Bytes [begin, end) will be read, all of them: requests in them are large at once and do not go on after them."""
        self._expected = range(begin, end)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if position < 0:
            raise OSError(f"cannot seek to byte {position}")
        self._position = position
        return position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._position)
        if wanted <= 0:
            return 0
        within = self._position - self._held_from
        if not 0 <= within < len(self._held):
            self._hold(wanted)
            within = 0
        found = self._held[within : within + wanted]
        buffer[: len(found)] = found
        self._position += len(found)
        return len(found)

    def _hold(self, wanted: int) -> None:
        """Fetches what lies at the position, and some more."""
        if self._held:
            goes_on = 0 <= self._position - self._held_from - len(self._held) <= _NEAR
            self._request = min(2 * self._request, _LARGEST) if goes_on else _SMALLEST
        more, limit = self._request, self._size
        if self._position in self._expected:
            more, limit = _LARGEST, min(self._expected.stop, self._size)
        end = max(self._position + wanted, min(self._position + more, limit))
        self._held = memoryview(self._fetch(self._position, end))
        self._held_from = self._position
