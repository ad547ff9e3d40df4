"""The client's side of the protocol, as far as a follower needs it: Fetch by hand, the rest by kio.

Rule 1: Fetch goes out in version 13, which names topics by their ids: one of the same name may be another by now.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from waterclock.broker.wire.errors import Error
from waterclock.broker.wire.fields import INT16, as_count, bytes_span, count_of, skip_tags, topic_key, uvarint

FETCH: Final = 1
FETCH_VERSION: Final = 13
HEAD: Final = struct.Struct(">hhi")
LIMITS: Final = struct.Struct(">iiiibii")
WANTED: Final = struct.Struct(">iiqiqi")
COPIED: Final = struct.Struct(">ihqqq")
NO_TAGS: Final = b"\0"


class PartitionFetch(NamedTuple):
    """What a follower asks of one partition of the topic with the id `topic`."""

    topic: bytes
    partition: int
    leader_epoch: int
    offset: int
    start: int


class PartitionCopy(NamedTuple):
    """What it was given: the leader's high watermark and start, and whole batches as they stand in its log."""

    topic: bytes
    partition: int
    error: Error
    high: int
    start: int
    records: memoryview


def header(key: int, version: int, correlation: int, client_id: str) -> bytes:
    """A request's header, without tagged fields."""
    name = client_id.encode()
    return HEAD.pack(key, version, correlation) + INT16.pack(len(name)) + name


def fetch(replica: int, wait_ms: int, most: int, rows: Iterable[PartitionFetch]) -> bytes:
    """The rest of a follower's Fetch, from its header's tagged fields on."""
    rows = list(rows)
    parts = [NO_TAGS, LIMITS.pack(replica, wait_ms, 1, most, 0, 0, -1), as_count(len(rows), True)]
    for row in rows:
        wanted = WANTED.pack(row.partition, row.leader_epoch, row.offset, -1, row.start, most)
        parts.append(row.topic + as_count(1, True) + wanted + NO_TAGS + NO_TAGS)
    parts.append(as_count(0, True) + as_count(0, True) + NO_TAGS)  # nothing is forgotten, no rack
    return b"".join(parts)


def fetched(data: memoryview) -> tuple[Error, list[PartitionCopy]]:
    """The answer whose body, behind the correlation, is `data`: its own error, and its partitions."""
    at = skip_tags(data, 0) + 4
    error = Error(INT16.unpack_from(data, at)[0])
    count, at = count_of(data, at + 6, True)
    rows = []
    for _ in range(count):
        topic, at = topic_key(data, at, True, True)
        partitions, at = count_of(data, at, True)
        for _ in range(partitions):
            row, at = _partition(data, at, topic)
            rows.append(row)
        at = skip_tags(data, at)
    return error, rows


def _partition(data: memoryview, at: int, topic: bytes) -> tuple[PartitionCopy, int]:
    partition, error, high, _, start = COPIED.unpack_from(data, at)
    aborted, at = uvarint(data, at + COPIED.size)
    at += 17 * max(0, aborted - 1) + 4  # null, which is 0, for a follower; and the preferred replica
    first, at = bytes_span(data, at, True)
    return PartitionCopy(topic, partition, Error(error), high, start, data[first:at]), skip_tags(data, at)


def request(key: int, version: int, correlation: int, client_id: str, fields: dict[str, Any]) -> bytes:
    """A request of another API, header included."""
    names = _requests(key, version)
    body = names[next(n for n in names if n.endswith("Request"))](**fields)
    return written(key, version, correlation, client_id, body)


def written(key: int, version: int, correlation: int, client_id: str, body: Any) -> bytes:
    """A request whose body is one of kio's entities, header included."""
    from kio.serial import entity_writer

    out = io.BytesIO()
    entity_writer(type(body))(out, body)
    tags = b"\0" if body.__header_schema__.__flexible__ else b""
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


def _requests(key: int, version: int) -> dict[str, Any]:
    from kio.index import load_payload_module
    from kio.static.constants import EntityType

    return dict(vars(load_payload_module(key, version, EntityType.request)))
