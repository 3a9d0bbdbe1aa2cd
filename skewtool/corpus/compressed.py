"""Files that may be compressed with gzip or zstd, read as the bytes within.

Both formats say where their data end (and gzip and zstd may carry checksums); a file that is cut off is an error at its
end, never a shorter file.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from skewtool.errors import CorpusError

__all__ = ["decompressed", "open_decompressed", "zstd_library"]

_GZIP, _ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"
_CHUNK_BYTES = 1 << 20


def zstd_library() -> Any:
    """The zstandard package. Errors: CorpusError with the command that installs it."""
    try:
        import zstandard
    except ImportError:
        raise CorpusError("zstd-compressed files need zstandard: pip install 'skewtool[arrow]'") from None
    return zstandard


class _ZstdFile(io.RawIOBase):
    """The bytes in all frames of a zstd file. Errors: EOFError when the last frame is not complete."""

    def __init__(self, file: BinaryIO) -> None:
        self._library = zstd_library()
        self._file = file
        self._frame = self._library.ZstdDecompressor().decompressobj()
        self._began = False
        self._waiting = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready:
            compressed = self._waiting or self._file.read(_CHUNK_BYTES)
            self._waiting = b""
            if not compressed:
                if self._began:
                    raise EOFError("the last zstd frame is cut off")
                return 0
            self._decompress(compressed)
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _decompress(self, compressed: bytes) -> None:
        try:
            self._ready = memoryview(self._frame.decompress(compressed))
        except self._library.ZstdError as error:
            raise OSError(str(error)) from None
        self._began = not self._frame.eof
        if self._frame.eof:
            self._waiting = self._frame.unused_data
            self._frame = self._library.ZstdDecompressor().decompressobj()


@contextmanager
def open_decompressed(path: Path) -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Gives (the bytes within, the file itself, whose `tell` says how much of it is used up).

    Errors: CorpusError when the file cannot be read, is damaged or cut off, also while the caller reads.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(0)
            if head.startswith(_GZIP):
                yield gzip.GzipFile(fileobj=file, mode="rb"), file  # type: ignore[misc]
            elif head == _ZSTD:
                yield io.BufferedReader(_ZstdFile(file), _CHUNK_BYTES), file
            else:
                yield file, file
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def decompressed(path: Path, most_bytes: int) -> bytes:
    """The first `most_bytes` within. Errors: CorpusError as `open_decompressed`."""
    with open_decompressed(path) as (stream, _):
        return stream.read(most_bytes)
