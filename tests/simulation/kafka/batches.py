"""Record batches, written and read."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from crc32c import crc32c

from tests.simulation.kafka.encoding import varint, zigzag

HEAD = struct.Struct(">qiibIhiqqqhii")
TRANSACTIONAL, CONTROL = 0x10, 0x20


def batch(
    records: Sequence[tuple[bytes, bytes | None]],
    now_ms: int,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """A record batch of [(key, value)]; no value is a tombstone."""
    body = bytearray()
    for number, (key, value) in enumerate(records):
        row = b"\0" + varint(0) + varint(number) + varint(len(key)) + key
        row += varint(-1) if value is None else varint(len(value)) + value
        body += varint(len(row) + 1) + row + b"\0"
    count, attributes = len(records), TRANSACTIONAL if transactional else 0
    numbers = (attributes, count - 1, now_ms, now_ms, producer_id, epoch, sequence, count)
    tail = struct.pack(">hiqqqhii", *numbers) + bytes(body)
    return struct.pack(">qiibI", 0, len(tail) + 9, -1, 2, crc32c(tail)) + tail


class Batch:
    """What a reader gets; `records` are (offset, key, value), `commits` is of a marker."""

    __slots__ = (
        "base",
        "commits",
        "control",
        "crc_ok",
        "last",
        "latest_ms",
        "producer",
        "records",
        "size",
        "transactional",
    )

    def __init__(self, data: bytes, at: int) -> None:
        head = HEAD.unpack_from(data, at)
        self.base, length, crc, attributes, delta = head[0], head[1], head[4], head[5], head[6]
        self.latest_ms, self.producer = head[8], head[9]
        self.crc_ok = crc32c(data[at + 21 : at + 12 + length]) == crc
        self.last, self.size = self.base + delta, 12 + length
        self.transactional, self.control = bool(attributes & TRANSACTIONAL), bool(attributes & CONTROL)
        self.records: list[tuple[int, bytes, bytes | None]] = []
        self.commits: bool | None = None
        at += HEAD.size
        for _ in range(head[12]):
            at = self._record(data, at)

    @property
    def values(self) -> list[tuple[int, bytes]]:
        return [(offset, value or b"") for offset, _, value in self.records]

    def _record(self, data: bytes, at: int) -> int:
        size, at = zigzag(data, at)
        end = at + size
        _, at = zigzag(data, at + 1)
        offset, at = zigzag(data, at)
        size, at = zigzag(data, at)
        key = bytes(data[at : at + max(0, size)])
        size, at = zigzag(data, at + len(key))
        if self.control:
            self.commits = key[3] == 1
        else:
            self.records.append((self.base + offset, key, None if size < 0 else bytes(data[at : at + size])))
        return end


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


def committed_records(some: Iterable[Batch], aborted: Iterable[tuple[int, int]]) -> list[tuple[int, bytes]]:
    """What a reader of committed records makes of batches, as Kafka's consumer does."""
    waiting, gone, found = sorted(aborted, key=lambda one: one[1]), set(), []
    for one in some:
        while waiting and waiting[0][1] <= one.last:
            gone.add(waiting.pop(0)[0])
        if one.control:
            if not one.commits:
                gone.discard(one.producer)
        elif not (one.transactional and one.producer in gone):
            found.extend(one.values)
    return found
