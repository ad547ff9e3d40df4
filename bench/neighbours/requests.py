"""Requests of Kafka's protocol as bytes, made by hand: a client that attacks must cost less than the broker.

Rule 1: every field is in the layout of the version that the function names; strings and arrays in the old form.
"""

from __future__ import annotations

import socket
import struct
import zlib
from collections.abc import Iterable

from crc32c import crc32c

from waterclock.bench.servers.server import USERS

CLIENT = b"bench"
GZIP = 1
GZIP_FORMAT = 31  # zlib's number for it


def frame(key: int, version: int, body: bytes = b"") -> bytes:
    """A request with its size and its header."""
    head = struct.pack(">hhih", key, version, 1, len(CLIENT)) + CLIENT
    return struct.pack(">i", len(head) + len(body)) + head + body


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">h", len(data)) + data


def metadata(*names: str) -> bytes:
    """Metadata v1; of all topics where none is named."""
    return frame(3, 1, struct.pack(">i", len(names) or -1) + b"".join(map(text, names)))


def list_groups() -> bytes:
    """ListGroups v0."""
    return frame(16, 0)


def create_topics(names: Iterable[str], partitions: int = 1, **settings: str) -> bytes:
    """CreateTopics v2."""
    words = b"".join(text(name) + text(value) for name, value in settings.items())
    rest = struct.pack(">ihii", partitions, 1, 0, len(settings)) + words
    rows = [text(name) + rest for name in names]
    return frame(19, 2, struct.pack(">i", len(rows)) + b"".join(rows) + struct.pack(">i?", 300_000, False))


def commit(group: str, topic: str) -> bytes:
    """OffsetCommit v5 of one offset, by nobody's member: it makes the group."""
    row = text(topic) + struct.pack(">iiq", 1, 0, 1) + text("")
    return frame(8, 5, text(group) + struct.pack(">i", -1) + text("") + struct.pack(">i", 1) + row)


def produce(topic: str, partition: int, batch: bytes, acks: int = -1) -> bytes:
    """Produce v7."""
    body = struct.pack(">hhiih", -1, acks, 30_000, 1, len(topic)) + topic.encode()
    return frame(0, 7, body + struct.pack(">iii", 1, partition, len(batch)) + batch)


def varint(value: int) -> bytes:
    value <<= 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def record(key: bytes, value: bytes) -> bytes:
    body = b"\0\0\0" + varint(len(key)) + key + varint(len(value)) + value + b"\0"
    return varint(len(body)) + body


def batch(records: bytes, count: int, codec: int = 0) -> bytes:
    """A record batch of records that are written already."""
    if codec == GZIP:
        packer = zlib.compressobj(9, wbits=GZIP_FORMAT)
        records = packer.compress(records) + packer.flush()
    rest = struct.pack(">hiqqqhii", codec, count - 1, 0, 0, -1, -1, -1, count) + records
    return struct.pack(">qiibI", 0, len(rest) + 9, 0, 2, crc32c(rest)) + rest


def connected(bootstrap: str, *, login: bool = False) -> socket.socket:
    """A connection, of somebody who has said who he is if `login`."""
    host, port = bootstrap.rsplit(":", 1)
    sock = socket.create_connection((host, int(port)), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if login:
        name, password = next(iter(USERS.items()))
        ask(sock, frame(17, 1, text("PLAIN")))
        token = f"\0{name}\0{password}".encode()
        ask(sock, frame(36, 0, struct.pack(">i", len(token)) + token))
    return sock


def ask(sock: socket.socket, request: bytes) -> bytes:
    """Send a request; the answer without its size."""
    sock.sendall(request)
    return answer(sock)


def answer(sock: socket.socket) -> bytes:
    size = int.from_bytes(_exactly(sock, 4), "big")
    return _exactly(sock, size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        if not (more := sock.recv(min(size - len(data), 1 << 20))):
            raise ConnectionResetError("the broker closed the connection")
        data += more
    return bytes(data)
