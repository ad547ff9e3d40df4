"""A Kafka client of bare requests, for tests that must say exactly what goes over the wire and when."""

from __future__ import annotations

import dataclasses
import io
import socket
import struct
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from crc32c import crc32c
from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from waterclock.broker.wire.names import KEYS, NAMES


def batch(*values: bytes, timestamp_ms: int = 0) -> bytes:
    """A record batch of records without keys."""
    records = b"".join(_record(place, value) for place, value in enumerate(values))
    count = len(values)
    body = struct.pack(">hiqqqhii", 0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count) + records
    return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c(body)) + body


def _record(place: int, value: bytes) -> bytes:
    body = b"\0" + _varint(0) + _varint(place) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


class RawClient:
    """One connection. `send` returns at once, `receive` takes the next answer, `ask` does both."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=20)
        self._asked: list[tuple[int, int]] = []
        self._sent = 0
        self._out: Callable[[Any], None] = self._socket.sendall

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def close(self) -> None:
        self._socket.close()

    def send(self, api: str, version: int, answered: bool = True, **fields: Any) -> None:
        key = KEYS[api]
        module = vars(load_payload_module(key, version, EntityType.request))
        kind = module[f"{api}Request"]
        out = io.BytesIO()
        entity_writer(kind)(out, _entity(kind, fields))
        tags = b"\0" if kind.__header_schema__.__flexible__ else b""
        data = struct.pack(">hhih", key, version, self._sent, -1) + tags + out.getvalue()
        self._sent += 1
        if answered:
            self._asked.append((key, version))
        self._out(struct.pack(">i", len(data)) + data)

    @contextmanager
    def in_one_go(self) -> Iterator[None]:
        """What is sent meanwhile goes out together, at the end."""
        data = bytearray()
        self._out = data.extend
        yield
        self._out = self._socket.sendall
        self._out(data)

    def receive(self) -> Any:
        """The next answer; ConnectionError where the broker closed the connection."""
        data = self._exactly(struct.unpack(">i", self._exactly(4))[0])
        key, version = self._asked.pop(0)
        module = vars(load_payload_module(key, version, EntityType.response))
        kind = module[f"{NAMES[key]}Response"]
        return entity_reader(kind)(data, 5 if kind.__header_schema__.__flexible__ else 4)[0]

    def ask(self, api: str, version: int, **fields: Any) -> Any:
        self.send(api, version, **fields)
        return self.receive()

    def closed(self) -> bool:
        """Waits until the broker has closed the connection; False where an answer comes instead."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._socket.recv(size - len(data))
            if not more:
                raise ConnectionResetError("the broker closed the connection")
            data += more
        return data

    # The requests that most tests are about

    def send_produce(self, topic: str, *values: bytes, acks: int = -1, partition: int = 0) -> None:
        rows = [{"index": partition, "records": batch(*values)}]
        fields = {
            "acks": acks,
            "timeout": timedelta(seconds=10),
            "topic_data": [{"name": topic, "partition_data": rows}],
        }
        self.send("Produce", 9, answered=acks != 0, **fields)

    def produced(self) -> tuple[int, int]:
        """(error, offset) of the next answer to a Produce."""
        row = self.receive().responses[0].partition_responses[0]
        return row.error_code.value, row.base_offset

    def produce(self, topic: str, *values: bytes, acks: int = -1, partition: int = 0) -> tuple[int, int]:
        self.send_produce(topic, *values, acks=acks, partition=partition)
        return self.produced()

    def end(self, topic: str, partition: int = 0) -> int:
        """The high watermark."""
        topics = [{"name": topic, "partitions": [{"partition_index": partition, "timestamp": -1}]}]
        answer = self.ask("ListOffsets", 4, replica_id=-1, isolation_level=0, topics=topics)
        offset: int = answer.topics[0].partitions[0].offset
        return offset


def _entity(kind: Any, fields: dict[str, Any]) -> Any:
    """An entity of plain values: dicts for parts, lists for arrays; what is not named has its default."""
    values = {}
    for field in dataclasses.fields(kind):
        if field.name in fields:
            values[field.name] = _value(field.type, fields[field.name])
    return kind(**values)


def _value(kind: Any, value: Any) -> Any:
    if not isinstance(value, list):
        return value
    array = next(one for one in (kind, *typing.get_args(kind)) if typing.get_origin(one) is tuple)
    row = typing.get_args(array)[0]
    return tuple(_entity(row, one) if isinstance(one, dict) else one for one in value)
