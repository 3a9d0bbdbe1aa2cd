"""A file of ranges: the bytes of a real file, whatever is read in whatever order, in few requests."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skewtool.corpus.ranged_file import RangedFile

MIB = 1 << 20


class Store:
    """Bytes, and which of them were asked for."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.ranges: list[tuple[int, int]] = []

    def fetch(self, begin: int, end: int) -> bytes:
        assert 0 <= begin < end <= len(self.content)
        self.ranges.append((begin, end))
        return self.content[begin:end]

    def open(self) -> RangedFile:
        return RangedFile(self.fetch, len(self.content))


@given(
    size=st.integers(0, 300_000),
    steps=st.lists(st.tuples(st.integers(0, 350_000), st.integers(0, 2), st.integers(0, 200_000)), max_size=12),
    expected=st.tuples(st.integers(0, 300_000), st.integers(0, 300_000)),
)
def test_reads_as_a_file(size: int, steps: list[tuple[int, int, int]], expected: tuple[int, int]) -> None:
    content = bytes(index * 7 % 251 for index in range(size))
    store, twin = Store(content), io.BytesIO(content)
    raw = store.open()
    raw.expect(*expected)
    file = io.BufferedReader(raw, 1 << 16)
    for offset, whence, count in steps:
        offset = max(offset - size, -size) if whence == io.SEEK_END else offset
        assert file.seek(offset, whence) == twin.seek(offset, whence)
        assert file.read(count) == twin.read(count)
        assert file.tell() == twin.tell()
    file.seek(0)
    assert file.read() == content


def test_requests_grow_while_reading_goes_on() -> None:
    store = Store(bytes(40 * MIB))
    file = io.BufferedReader(store.open(), 1 << 16)
    while file.read(100_000):
        pass
    sizes = [end - begin for begin, end in store.ranges]
    assert sum(sizes) == 40 * MIB
    assert sizes[0] < MIB
    assert max(sizes) == 8 * MIB
    assert len(sizes) <= 13


def test_a_look_here_and_there_stays_small() -> None:
    store = Store(bytes(40 * MIB))
    file = io.BufferedReader(store.open(), 1 << 16)
    for place in range(0, 40 * MIB, 4 * MIB):
        file.seek(place)
        file.read(100)
    assert [end - begin for begin, end in store.ranges] == [1 << 16] * 10


def test_what_is_expected_is_fetched_at_once_and_nothing_after_it() -> None:
    store = Store(bytes(40 * MIB))
    file = store.open()
    file.expect(5, 20 * MIB)
    file.seek(5)
    wanted = 20 * MIB - 5
    while wanted:
        wanted -= len(file.read(min(wanted, MIB)))
    assert store.ranges == [(5, 8 * MIB + 5), (8 * MIB + 5, 16 * MIB + 5), (16 * MIB + 5, 20 * MIB)]


def test_no_place_before_the_beginning() -> None:
    with pytest.raises(OSError, match="byte -1"):
        Store(b"abc").open().seek(-4, io.SEEK_END)
