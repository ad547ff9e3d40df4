"""Record batches (format v2) byte by byte, written apart from the broker's code: what is sent, and what came back.

Rule 1: nothing is checked here when writing: a wrong batch is what some tests want.
Rule 2: reading stops before a batch that is cut off: Apache Kafka cuts a fetch at bytes, ours at batches.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import crc32c

HEAD = struct.Struct(">qiib")  # base offset, length, leader epoch, magic; then the checksum of all that follows
REST = struct.Struct(">hiqqqhii")  # attributes, last delta, first and last time, producer, epoch, sequence, count
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
LOG_APPEND_TIME, TRANSACTIONAL, CONTROL = 8, 16, 32
LONG_AGO_MS = 1_700_000_000_000


def now_ms() -> int:
    """Wall time in milliseconds, as records carry it."""
    return time.time_ns() // 1_000_000


# Plain records are of today: where timestamps are weeks apart Apache Kafka begins a segment, and a fetch ends with one.
TODAY_MS = now_ms()


class Record(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = TODAY_MS
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1


@dataclass(frozen=True)
class Batch:
    """What stands in a batch's header; `records` are the bytes behind it, compressed or not."""

    records: bytes
    count: int
    last_delta: int
    base_offset: int = 0
    leader_epoch: int = -1
    magic: int = 2
    attributes: int = 0
    first_ms: int = TODAY_MS
    max_ms: int = TODAY_MS
    producer_id: int = -1
    producer_epoch: int = -1
    sequence: int = -1

    def encode(self) -> bytes:
        rest = REST.pack(
            *(self.attributes, self.last_delta, self.first_ms, self.max_ms),
            *(self.producer_id, self.producer_epoch, self.sequence, self.count),
        )
        body = struct.pack(">I", crc32c.crc32c(rest + self.records)) + rest + self.records
        return HEAD.pack(self.base_offset, 5 + len(body), self.leader_epoch, self.magic) + body

    def but(self, **changes: object) -> Batch:
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_delta

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    def decoded(self) -> list[Record]:
        """The records of a batch without compression."""
        reader = Reader(self.records)
        return [self._record(reader) for _ in range(self.count)]

    def _record(self, reader: Reader) -> Record:
        reader.varint()
        reader.take(1)
        delta_ms, delta = reader.varint(), reader.varint()
        key, value = reader.sized(), reader.sized()
        headers = tuple(((reader.sized() or b"").decode(), reader.sized()) for _ in range(reader.varint()))
        at_ms = self.max_ms if self.attributes & LOG_APPEND_TIME else self.first_ms + delta_ms
        return Record(value, key, at_ms, headers, self.base_offset + delta)


class Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return (number >> 1) ^ -(number & 1)

    def sized(self) -> bytes | None:
        size = self.varint()
        return None if size < 0 else self.take(size)


def varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def sized(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def encoded(record: Record, delta: int, first_ms: int) -> bytes:
    headers = b"".join(sized(name.encode()) + sized(value) for name, value in record.headers)
    body = b"\0" + varint(record.timestamp_ms - first_ms) + varint(delta) + sized(record.key) + sized(record.value)
    body += varint(len(record.headers)) + headers
    return varint(len(body)) + body


def batch(*records: Record | bytes) -> Batch:
    """A batch of these records; plain bytes are values. Change it with `but`, send it with `encode`."""
    answer = [r if isinstance(r, Record) else Record(r) for r in records]
    first_ms = answer[0].timestamp_ms if answer else TODAY_MS
    data = b"".join(encoded(record, delta, first_ms) for delta, record in enumerate(answer))
    last_ms = max((r.timestamp_ms for r in answer), default=first_ms)
    return Batch(data, len(answer), max(0, len(answer) - 1), first_ms=first_ms, max_ms=last_ms)


def batches(data: bytes | None) -> list[Batch]:
    """The whole batches in what a fetch brought; each one's checksum is looked at."""
    found, at = [], 0
    data = data or b""
    while at + 12 <= len(data) and at + 12 + struct.unpack_from(">i", data, at + 8)[0] <= len(data):
        base, length, epoch, magic = HEAD.unpack_from(data, at)
        (crc,) = struct.unpack_from(">I", data, at + 17)
        body = data[at + 21 : at + 12 + length]
        assert crc == crc32c.crc32c(body), f"the batch at {base} came with a wrong checksum"
        attributes, last, first_ms, max_ms, producer, producer_epoch, sequence, count = REST.unpack_from(body)
        found.append(
            Batch(body[REST.size :], count, last, base, epoch, magic, attributes, first_ms, max_ms)
            .but(producer_id=producer, producer_epoch=producer_epoch, sequence=sequence)
        )  # fmt: skip
        at += 12 + length
    return found


def values(found: Iterable[Batch]) -> list[bytes | None]:
    """The values of all records, markers left out."""
    return [record.value for b in found if not b.is_control for record in b.decoded()]
