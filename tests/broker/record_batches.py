"""Record batches and markers as clients and coordinators send them: compressed, of producers, of transactions."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Sequence
from typing import NamedTuple

import crc32c

from tests.conformance import batches

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
TRANSACTIONAL, CONTROL = 16, 32
HEAD = struct.Struct(">qiibIhiqqqhii")


class Rec(NamedTuple):
    key: bytes | None
    value: bytes | None
    ms: int


def squeezed(codec: int, body: bytes) -> bytes:
    import cramjam

    if codec == GZIP:
        return gzip.compress(body)
    if codec == SNAPPY:
        block = bytes(cramjam.snappy.compress_raw(body))
        return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block
    if codec == LZ4:
        return bytes(cramjam.lz4.compress(body))
    return bytes(cramjam.zstd.compress(body)) if codec == ZSTD else body


def batch(
    recs: Sequence[Rec],
    *,
    codec: int = NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    attributes: int = 0,
) -> bytes:
    """A batch of these records; `producer` is its id, its epoch and the first sequence."""
    made = batches.batch(*(batches.Record(rec.value, rec.key, rec.ms) for rec in recs))
    return whole(attributes | codec, squeezed(codec, made.records), recs, producer)


def whole(attributes: int, body: bytes, recs: Sequence[Rec], producer: tuple[int, int, int]) -> bytes:
    times = recs[0].ms, max(rec.ms for rec in recs)
    head = batches.Batch(body, len(recs), len(recs) - 1, 0, -1, 2, attributes, *times, *producer)
    return head.encode()


def end_marker(producer_id: int, epoch: int, commit: bool, ms: int) -> bytes:
    """What a coordinator writes at the end of a transaction."""
    rec = Rec(struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0), ms)
    return batch([rec], producer=(producer_id, epoch, -1), attributes=TRANSACTIONAL | CONTROL)


class Stored(NamedTuple):
    """A batch as it stands in a log."""

    base: int
    last: int
    attributes: int
    producer_id: int
    epoch: int
    sequence: int
    count: int
    raw: bytes


def stored(data: bytes) -> list[Stored]:
    """The batches in `data`, which must end with one; their checksums are looked at."""
    rows, at = [], 0
    while at < len(data):
        base, length, _, magic, crc, attributes, delta, _, _, pid, epoch, sequence, count = HEAD.unpack_from(data, at)
        raw = data[at : at + 12 + length]
        assert (len(raw), magic) == (12 + length, 2)
        assert crc == crc32c.crc32c(raw[21:])
        rows.append(Stored(base, base + delta, attributes, pid, epoch, sequence, count, raw))
        at += len(raw)
    return rows
