"""The records of a batch: decoded where a moment inside a batch is asked for, and by the compaction.

Rule 1: what cannot be decoded is the sender's doing: ValueError, and the log stays as it is.
Source: the record format of Kafka's documentation; compressions by the package cramjam.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from waterclock.broker.log.batch import APPEND_TIME, CODEC, HEADER, LAYOUT, Buffer, header_of, sealed

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
XERIAL = b"\x82SNAPPY\0"  # the framing that Java's library puts around snappy


class Record(NamedTuple):
    """One record: its bytes as they stand in the batch, its offset, timestamp (ms), key and value (None where null)."""

    raw: bytes
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def records(batch: Buffer) -> Iterator[Record]:
    """All records of a batch; ValueError where it cannot be decoded."""
    head = header_of(batch)
    body = uncompressed(batch)
    at = 0
    try:
        for _ in range(head.records):
            size, start = varint(body, at)
            end = start + size
            if size < 0 or end > len(body):
                raise ValueError("a record goes beyond its batch")
            yield _record(body, at, start, end, head.base, head.first_timestamp, _append_time(batch))
            at = end
    except (IndexError, struct.error) as error:
        raise ValueError(f"a record cannot be read: {error}") from error


def timestamps(batch: Buffer) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record."""
    for record in records(batch):
        yield record.offset, record.timestamp


def _append_time(batch: Buffer) -> int | None:
    head = header_of(batch)
    return head.max_timestamp if head.attributes & APPEND_TIME else None


def _record(body: bytes, at: int, start: int, end: int, base: int, first: int, append_time: int | None) -> Record:
    delta_ms, place = varint(body, start + 1)
    delta, place = varint(body, place)
    key, place = _bytes(body, place)
    value, _ = _bytes(body, place)
    return Record(body[at:end], base + delta, first + delta_ms if append_time is None else append_time, key, value)


def _bytes(body: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = varint(body, at)
    if size < 0:
        return None, at
    return body[at : at + size], at + size


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes, and the place after it."""
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise ValueError("a varint has more than ten bytes")


def uncompressed(batch: Buffer) -> bytes:
    """The bytes of the records."""
    codec, body = header_of(batch).attributes & CODEC, bytes(batch[HEADER:])
    try:
        return _uncompressed(codec, body)
    except (zlib.error, EOFError, OSError) as error:
        raise ValueError(f"a batch cannot be uncompressed: {error}") from error


def _uncompressed(codec: int, body: bytes) -> bytes:
    if codec == NONE:
        return body
    if codec == GZIP:
        return gzip.decompress(body)
    import cramjam

    try:
        if codec == SNAPPY:
            return _snappy(body)
        return bytes(cramjam.lz4.decompress(body) if codec == LZ4 else cramjam.zstd.decompress(body))
    except cramjam.DecompressionError as error:
        raise ValueError(f"a batch cannot be uncompressed: {error}") from error


def _snappy(body: bytes) -> bytes:
    import cramjam

    if not body.startswith(XERIAL):
        return bytes(cramjam.snappy.decompress_raw(body))
    out, at = [], 16
    while at + 4 <= len(body):
        size = struct.unpack_from(">i", body, at)[0]
        out.append(bytes(cramjam.snappy.decompress_raw(body[at + 4 : at + 4 + size])))
        at += 4 + size
    return b"".join(out)


def packed(values: Sequence[bytes], now_ms: int) -> bytearray:
    """A batch of the broker's own: a record without key for each value."""
    body = bytearray()
    for delta, value in enumerate(values):
        record = b"\0\0" + as_varint(delta) + as_varint(-1) + as_varint(len(value)) + value + b"\0"
        body += as_varint(len(record)) + record
    fields = (0, 0, 0, 2, 0, 0, len(values) - 1, now_ms, now_ms, -1, -1, -1, len(values))
    return sealed(bytearray(LAYOUT.pack(*fields)) + body)


def as_varint(value: int) -> bytes:
    """Zigzag."""
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)
