"""Requests and answers of Kafka's protocol over a plain socket: what clients hide.

Rule 1: fields carry the names of `kio`; a field that is not given is zero, empty or its default.
Rule 2: a field that this version of a request does not have is left out; one that no version has is a TypeError.
Rule 3: durations are whole milliseconds here, as on the wire.
"""

from __future__ import annotations

import dataclasses
import datetime
import io
import socket
import struct
import types
import typing
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Self

from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

KEYS = {name: key for key, name in api_key_map.items()}
PATIENCE_S = 10.0


class Closed(ConnectionResetError):
    """The other side closed the connection."""


class Wire:
    """One connection. `ask` sends a request and reads its answer; `send` and `receive` do one half each."""

    def __init__(self, bootstrap: str, client_id: str | None = "conformance", patience_s: float = PATIENCE_S) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._patience_s = patience_s
        self._socket = socket.create_connection((host, int(port)), patience_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._correlation = 0
        self._pending: list[int] = []  # correlation ids of requests whose answers were not read yet
        self._held: bytearray | None = None  # what is sent together

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, api: str, version: int, **fields: Any) -> Any:
        """The answer to one request."""
        self.send(api, version, **fields)
        return self.receive(api, version)

    def send(self, api: str, version: int, *, answered: bool = True, **fields: Any) -> int:
        """Send one request; the value is its correlation id."""
        self.send_frame(self.encoded(api, version, **fields))
        if answered:
            self._pending.append(self._correlation)
        return self._correlation

    def receive(self, api: str, version: int) -> Any:
        """Read one answer, which must be the next, and hold nothing behind its last field."""
        frame = self.receive_frame()
        response = load_response_schema(KEYS[api], version)
        header, start = entity_reader(response.__header_schema__)(frame, 0)
        assert header.correlation_id == self._pending.pop(0)
        answer, size = entity_reader(response)(frame, start)
        assert start + size == len(frame), f"{len(frame) - start - size} bytes behind the answer to {api} {version}"
        return answer

    def encoded(self, api: str, version: int, **fields: Any) -> bytes:
        """Header and body of a request, without the size in front."""
        if unknown := set(told_names(fields)) - known_names(api):
            raise TypeError(f"no version of {api} has {sorted(unknown)}; there are {sorted(known_names(api))}")
        kind = request_type(api, version)
        self._correlation += 1
        buffer = io.BytesIO()
        header = kind.__header_schema__
        reply = {"request_api_key": KEYS[api], "request_api_version": version, "client_id": self._client_id}
        entity_writer(header)(buffer, entity(header, {**reply, "correlation_id": self._correlation}))
        entity_writer(kind)(buffer, entity(kind, fields))
        return buffer.getvalue()

    def send_frame(self, frame: bytes) -> None:
        """Send bytes with their size in front."""
        self.send_bytes(struct.pack(">i", len(frame)) + frame)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they stand."""
        if self._held is None:
            self._socket.sendall(data)
        else:
            self._held += data

    @contextmanager
    def in_one_go(self) -> Iterator[None]:
        """What is sent meanwhile goes out together, at the end."""
        self._held = bytearray()
        yield
        data, self._held = self._held, None
        self._socket.sendall(data)

    def receive_frame(self) -> bytes:
        """Read one frame; Closed where the other side has closed."""
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                part = self._socket.recv(size - len(data))
            except ConnectionError as error:
                raise Closed from error
            if not part:
                raise Closed
            data += part
        return bytes(data)

    def is_quiet(self, patience_s: float = 0.05) -> bool:
        """Nothing to read, and not closed, for as long as that; at 0, for now."""
        self._socket.settimeout(patience_s)
        try:
            return not self._socket.recv(1, socket.MSG_PEEK) and False
        except (TimeoutError, BlockingIOError):
            return True
        finally:
            self._socket.settimeout(self._patience_s)

    def ends(self) -> bool:
        """Wait until the other side has closed; False if an answer comes instead."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True


@cache
def request_type(api: str, version: int) -> Any:
    return load_request_schema(KEYS[api], version)


@cache
def hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


@cache
def known_names(api: str) -> frozenset[str]:
    """Every field's name in every version of a request."""
    found: set[str] = set()
    kinds = [request_type(api, version) for version in schema_name_map[api]]
    while kinds:
        kind = kinds.pop()
        found |= {field.name for field in dataclasses.fields(kind)}
        inner = [a for hint in hints(kind).values() for a in (hint, *typing.get_args(hint))]
        inner += [a for hint in inner for a in typing.get_args(hint)]
        kinds += [a for a in inner if dataclasses.is_dataclass(a)]
    return frozenset(found)


def told_names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from told_names(item)


def entity(kind: Any, values: dict[str, Any]) -> Any:
    """An entity of `kio` out of plain values."""
    made = {}
    for field in dataclasses.fields(kind):
        if field.name in values:
            made[field.name] = plain(hints(kind)[field.name], values[field.name])
        elif field.default is dataclasses.MISSING:
            made[field.name] = zero(hints(kind)[field.name])
    return kind(**made)


def plain(kind: Any, value: Any) -> Any:
    """A plain value as `kio` wants it: dicts become entities, lists tuples, milliseconds time spans."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = typing.get_args(kind)[0]
    if value is None:
        return None
    if typing.get_origin(kind) is tuple:
        return tuple(plain(typing.get_args(kind)[0], item) for item in value)
    if dataclasses.is_dataclass(kind):
        return entity(kind, value)
    timed = issubclass(kind, datetime.timedelta) and not isinstance(value, datetime.timedelta)
    return datetime.timedelta(milliseconds=value) if timed else value


def zero(kind: Any) -> Any:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return None
    if typing.get_origin(kind) is tuple:
        return ()
    if dataclasses.is_dataclass(kind):
        return entity(kind, {})
    if issubclass(kind, uuid.UUID):
        return uuid.UUID(int=0)
    if issubclass(kind, datetime.timedelta):
        return datetime.timedelta(0)
    return next((base() for base in (bool, int, float, str, bytes) if issubclass(kind, base)), None)
