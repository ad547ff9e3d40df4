"""Record batches, written and read."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from crc32c import crc32c

from tests.simulation.kafka.encoding import varint, zigzag

HEAD = struct.Struct(">qiibIhiqqqhii")
TRANSACTIONAL, CONTROL = 0x10, 0x20
Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    """No value is a tombstone."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def value_of(record: Record) -> int:
    """The number that a value begins with."""
    return int((record.value or b"").split(b".", 1)[0])


def batch(pairs: Iterable[tuple[bytes, bytes | None]], now_ms: int, *who: Any) -> bytes:
    """A batch of [(key, value)] of one moment; `who` is as of `encoded`."""
    return encoded([Record(0, now_ms, key, value, []) for key, value in pairs], *who)


def encoded(
    records: Sequence[Record], producer: int = -1, epoch: int = -1, sequence: int = -1, transactional: bool = False
) -> bytes:
    """A batch of these; their offsets do not matter."""
    first, body = records[0].timestamp_ms, bytearray()
    for number, one in enumerate(records):
        row = b"\0" + varint(one.timestamp_ms - first) + varint(number) + _sized(one.key) + _sized(one.value)
        row += varint(len(one.headers)) + b"".join(_sized(n.encode()) + _sized(v) for n, v in one.headers)
        body += varint(len(row)) + row
    count, attributes = len(records), TRANSACTIONAL if transactional else 0
    latest = max(one.timestamp_ms for one in records)
    tail = struct.pack(">hiqqqhii", attributes, count - 1, first, latest, producer, epoch, sequence, count) + body
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


class Batch:
    """What a reader gets; a marker has no records, and says whether it `commits`."""

    __slots__ = ("base", "commits", "crc_ok", "last", "latest_ms", "producer", "records", "size", "transactional")

    def __init__(self, data: bytes, at: int) -> None:
        self.base, length, _, _, crc, attributes, delta, first_ms, *rest, count = HEAD.unpack_from(data, at)
        self.latest_ms, self.producer = rest[:2]
        self.crc_ok = crc32c(data[at + 21 : at + 12 + length]) == crc
        self.last, self.size = self.base + delta, 12 + length
        self.transactional = bool(attributes & TRANSACTIONAL)
        self.records: list[Record] = []
        at += HEAD.size
        for _ in range(count):
            at = self._record(data, at, first_ms)
        self.commits = (self.records.pop().key or b"")[3:4] == b"\1" if attributes & CONTROL else None

    def _record(self, data: bytes, at: int, first_ms: int) -> int:
        size, at = zigzag(data, at)
        end = at + size
        since, at = zigzag(data, at + 1)
        offset, at = zigzag(data, at)
        key, at = _bytes(data, at)
        value, at = _bytes(data, at)
        count, at = zigzag(data, at)
        headers = []
        for _ in range(count):
            name, at = _bytes(data, at)
            content, at = _bytes(data, at)
            headers.append(((name or b"").decode(), content))
        self.records.append(Record(self.base + offset, first_ms + since, key, value, headers))
        return end


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = zigzag(data, at)
    return (None, at) if size < 0 else (bytes(data[at : at + size]), at + size)


def batches(data: bytes) -> list[Batch]:
    """The whole ones: the last may be cut off."""
    found, at = [], 0
    while at + HEAD.size <= len(data):
        length = struct.unpack_from(">i", data, at + 8)[0]
        if at + 12 + length > len(data):
            break
        found.append(Batch(data, at))
        at += 12 + length
    return found


def sound(data: bytes) -> list[Batch]:
    """The whole ones; ValueError if one is damaged."""
    found = batches(data)
    for one in found:
        if not one.crc_ok:
            raise ValueError(f"the batch at {one.base} is damaged")
    return found


def read(some: Iterable[Batch], aborted: Iterable[tuple[int, int]] | None) -> list[Record]:
    """What a reader makes of batches, as Kafka's consumer does: of committed records by what is `aborted`, (producer, first
    offset); None: of all records."""
    waiting, gone, found = sorted(aborted or (), key=lambda one: one[1]), set(), list[Record]()
    for one in some:
        while waiting and waiting[0][1] <= one.last:
            gone.add(waiting.pop(0)[0])
        if one.commits is False:
            gone.discard(one.producer)
        elif not (one.transactional and one.producer in gone):
            found += one.records
    return found
