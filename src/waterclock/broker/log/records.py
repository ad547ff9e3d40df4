"""The records of a batch: decoded if keys must be there, to say why a batch was
refused (KIP-467), and by compaction, which writes a batch without those that it takes from it: the same offsets, sequence
and producer.

Rule 1: what cannot be decoded is the sender's doing: ValueError, and the log stays as it is.
Rule 2: a batch that loses nothing stays as it is, to the byte. One that loses some keeps its compression.
Rule 3: one that loses all may stay as its header alone: a producer's last sequence stands in it.
Source: the record format of Kafka's documentation. KIP-534 for the horizon: the moment at which a batch's deletions may go
    stands in place of its first timestamp.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, NamedTuple

from waterclock.broker.log.batch import (
    APPEND_TIME,
    CODEC,
    HEADER,
    HORIZON,
    LAYOUT,
    MAGIC,
    Batch,
    at_once,
    compressed,
    header_of,
    in_portions,
    sealed,
    uncompressed,
)
from waterclock.broker.net.outgoing import Buffer
from waterclock.broker.settings import TopicSettings
from waterclock.broker.wire.errors import Error

A_FEW: Final = 256  # records between two pauses
MOST_BLAMED: Final = 10_000  # records that are looked at: a small batch may unpack to millions, which takes long
MOST_OFFSETS: Final = 1 << 31  # of a batch
MOST_COMPRESSED: Final = 16 << 10  # bytes that are unpacked for it
SENTENCES: Final = {
    Error.INVALID_TIMESTAMP: "The timestamp of a record is out of the range that the topic allows.",
    Error.INVALID_RECORD: "A batch was refused that is none, or a record that the topic cannot keep.",
    Error.MESSAGE_TOO_LARGE: "The batch is larger than max.message.bytes allows.",
    Error.RECORD_LIST_TOO_LARGE: "The batch is larger than a segment of the log (segment.bytes).",
    Error.UNSUPPORTED_COMPRESSION_TYPE: "The compression is not known, or not in this version of Produce.",
}


class Record(NamedTuple):
    """One record: its bytes as they stand in the batch, its offset, timestamp (ms), key and value (None if null).

    `after_length` and `after_time` are the places in `raw` behind its length and behind its timestamp.
    """

    raw: bytes
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    after_length: int
    after_time: int


def records(batch: Buffer) -> Iterator[Record]:
    """All records of a batch; ValueError if it cannot be decoded."""
    head = header_of(batch)
    body = uncompressed(head.attributes & CODEC, batch[HEADER:])
    append_time = head.max_timestamp if head.attributes & APPEND_TIME else None
    at = 0
    try:
        for _ in range(head.records):
            size, start = varint(body, at)
            end = start + size
            if size < 0 or end > len(body):
                raise ValueError("a record goes beyond its batch")
            yield _record(body, at, start, end, head.base, head.first_timestamp, append_time)
            at = end
    except IndexError as error:
        raise ValueError(f"a record cannot be read: {error}") from error


def timestamps(batch: Buffer) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of each record."""
    for record in records(batch):
        yield record.offset, record.timestamp


def keyless(batch: Buffer) -> bool:
    """Whether a record of the batch has no key, or the batch cannot be decoded: what a compacted topic refuses."""
    return at_once(keyless_in_steps(batch))


def keyless_in_steps(batch: Buffer) -> Generator[None, None, bool]:
    """The same, with a pause after every few records: a small batch may hold millions."""
    head = header_of(batch)
    try:
        body = yield from in_portions(head.attributes & CODEC, batch[HEADER:])
        for number, (_, key) in enumerate(_keys(head, body), 1):
            if key is None:
                return True
            if not number % A_FEW:
                yield
    except ValueError:
        return True
    return False


def keys(batch: Buffer) -> Iterator[tuple[int, bytes | None]]:
    """Offset and key of each record, for a quarter of the time that `records` takes."""
    head = header_of(batch)
    return _keys(head, uncompressed(head.attributes & CODEC, batch[HEADER:]))


def _keys(head: Batch, body: bytes) -> Iterator[tuple[int, bytes | None]]:
    at, base, most = 0, head.base, len(body)
    try:
        for _ in range(head.records):
            size, at = varint(body, at)
            end = at + size
            at += 1
            while body[at] > 127:  # the timestamp
                at += 1
            delta, at = varint(body, at + 1)
            size, at = varint(body, at)
            if not at <= end <= most or at + size > end:
                raise ValueError("a record goes beyond its batch")
            yield base + delta, body[at : at + size] if size >= 0 else None
            at = end
    except IndexError as error:
        raise ValueError(f"a record cannot be read: {error}") from error


def _record(body: bytes, at: int, start: int, end: int, base: int, first: int, append_time: int | None) -> Record:
    delta_ms, after_time = varint(body, start + 1)
    delta, position = varint(body, after_time)
    key, position = _bytes(body, position)
    value, position = _bytes(body, position)
    if position > end:
        raise ValueError("a record's key or value goes beyond it")
    timestamp = first + delta_ms if append_time is None else append_time
    return Record(body[at:end], base + delta, timestamp, key, value, start - at, after_time - at)


def _bytes(body: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = varint(body, at)
    if size < 0:
        return None, at
    return body[at : at + size], at + size


def varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes, and the place after it."""
    byte = data[at]
    if byte < 128:  # most of them
        return (byte >> 1) ^ -(byte & 1), at + 1
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
    raise ValueError("a varint has more than ten bytes")


def packed(values: Sequence[bytes], now_ms: int) -> bytearray:
    """A batch of the broker's own: a record without key for each value."""
    body = bytearray()
    for delta, value in enumerate(values):
        record = b"\0\0" + as_varint(delta) + as_varint(-1) + as_varint(len(value)) + value + b"\0"
        body += as_varint(len(record)) + record
    fields = (0, 0, 0, 2, 0, 0, len(values) - 1, now_ms, now_ms, -1, -1, -1, len(values))
    return sealed(bytearray(LAYOUT.pack(*fields)) + body)


def as_varint(value: int) -> bytes:
    """A zigzag varint.

    >>> as_varint(-3), as_varint(150), varint(as_varint(-(2**63)), 0)
    (b'\\x05', b'\\xac\\x02', (-9223372036854775808, 10))
    """
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def horizon_of(batch: Batch) -> int | None:
    """When the deletions of a batch may go, in ms since 1970; None if no compaction has said so yet."""
    return batch.first_timestamp if batch.attributes & HORIZON else None


def emptied(batch: Batch) -> bytes:
    """Its header alone."""
    attributes = batch.attributes & ~(CODEC | HORIZON)
    head = batch._replace(attributes=attributes, records=0, first_timestamp=batch.max_timestamp)
    return bytes(sealed(bytearray(LAYOUT.pack(*head))))


def empty(first: int, end: int, leader_epoch: int) -> bytes:
    """A batch without records, for a reader: from offset `first` to before `end` there is none. It goes on at `end`, or
    asks once more if that is further than a batch reaches.

    As a compaction leaves one that has lost all its records; every client passes it.
    """
    delta = min(end - first, MOST_OFFSETS) - 1
    nobody = (-1, -1, -1)
    return bytes(sealed(bytearray(LAYOUT.pack(first, 0, leader_epoch, MAGIC, 0, 0, delta, -1, -1, *nobody, 0))))


def rewritten(batch: Batch, kept: Sequence[Record], horizon: int | None) -> bytes:
    """With these of its records; `horizon` is when its deletions may go, None if it has none."""
    first = batch.first_timestamp if horizon is None else horizon
    attributes = batch.attributes if horizon is None else batch.attributes | HORIZON
    latest = batch.max_timestamp if attributes & APPEND_TIME else max(record.timestamp for record in kept)
    body = bytearray()
    for record in kept:
        if first == batch.first_timestamp:
            body += record.raw
            continue
        raw, start = record.raw, record.after_length  # its timestamp counts from `first` now
        moved = raw[start : start + 1] + as_varint(record.timestamp - first) + raw[record.after_time :]
        body += as_varint(len(moved)) + moved
    head = batch._replace(attributes=attributes, records=len(kept), first_timestamp=first, max_timestamp=latest)
    return bytes(sealed(bytearray(LAYOUT.pack(*head)) + compressed(attributes & CODEC, bytes(body))))


def explain(error: Error, data: Buffer, settings: TopicSettings, now_ms: int) -> tuple[str | None, tuple[int, ...]]:
    """A sentence, or None, and the numbers of the records within their batch."""
    sentence = SENTENCES.get(error)
    if error == Error.INVALID_TIMESTAMP:
        after, before = now_ms + settings.timestamp_after_ms, now_ms - settings.timestamp_before_ms
        return sentence, _those(data, lambda record: not before <= record.timestamp <= after)
    if error == Error.INVALID_RECORD and settings.compact:
        return sentence, _those(data, lambda record: record.key is None)
    return sentence, ()


def _those(data: Buffer, blamed: Callable[[Record], bool]) -> tuple[int, ...]:
    head = header_of(data)
    if head.records > MOST_BLAMED or (head.attributes & CODEC and len(data) > MOST_COMPRESSED):
        return ()
    try:
        return tuple(number for number, record in enumerate(records(data)) if blamed(record))
    except ValueError:
        return ()
