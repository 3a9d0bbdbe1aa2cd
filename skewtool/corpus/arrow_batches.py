"""Where the record batches of an Arrow IPC file or stream lie, and the buffers of one column in them, from metadata alone.

Layout (format/Message.fbs, Schema.fbs): a file is ``ARROW1\\0\\0``, a stream, and a footer. A stream is messages, each ff ff
ff ff; i32 size of the metadata, 0 at the end; the metadata, a flatbuffer Message; the body. The metadata of a record batch
list nodes (length, nulls) and buffers (offset in the body, length) of all columns, in the schema's order, parents first.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

__all__ = ["Batch", "find_batches"]

_CONTINUATION = b"\xff\xff\xff\xff"
_MAGIC_BYTES = 8
_RECORD_BATCH = 3

Pairs = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Batch:
    """`head` is the message up to its body, which has `num_bytes` from byte `body` of the file on. `nodes` and `buffers` are
    those of the column; all buffers of the batch where it is `compressed`, since then they are decoded together."""

    head: bytes
    body: int
    num_bytes: int
    nodes: Pairs
    buffers: Pairs
    compressed: bool

    @property
    def begin(self) -> int:
        """The first byte of the file that decoding the column needs."""
        return self.body + min((offset for offset, length in self.buffers if length), default=0)

    @property
    def end(self) -> int:
        """The byte after the last one that decoding the column needs."""
        return self.body + max((offset + length for offset, length in self.buffers if length), default=0)


def find_batches(file: BinaryIO, is_stream: bool, schema: Any, column: int, types: Any) -> list[Batch] | None:
    """The record batches of an open file, for the column of that number; `types` is pyarrow's module of that name.

    None where they cannot be told apart so: columns before it have buffers that depend on more than the type, there are
    dictionaries, or the file is older than the layout above. Errors: ValueError for a damaged file.
    """
    before = [_layout(field.type, types) for field in list(schema)[: column + 1]]
    if None in before or any("dictionary" in str(field.type) for field in schema):  # also within lists
        return None
    known = [each for each in before if each is not None]
    ends = [(sum(nodes for nodes, _ in known[:count]), sum(buffers for _, buffers in known[:count]))
            for count in (column, column + 1)]  # fmt: skip
    batches: list[Batch] = []
    for number, (head, body, num_bytes) in enumerate(_messages(file, 0 if is_stream else _MAGIC_BYTES, is_stream)):
        if head is None:
            return None
        if number:  # the first is the schema
            batches.append(_batch(head, body, num_bytes, *ends))
    return batches


def _layout(kind: Any, types: Any) -> tuple[int, int] | None:
    """The numbers of nodes and of buffers of a column; None for types that are not so simple."""
    children: list[Any] = []
    if types.is_null(kind):
        own = 0
    elif types.is_list(kind) or types.is_large_list(kind):
        own, children = 2, [kind.value_type]
    elif types.is_fixed_size_list(kind):
        own, children = 1, [kind.value_type]
    elif types.is_struct(kind):
        own, children = 1, [field.type for field in kind.fields]
    elif any(test(kind) for test in (types.is_string, types.is_binary, types.is_large_string, types.is_large_binary)):
        own = 3
    elif types.is_primitive(kind) or types.is_decimal(kind) or types.is_fixed_size_binary(kind):
        own = 2
    else:
        return None
    below = [_layout(child, types) for child in children]
    if None in below:
        return None
    return 1 + sum(each[0] for each in below if each), own + sum(each[1] for each in below if each)


def _messages(file: BinaryIO, position: int, is_stream: bool) -> Iterator[tuple[bytes | None, int, int]]:
    """(message up to its body, first byte of the body, its bytes) up to the end; None for a message of another layout."""
    size = file.seek(0, 2)
    while position < size:
        file.seek(position)
        prefix = file.read(8)
        if prefix[:4] != _CONTINUATION:
            yield None, position, 0
            return
        length = int.from_bytes(prefix[4:], "little", signed=True)
        if len(prefix) < 8 or not 0 <= length <= size - position - 8:
            raise ValueError(f"the message at byte {position} is cut off")
        if length == 0:
            if is_stream and position + 8 != size:
                raise ValueError(f"it goes on after its end, from byte {position + 8} of {size}")
            return
        head = prefix + file.read(length)
        body = position + 8 + length
        num_bytes = _Table.root(head).number(3, "<q")
        if not 0 <= num_bytes <= size - body:
            raise ValueError(f"the message at byte {position} is cut off")
        yield head, body, num_bytes
        position = body + num_bytes


def _batch(head: bytes, body: int, num_bytes: int, first: tuple[int, int], last: tuple[int, int]) -> Batch:
    """The batch in a message, with nodes and buffers from `first` to `last`."""
    message = _Table.root(head)
    if message.number(1, "<B") != _RECORD_BATCH:
        raise ValueError(f"the message before byte {body} is no record batch")
    described = message.table(2)
    nodes, buffers = described.pairs(1), described.pairs(2)
    compressed = described.place(3) is not None
    if len(nodes) < last[0] or len(buffers) < last[1]:
        raise ValueError("a record batch has fewer columns than the schema")
    if not all(offset >= 0 and length >= 0 and offset + length <= num_bytes for offset, length in buffers):
        raise ValueError("a buffer of a record batch lies outside it")
    chosen = buffers if compressed else buffers[first[1] : last[1]]
    return Batch(head, body, num_bytes, nodes[first[0] : last[0]], chosen, compressed)


class _Table:
    """A table of a flatbuffer. What points outside it raises ValueError."""

    def __init__(self, content: bytes, position: int) -> None:
        self._content = content
        self._position = position

    @classmethod
    def root(cls, head: bytes) -> "_Table":
        """The one that begins after the eight bytes before the metadata."""
        return cls(head, 8 + _unpacked("<I", head, 8))

    def place(self, field: int) -> int | None:
        """Where the value of a field is; None where it has the default."""
        entries = self._position - _unpacked("<i", self._content, self._position)
        if 4 + 2 * field >= _unpacked("<H", self._content, entries):
            return None
        offset = _unpacked("<H", self._content, entries + 4 + 2 * field)
        return self._position + offset if offset else None

    def number(self, field: int, kind: str) -> int:
        place = self.place(field)
        return 0 if place is None else _unpacked(kind, self._content, place)

    def table(self, field: int) -> "_Table":
        place = self.place(field)
        if place is None:
            raise ValueError("a message has no content")
        return _Table(self._content, place + _unpacked("<I", self._content, place))

    def pairs(self, field: int) -> Pairs:
        """A list of structs of two 64-bit numbers."""
        place = self.place(field)
        if place is None:
            return ()
        begin = place + _unpacked("<I", self._content, place)
        count = _unpacked("<I", self._content, begin)
        if begin + 4 + 16 * count > len(self._content):
            raise ValueError("the metadata of a message are cut off")
        return tuple(struct.iter_unpack("<qq", self._content[begin + 4 : begin + 4 + 16 * count]))


def _unpacked(kind: str, content: bytes, place: int) -> int:
    try:
        if place < 0:
            raise ValueError("the metadata of a message are damaged")
        (value,) = struct.unpack_from(kind, content, place)
    except struct.error:
        raise ValueError("the metadata of a message are damaged") from None
    return int(value)
