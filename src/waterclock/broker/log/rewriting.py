"""A batch without the records that a compaction takes from it: the same offsets, sequence and producer.

Rule 1: a batch that loses nothing stays as it is, to the byte. One that loses some keeps its compression.
Rule 2: one that loses all may stay as its header alone: a producer's last sequence stands in it.
Source: KIP-534 for the horizon: the moment at which a batch's deletions may go stands in place of its first timestamp.
"""

from __future__ import annotations

from collections.abc import Sequence

from waterclock.broker.log.batch import APPEND_TIME, CODEC, HORIZON, LAYOUT, Batch, sealed
from waterclock.broker.log.codecs import compressed
from waterclock.broker.log.records import Record, as_varint


def horizon_of(batch: Batch) -> int | None:
    """When the deletions of a batch may go, in ms since 1970; None if no compaction has said so yet."""
    return batch.first_timestamp if batch.attributes & HORIZON else None


def emptied(batch: Batch) -> bytes:
    """Its header alone."""
    attributes = batch.attributes & ~(CODEC | HORIZON)
    head = batch._replace(attributes=attributes, records=0, first_timestamp=batch.max_timestamp)
    return bytes(sealed(bytearray(LAYOUT.pack(*head))))


def rewritten(batch: Batch, kept: Sequence[Record], horizon: int | None) -> bytes:
    """With these of its records; `horizon` is when its deletions may go, None if it has none."""
    first = batch.first_timestamp if horizon is None else horizon
    attributes = batch.attributes if horizon is None else batch.attributes | HORIZON
    latest = batch.max_timestamp if attributes & APPEND_TIME else max(record.timestamp for record in kept)
    moved = first - batch.first_timestamp
    body = b"".join(_moved(record, first) if moved else record.raw for record in kept)
    head = batch._replace(
        attributes=attributes, records=len(kept), first_timestamp=first, max_timestamp=latest
    )  # fmt: skip
    return bytes(sealed(bytearray(LAYOUT.pack(*head)) + compressed(attributes & CODEC, body)))


def _moved(record: Record, first: int) -> bytes:
    """A record whose timestamp counts from `first`."""
    raw = record.raw
    start = record.after_length
    body = raw[start : start + 1] + as_varint(record.timestamp - first) + raw[record.after_time :]
    return as_varint(len(body)) + body
