"""The client's side of the protocol, as far as a follower needs it: Fetch by hand, the rest by kio.

Rule 1: Fetch is asked in version 11: the last one without compact fields, and with leader epochs.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from waterclock.broker.wire.errors import Error
from waterclock.broker.wire.fields import INT16, INT32, bytes_span, count_of, skip_tags, text_span

FETCH: Final = 1
FETCH_VERSION: Final = 11
HEAD: Final = struct.Struct(">hhi")
LIMITS: Final = struct.Struct(">iiiibii")
WANTED: Final = struct.Struct(">iiqqi")
COPIED: Final = struct.Struct(">ihqqq")


class Copying(NamedTuple):
    """What a follower asks of one partition."""

    topic: str
    partition: int
    leader_epoch: int
    offset: int


class Copied(NamedTuple):
    """What it was given: the leader's high watermark and start, and whole batches as they stand in its log."""

    topic: str
    partition: int
    error: Error
    high: int
    start: int
    records: memoryview


def header(key: int, version: int, correlation: int, client_id: str) -> bytes:
    """A request's header, without tagged fields."""
    name = client_id.encode()
    return HEAD.pack(key, version, correlation) + INT16.pack(len(name)) + name


def fetch(replica: int, wait_ms: int, most: int, each: int, rows: Iterable[Copying]) -> bytes:
    """The body of a Fetch of a follower."""
    rows = list(rows)
    parts = [LIMITS.pack(replica, wait_ms, 1, most, 0, 0, -1), INT32.pack(len(rows))]
    for row in rows:
        name = row.topic.encode()
        parts.append(INT16.pack(len(name)) + name + INT32.pack(1))
        parts.append(WANTED.pack(row.partition, row.leader_epoch, row.offset, -1, each))
    parts.append(b"\0\0\0\0\0\0")  # nothing is forgotten, no rack
    return b"".join(parts)


def fetched(data: memoryview) -> tuple[Error, list[Copied]]:
    """The answer whose body is `data`: its own error, and its partitions."""
    error = Error(INT16.unpack_from(data, 4)[0])
    count, at = count_of(data, 10, False)
    rows = []
    for _ in range(count):
        first, at = text_span(data, at, False)
        topic = str(data[first:at], "utf-8")
        partitions, at = count_of(data, at, False)
        for _ in range(partitions):
            row, at = _partition(data, at, topic)
            rows.append(row)
    return error, rows


def _partition(data: memoryview, at: int, topic: str) -> tuple[Copied, int]:
    partition, error, high, _, start = COPIED.unpack_from(data, at)
    at += COPIED.size
    aborted = INT32.unpack_from(data, at)[0]  # -1, null, for a follower
    at += 4 + 16 * max(0, aborted) + 4
    first, at = bytes_span(data, at, False)
    return Copied(topic, partition, Error(error), high, start, data[first:at]), at


def request(key: int, version: int, correlation: int, client_id: str, fields: dict[str, Any]) -> bytes:
    """A request of another API, header included."""
    from kio.serial import entity_writer

    entity = _request_class(key, version)
    out = io.BytesIO()
    entity_writer(entity)(out, entity(**fields))
    tags = b"\0" if entity.__header_schema__.__flexible__ else b""
    return header(key, version, correlation, client_id) + tags + out.getvalue()


def answer(data: bytes, key: int, version: int) -> Any:
    """The answer to it, header included."""
    from kio.serial import entity_reader

    from waterclock.broker.wire.codec import schema

    entity = schema(key, version).answer
    at = skip_tags(data, 4) if entity.__header_schema__.__flexible__ else 4
    return entity_reader(entity)(data, at)[0]


def part(key: int, version: int, name: str, /, **values: Any) -> Any:
    """A part of a request, by its class's name."""
    return _requests(key, version)[name](**values)


def _request_class(key: int, version: int) -> Any:
    names = _requests(key, version)
    return names[next(n for n in names if n.endswith("Request"))]


def _requests(key: int, version: int) -> dict[str, Any]:
    from kio.index import load_payload_module
    from kio.static.constants import EntityType

    return dict(vars(load_payload_module(key, version, EntityType.request)))
