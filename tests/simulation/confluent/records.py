"""Record batches with headers and timestamps."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from crc32c import crc32c

from tests.simulation.kafka.encoding import varint, zigzag

_HEAD = struct.Struct(">qiibIhiqqqhii")
Headers = Sequence[tuple[str, bytes | None]]


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def _sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encoded(records: Sequence[Record], producer: int, epoch: int, sequence: int, transactional: bool) -> bytes:
    """A batch of these; their offsets do not matter."""
    first, body = records[0].timestamp_ms, bytearray()
    for number, one in enumerate(records):
        row = b"\0" + varint(one.timestamp_ms - first) + varint(number) + _sized(one.key) + _sized(one.value)
        row += varint(len(one.headers)) + b"".join(_sized(n.encode()) + _sized(v) for n, v in one.headers)
        body += varint(len(row)) + row
    count, attributes = len(records), 0x10 if transactional else 0
    latest = max(one.timestamp_ms for one in records)
    tail = struct.pack(">hiqqqhii", attributes, count - 1, first, latest, producer, epoch, sequence, count) + body
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


class Batch(NamedTuple):
    """`ends`: of a marker, whether it commits; None of records."""

    base: int
    last: int
    producer: int
    transactional: bool
    ends: bool | None
    records: list[Record]


def _bytes(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = zigzag(data, at)
    return (None, at) if size < 0 else (bytes(data[at : at + size]), at + size)


def _record(data: bytes, at: int, base: int, first_ms: int) -> tuple[Record, int]:
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
    return Record(base + offset, first_ms + since, key, value, headers), end


def decoded(data: bytes) -> Iterator[Batch]:
    """The whole ones; ValueError if one is damaged."""
    at = 0
    while at + _HEAD.size <= len(data):
        base, length, _, _, crc, attributes, delta, first_ms, _, producer, _, _, count = _HEAD.unpack_from(data, at)
        end = at + 12 + length
        if end > len(data):
            return
        if crc32c(data[at + 21 : end]) != crc:
            raise ValueError(f"the batch at {base} is damaged")
        control, at, records = attributes & 0x20, at + _HEAD.size, list[Record]()
        for _ in range(count):
            one, at = _record(data, at, base, first_ms)
            records.append(one)
        ends = (records[0].key or b"")[3:4] == b"\1" if control else None
        yield Batch(base, base + delta, producer, bool(attributes & 0x10), ends, [] if control else records)
        at = end


def committed(batches: Sequence[Batch], aborted: Any) -> list[Record]:
    """What a reader of committed records makes of them; `aborted` are (producer, first offset)."""
    waiting, gone, found = sorted(aborted, key=lambda one: one[1]), set(), list[Record]()
    for one in batches:
        while waiting and waiting[0][1] <= one.last:
            gone.add(waiting.pop(0)[0])
        if one.ends is False:
            gone.discard(one.producer)
        elif not (one.transactional and one.producer in gone):
            found += one.records
    return found
