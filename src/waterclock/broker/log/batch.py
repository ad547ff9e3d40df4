"""Record batches, format 2: what the broker reads of them, and the few fields it writes.

A batch is stored as it was received. Only the base offset and the leader epoch lie outside of the checksum; they are
all that the broker writes in. Records are decoded if somebody asks for a moment inside a batch, and by the
compaction: records.py.

Rule 1: nothing of a batch is trusted before its length and its checksum (CRC-32C of all that follows the field) are right.
Source: the message format of Apache Kafka's documentation, KIP-98 for producers and transactions.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from crc32c import crc32c

from waterclock.broker.net.outgoing import Buffer

LAYOUT: Final = struct.Struct(">qiibIhiqqqhii")
HEADER: Final = LAYOUT.size  # 61 bytes
MAGIC: Final = 2  # the format's number, in every header
PREFIX: Final = 12  # base offset and length: not counted in the length
CHECKED: Final = 21  # where what the checksum covers begins
FRAME: Final = struct.Struct(">qiibIhi")  # as far as the last offset delta: what a walk from batch to batch needs
BASE: Final = struct.Struct(">q")
EPOCH: Final = struct.Struct(">i")

CODEC: Final = 0b111
APPEND_TIME: Final = 0b1000
TRANSACTIONAL: Final = 0b1_0000
CONTROL: Final = 0b10_0000
HORIZON: Final = (
    0b100_0000  # set by a compaction: in place of the first timestamp stands when its deletions go. KIP-534
)

SEQUENCES: Final = 0x8000_0000  # sequence numbers wrap here


class Batch(NamedTuple):
    """The header of a batch. Offsets and sequences count records, timestamps are in ms since 1970, lengths in bytes."""

    base: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_delta: int
    first_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    sequence: int
    records: int

    @property
    def last(self) -> int:
        """The offset of its last record."""
        return self.base + self.last_delta

    @property
    def last_sequence(self) -> int:
        return (self.sequence + self.last_delta) % SEQUENCES

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def control(self) -> bool:
        return bool(self.attributes & CONTROL)


def header_of(data: Buffer, at: int = 0) -> Batch:
    """The header at byte `at`; `struct.error` if fewer than 61 bytes follow."""
    return Batch._make(LAYOUT.unpack_from(data, at))


def commits(data: Buffer) -> bool:
    """Whether a marker says COMMIT. Its record's key is a version and a type; the fields before it vary in length."""
    at = _after_varint(data, HEADER) + 1  # the record's length and attributes
    for _ in range(3):  # its timestamp, its offset, the length of its key
        at = _after_varint(data, at)
    return bytes(data[at + 2 : at + 4]) == b"\0\1"


def _after_varint(data: Buffer, at: int) -> int:
    while data[at] > 127:
        at += 1
    return at + 1


def coordinator_epoch(data: Buffer) -> int:
    """The epoch of the coordinator that wrote a marker."""
    return int(EPOCH.unpack_from(data, HEADER + 12)[0])


def sealed(data: bytearray) -> bytearray:
    """The batch with its length and checksum written in; the way a batch of the broker's own ends."""
    EPOCH.pack_into(data, 8, len(data) - PREFIX)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[CHECKED:]))
    return data


def at_append_time(data: Buffer, now_ms: int) -> bytearray:
    """A copy whose records all have the time of the append (message.timestamp.type=LogAppendTime)."""
    copy = bytearray(data)
    attributes = header_of(copy).attributes | APPEND_TIME
    struct.pack_into(">h", copy, 21, attributes)
    struct.pack_into(">q", copy, 35, now_ms)
    return sealed(copy)


def marker(producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, now_ms: int) -> bytearray:
    """The control batch that ends a transaction in a partition: one record, COMMIT or ABORT."""
    key = struct.pack(">hh", 0, 1 if commit else 0)
    value = struct.pack(">hi", 0, coordinator_epoch)
    body = bytes((0, 0, 0, len(key) << 1)) + key + bytes((len(value) << 1,)) + value + b"\0"
    record = bytes((len(body) << 1,)) + body
    attributes = TRANSACTIONAL | CONTROL
    fields = (0, 0, 0, 2, 0, attributes, 0, now_ms, now_ms, producer_id, producer_epoch, -1, 1)
    return sealed(bytearray(LAYOUT.pack(*fields) + record))
