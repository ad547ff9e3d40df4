"""Record batches, format 2: what the broker reads of them, the few fields it writes, and their compressions.

A batch is stored as it was received. Only the base offset and the leader epoch lie outside of the checksum; they are
all that the broker writes in. Records are decoded if somebody looks for a moment inside a batch, and by the
compaction: records.py.

Rule 1: nothing of a batch is trusted before its length and its checksum (CRC-32C of all that follows the field) are right.
Rule 2: what cannot be uncompressed, or would become larger than MOST_UNPACKED, is a ValueError: a few bytes can stand for
    gigabytes, and the sender of a batch chooses them.
Rule 3: gzip is unpacked in portions, between which others may have their turn. The other libraries cannot; they are so
    quick that MOST_UNPACKED takes some tens of milliseconds.
Source: the message format of Apache Kafka's documentation, KIP-98 for producers and transactions. Compressions by the
package cramjam, gzip by the standard library; snappy in the framing of Java's library.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Generator
from typing import Any, Final, NamedTuple, TypeVar

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
NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
MOST_UNPACKED: Final = 32 << 20
PORTION: Final = 128 << 10  # bytes of gzip that are unpacked at once
GZIP_FORMAT: Final = 31  # zlib's number for it
XERIAL: Final = b"\x82SNAPPY\0"  # the framing that Java's library puts around snappy
XERIAL_HEAD: Final = XERIAL + struct.pack(">ii", 1, 1)
SNAPPY_BLOCK: Final = 32 << 10
Outcome = TypeVar("Outcome")


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


def uncompressed(codec: int, body: Buffer) -> bytes:
    """What was compressed; ValueError if it cannot be said.

    >>> uncompressed(GZIP, compressed(GZIP, b"records"))
    b'records'
    """
    return at_once(in_portions(codec, body))


def at_once(steps: Generator[None, None, Outcome]) -> Outcome:
    """What they return, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome


def in_portions(codec: int, body: Buffer) -> Generator[None, None, bytes]:
    """The same, with a pause wherever there can be one."""
    if codec == NONE:
        return bytes(body)
    if codec == GZIP:
        return (yield from _gunzip(body))
    if codec > ZSTD:
        raise ValueError(f"there is no compression {codec}")
    import cramjam

    try:
        if codec == SNAPPY:
            return _snappy(bytes(body), cramjam.snappy)
        return _into(cramjam.lz4 if codec == LZ4 else cramjam.zstd, body, cramjam.DecompressionError)
    except cramjam.DecompressionError as error:
        raise ValueError(f"a batch cannot be uncompressed: {error}") from error


def compressed(codec: int, body: bytes) -> bytes:
    """`body` as a producer with that compression would send it."""
    if codec == NONE:
        return body
    if codec == GZIP:
        packer = zlib.compressobj(wbits=GZIP_FORMAT)
        return packer.compress(body) + packer.flush()
    import cramjam

    if codec == SNAPPY:
        blocks = (body[at : at + SNAPPY_BLOCK] for at in range(0, len(body), SNAPPY_BLOCK))
        packed = (bytes(cramjam.snappy.compress_raw(block)) for block in blocks)
        return XERIAL_HEAD + b"".join(struct.pack(">i", len(block)) + block for block in packed)
    return bytes(cramjam.lz4.compress(body) if codec == LZ4 else cramjam.zstd.compress(body))


def _gunzip(body: Buffer) -> Generator[None, None, bytes]:
    unpacker, parts, size = zlib.decompressobj(GZIP_FORMAT), list[bytes](), 0
    left: Buffer = body
    while not unpacker.eof:
        try:
            part = unpacker.decompress(left, PORTION)
        except zlib.error as error:
            raise ValueError(f"a batch cannot be uncompressed: {error}") from error
        left, size = unpacker.unconsumed_tail, size + len(part)
        if not part and not unpacker.eof:
            raise ValueError("a compressed batch is cut off")
        if size > MOST_UNPACKED:
            raise _too_large()
        parts.append(part)
        if size >= PORTION:
            yield
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _into(codec: Any, body: Buffer, refused: type[Exception]) -> bytes:
    """Into buffers of growing size: the format does not always say how much there is."""
    size = max(64 << 10, 8 * len(body))
    while True:
        unpacked = bytearray(min(size, MOST_UNPACKED))
        try:
            return bytes(memoryview(unpacked)[: codec.decompress_into(bytes(body), unpacked)])
        except refused as error:
            if "whole buffer" not in str(error):
                raise
            if size >= MOST_UNPACKED:
                raise _too_large() from error
        size *= 4


def _snappy(body: bytes, snappy: Any) -> bytes:
    if not body.startswith(XERIAL):
        return _block(body, MOST_UNPACKED, snappy)
    out, at, left = [], len(XERIAL_HEAD), MOST_UNPACKED
    while at + 4 <= len(body):
        size = struct.unpack_from(">i", body, at)[0]
        if not 0 < size <= len(body) - at - 4:
            raise ValueError("a block of snappy is cut off")
        out.append(_block(body[at + 4 : at + 4 + size], left, snappy))
        left -= len(out[-1])
        at += 4 + size
    return b"".join(out)


def _block(block: bytes, most: int, snappy: Any) -> bytes:
    if snappy.decompress_raw_len(block) > most:
        raise _too_large()
    return bytes(snappy.decompress_raw(block))


def _too_large() -> ValueError:
    return ValueError(f"a batch has more than {MOST_UNPACKED} bytes when uncompressed")
