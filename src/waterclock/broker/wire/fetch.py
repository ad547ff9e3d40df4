"""Fetch, versions 4 to 18, by hand: records go from the file to the socket without passing through here.

Source: the schemas of Kafka's protocol guide; tests/broker/wire compares every version with kio's, byte by byte.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from waterclock.broker.net.outgoing import AnswerPart, Slice
from waterclock.broker.wire.errors import Error
from waterclock.broker.wire.fields import (
    INT32,
    INT64,
    as_count,
    as_topic,
    bounded,
    count_of,
    skip_tags,
    text_span,
    topic_key,
    uvarint,
)

FLEXIBLE: Final = 12
BY_ID: Final = 13
NO_REPLICA_FIELD: Final = 15  # from here on the follower's id is a tagged field
SMALL: Final = 32 << 10  # one packet beats one copy saved
LIMITS: Final = struct.Struct(">iiib")
SESSION: Final = struct.Struct(">ii")
ANSWER: Final = struct.Struct(">ihqq")
ABORTED: Final = struct.Struct(">qq")


class FetchPartition(NamedTuple):
    """What a reader asks of one partition: from which offset, at most how many bytes; its idea of the leader's epoch.

    `start` is where a follower's log begins; -1 of a client.
    """

    partition: int
    leader_epoch: int
    offset: int
    limit: int
    start: int = -1


FetchTopics: TypeAlias = "list[tuple[bytes, list[FetchPartition]]]"


class FetchRequest(NamedTuple):
    """`max_wait_ms` and `min_bytes` say how long it may wait for how much; `committed` whether it reads committed only."""

    replica: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    committed: bool
    session: int
    session_epoch: int
    topics: FetchTopics


class AbortedRow(Protocol):
    """A transaction that was aborted: its producer, and its first offset."""

    @property
    def producer_id(self) -> int: ...

    @property
    def first(self) -> int: ...


class FetchedPartition(NamedTuple):
    """What a partition has to say: the row of an answer. `aborted` is None if the reader takes uncommitted records too."""

    partition: int
    error: Error
    high: int = -1
    stable: int = -1
    start: int = -1
    aborted: Sequence[AbortedRow] | None = None
    records: Slice | bytes | None = None

    @property
    def size(self) -> int:
        """Bytes of records."""
        if self.records is None:
            return 0
        return self.records.size if isinstance(self.records, Slice) else len(self.records)


def read(data: memoryview, at: int, version: int) -> FetchRequest:
    """The request whose body begins at `at`."""
    replica = -1
    if version < NO_REPLICA_FIELD:
        replica, at = INT32.unpack_from(data, at)[0], at + 4
    wait, least, most, level = LIMITS.unpack_from(data, at)
    at += LIMITS.size
    session, epoch = 0, -1
    if version >= 7:
        (session, epoch), at = SESSION.unpack_from(data, at), at + SESSION.size
    topics, at = _topics(data, at, version)
    if version >= 7:
        at = _after_forgotten(data, at, version)
    if version >= FLEXIBLE:
        replica = _replica_tag(data, at, replica)
    return FetchRequest(replica, wait, least, most, level == 1, session, epoch, topics)


def _topics(data: memoryview, at: int, version: int) -> tuple[FetchTopics, int]:
    flexible, by_id = version >= FLEXIBLE, version >= BY_ID
    count, at = count_of(data, at, flexible)
    topics: FetchTopics = []
    elements = 0
    for _ in range(count):
        key, at = topic_key(data, at, flexible, by_id)
        rows, at = _rows(data, at, version)
        elements = bounded(elements + 1 + len(rows))
        topics.append((key, rows))
    return topics, at


def _rows(data: memoryview, at: int, version: int) -> tuple[list[FetchPartition], int]:
    flexible = version >= FLEXIBLE
    count, at = count_of(data, at, flexible)
    rows = []
    for _ in range(count):
        partition, epoch, start = INT32.unpack_from(data, at)[0], -1, -1
        at += 4
        if version >= 9:
            epoch, at = INT32.unpack_from(data, at)[0], at + 4
        offset = INT64.unpack_from(data, at)[0]
        at += 8 + (4 if flexible else 0)  # the last epoch fetched
        if version >= 5:
            start, at = INT64.unpack_from(data, at)[0], at + 8
        rows.append(FetchPartition(partition, epoch, offset, INT32.unpack_from(data, at)[0], start))
        at = skip_tags(data, at + 4) if flexible else at + 4
    return rows, skip_tags(data, at) if flexible else at


def _after_forgotten(data: memoryview, at: int, version: int) -> int:
    """The place after the topics that a session forgets, and after the rack."""
    flexible = version >= FLEXIBLE
    count, at = count_of(data, at, flexible)
    for _ in range(count):
        _, at = topic_key(data, at, flexible, version >= BY_ID)
        partitions, at = count_of(data, at, flexible)
        at += 4 * partitions
        if flexible:
            at = skip_tags(data, at)
    if version >= 11:
        _, at = text_span(data, at, flexible)
    if at > len(data):
        raise ValueError("a fetch ends before its forgotten topics do")
    return at


def _replica_tag(data: memoryview, at: int, replica: int) -> int:
    """The follower's id among the tagged fields (tag 1), or `replica`."""
    end = skip_tags(data, at)
    count, at = uvarint(data, at)
    for _ in range(count):
        tag, at = uvarint(data, at)
        size, at = uvarint(data, at)
        if tag == 1:
            return int(INT32.unpack_from(data[:end], at)[0])
        at += size
    return replica


def answer(
    correlation: int, version: int, topics: list[tuple[bytes, list[FetchedPartition]]], error: Error = Error.NONE
) -> list[AnswerPart]:
    """The whole answer, as bytes and slices of files in turn."""
    flexible, by_id = version >= FLEXIBLE, version >= BY_ID
    out: list[AnswerPart] = []
    held = bytearray(INT32.pack(correlation) + b"\0" * flexible + b"\0\0\0\0")  # no throttling
    if version >= 7:
        held += struct.pack(">hi", error, 0)  # sessions are declined: every fetch says all it wants
    held += as_count(len(topics), flexible)
    for key, rows in topics:
        held += as_topic(key, flexible, by_id) + as_count(len(rows), flexible)
        for row in rows:
            held = _put_row(out, held, row, version)
        held += b"\0" * flexible
    held += b"\0" * flexible
    out.append(bytes(held))
    size = sum(part.size if isinstance(part, Slice) else len(part) for part in out)
    return [INT32.pack(size), *out]


def _put_row(out: list[AnswerPart], held: bytearray, row: FetchedPartition, version: int) -> bytearray:
    """Add a partition's row; if its records are sent as a file, what is held goes out before them."""
    flexible = version >= FLEXIBLE
    held += ANSWER.pack(row.partition, row.error, row.high, row.stable)
    if version >= 5:
        held += INT64.pack(row.start)
    held += _aborted(row.aborted, flexible)
    if version >= 11:
        held += b"\xff\xff\xff\xff"  # no preferred replica
    records = row.records
    held += as_count(row.size, flexible)
    if isinstance(records, bytes):
        held += records
    elif records is not None and records.size <= SMALL:
        held += records.read()
    elif records is not None:
        out += bytes(held), records
        held = bytearray()
    held += b"\0" * flexible
    return held


def _aborted(rows: Sequence[AbortedRow] | None, flexible: bool) -> bytes:
    if rows is None:
        return b"\0" if flexible else b"\xff\xff\xff\xff"
    end = b"\0" * flexible
    return as_count(len(rows), flexible) + b"".join(ABORTED.pack(r.producer_id, r.first) + end for r in rows)
