"""How values are written and read: Kafka's primitive types."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

ONES = [bytes([one]) for one in range(0x80)]
FORMS: dict[str, struct.Struct] = {}


def text(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def data_of(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def array(rows: Iterable[bytes]) -> bytes:
    rows = list(rows)
    return struct.pack(">i", len(rows)) + b"".join(rows)


def by_topic(rows: Iterable[tuple[str, bytes]]) -> bytes:
    """An array of topics, each with the array of its rows."""
    topics: dict[str, list[bytes]] = {}
    for topic, row in rows:
        topics.setdefault(topic, []).append(row)
    return array(text(topic) + array(some) for topic, some in topics.items())


def uvarint(value: int) -> bytes:
    if 0 <= value < 0x80:  # mostly
        return ONES[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def compact(value: str | bytes | None) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return b"\0" if data is None else uvarint(len(data) + 1) + data


def compact_array(rows: Iterable[bytes] | None) -> bytes:
    if rows is None:
        return b"\0"
    rows = list(rows)
    return uvarint(len(rows) + 1) + b"".join(rows)


def zigzag(data: bytes, at: int) -> tuple[int, int]:
    """A signed number at `at`, and where the next value is."""
    if (one := data[at]) < 0x80:  # mostly
        return (one >> 1) ^ -(one & 1), at + 1
    value = shift = 0
    while True:
        one = data[at]
        at += 1
        value |= (one & 0x7F) << shift
        if one < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


class Answer:
    """The body of an answer, read from its beginning."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, form: str) -> Any:
        """One value of the struct's form, or the tuple of several."""
        made = FORMS.get(form) or FORMS.setdefault(form, struct.Struct(">" + form))
        found = made.unpack_from(self.data, self.at)
        self.at += made.size
        return found if len(found) > 1 else found[0]

    def _cut(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def text(self) -> str | None:
        size = self.take("h")
        return None if size < 0 else self._cut(size).decode()

    def bytes(self) -> bytes:
        return self._cut(max(0, self.take("i")))

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            one = self.take("B")
            value |= (one & 0x7F) << shift
            if one < 0x80:
                return value
            shift += 7

    def compact(self) -> bytes | None:
        size = self.uvarint() - 1
        return None if size < 0 else self._cut(size)

    def uuid(self) -> bytes:
        return self._cut(16)

    def tags(self) -> None:
        for _ in range(self.uvarint()):
            self.uvarint()
            self.at += self.uvarint()

    def first_error(self, head: str) -> int:
        """The error of the one partition of the one topic behind `head`."""
        self.take(head)
        self.take("i")
        self.text()
        self.take("i")
        return self.take("ih")[1]
