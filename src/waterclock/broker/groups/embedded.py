"""What consumers of the classic protocol tell each other through the broker: subscriptions and assignments, in bytes.

    message         version  holds
    subscription    0        topics, the assignor's own bytes
                    1        besides that what it reads: what it has not let go of
                    2, 3     besides that its generation, its rack
    assignment      0 to 3   partitions by topic, the assignor's own bytes

Rule 1: a newer version begins as the newest known here does.
Rule 2: what cannot be read is None: whoever asks must not guess.
Source: ConsumerProtocolSubscription and ConsumerProtocolAssignment of Kafka's clients; KIP-429, KIP-792, KIP-881.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from waterclock.broker.wire.fields import INT16, INT32

OWNED, GENERATION, RACK = 1, 2, 3  # versions from which on a subscription says them
NEWEST: Final = 3
NamedPartition: TypeAlias = "tuple[str, int]"  # topic, partition


class Subscription(NamedTuple):
    """What a consumer says of itself in JoinGroup. `owned` is what it still reads."""

    version: int
    topics: frozenset[str]
    owned: tuple[NamedPartition, ...] = ()
    rack: str | None = None


class Assignment(NamedTuple):
    """What a consumer is given. `own` are bytes that only the assignor of the group's leader knows."""

    parts: tuple[NamedPartition, ...]
    own: bytes = b""


class _Bytes:
    """Reads fields one after the other. ValueError if there is less than it takes."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def int16(self) -> int:
        return int(INT16.unpack(self.some(2))[0])

    def int32(self) -> int:
        return int(INT32.unpack(self.some(4))[0])

    def count(self) -> range:
        return range(self.int32())

    def some(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if size < 0 or len(part) != size:
            raise ValueError(f"{size} bytes are wanted, {len(part)} are there")
        self._at += size
        return part

    def text(self) -> str:
        return self.some(self.int16()).decode()

    def text_or_none(self) -> str | None:
        size = self.int16()
        return None if size < 0 else self.some(size).decode()

    def bytes_or_none(self) -> bytes | None:
        size = self.int32()
        return None if size < 0 else self.some(size)

    def parts(self) -> tuple[NamedPartition, ...]:
        found: list[NamedPartition] = []
        for _ in self.count():
            topic = self.text()
            found.extend((topic, self.int32()) for _ in self.count())
        return tuple(found)


def read_subscription(data: bytes) -> Subscription | None:
    """A subscription with all that its version says; None if it cannot be read."""
    fields = _Bytes(data)
    try:
        version = fields.int16()
        topics = frozenset([fields.text() for _ in fields.count()])
        fields.bytes_or_none()
        owned = fields.parts() if version >= OWNED else ()
        if version >= GENERATION:
            fields.int32()
        rack = fields.text_or_none() if version >= RACK else None
    except ValueError:  # UnicodeDecodeError is one
        return None
    return None if version < 0 else Subscription(version, topics, owned, rack or None)


def subscribed_topics(data: bytes) -> frozenset[str] | None:
    """The topics that a consumer's metadata names; None if it cannot be read.

    Every version of it begins as the first does: version, topics. The rest is for other consumers.

    >>> sorted(subscribed_topics(bytes.fromhex("0000 00000002 0001 61 0001 62 ffffffff")))
    ['a', 'b']
    """
    fields = _Bytes(data)
    try:
        fields.int16()
        return frozenset([fields.text() for _ in fields.count()])
    except ValueError:
        return None


def read_assignment(data: bytes) -> Assignment | None:
    """An assignment; None if it cannot be read. No bytes at all are no partitions."""
    fields = _Bytes(data)
    try:
        if not data:
            return Assignment(())
        if fields.int16() < 0:
            return None
        return Assignment(fields.parts(), fields.bytes_or_none() or b"")
    except ValueError:
        return None


def written_assignment(parts: Iterable[NamedPartition], version: int) -> bytes:
    """An assignment for a consumer whose subscription has this version.

    >>> read_assignment(written_assignment([("a", 1), ("b", 0), ("a", 0)], 1)).parts
    (('a', 0), ('a', 1), ('b', 0))
    """
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(parts):
        numbers.setdefault(topic, []).append(number)
    data = INT16.pack(min(version, NEWEST)) + INT32.pack(len(numbers))
    for topic, some in numbers.items():
        name = topic.encode()
        data += INT16.pack(len(name)) + name + struct.pack(f">i{len(some)}i", len(some), *some)
    return data + INT32.pack(-1)
