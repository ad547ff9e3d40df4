"""Requests that nobody meant, to every API: the connection closes with one line in the log, and the broker lives.

Rule 1: what is sent is random, seeded by the API's key: a failure comes again.
"""

from __future__ import annotations

import logging
import random
import resource
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.processes import alone
from waterclock.broker import Broker

COUNTS = (
    b"\xff\xff\xff\xff\x07",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80",
    b"\0",
    b"\xff\xff\xff\xff\xff\xff",
)
REQUESTS = 40
MOST_GROWN_KB = 100 << 10


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"auto.create.topics.enable": "false"}) as broker:
        broker.create_topic("t", 2)
        yield broker


@pytest.fixture(autouse=True)
def none_is_a_traceback(broker: Broker, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Afterwards the broker serves, and no handler said more than its line."""
    with caplog.at_level(logging.WARNING):
        yield
    with RawClient(broker.bootstrap) as client:
        # acks=1: a fetch that says it is a follower's counts as one for replica.lag.time.max.ms, and acks=all waits for it
        assert client.produce("t", b"still here", acks=1)[0] == 0
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
    assert [record.name for record in caplog.records if record.name == "asyncio"] == []


def ranges() -> list[tuple[int, int]]:
    with Broker() as broker:
        table = broker.call(lambda: broker.inside.table.ranges())
    return [(key, version) for key, lowest, highest in table for version in sorted({lowest, highest})]


def served(broker: Broker, data: bytes) -> bytes:
    """What comes back for a request, until the broker closes or has answered once; b"" where it closed."""
    host, port = broker.bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=20) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        got = b""
        while more := sock.recv(1 << 16):
            got += more
        return got


def request(key: int, version: int, body: bytes) -> bytes:
    data = struct.pack(">hhih", key, version, 1, -1) + body
    return struct.pack(">i", len(data)) + data


def bodies(luck: random.Random) -> Iterator[bytes]:
    """Random bytes, zeros, and what looks like the beginning of a request with a count that is too large."""
    for _ in range(REQUESTS):
        size = luck.choice([0, 1, 3, 10, 40, 200, 1000])
        data = bytearray(luck.choice([luck.randbytes(size), bytes(size), b"\0\x02t" * (size // 3)]))
        if data and luck.random() < 0.7:
            at = luck.randrange(len(data))
            data[at : at + 4] = luck.choice(COUNTS)
        yield bytes(data)


@pytest.mark.parametrize(("key", "version"), ranges())
def test_no_request_harms_the_broker(broker: Broker, key: int, version: int) -> None:
    luck = random.Random(key * 100 + version)
    for body in bodies(luck):
        served(broker, request(key, version, body))


@pytest.mark.parametrize("data", [
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\0\0\0\0",
    b"\0\0\0\x03abc",
    struct.pack(">ihhih", 10, 999, 0, 1, -1),
    struct.pack(">ihhih", 10, 0, 99, 1, -1),
    struct.pack(">ihhih", 10, 3, -5, 1, 20_000),
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
], ids=["2 GB", "negative", "empty", "no header", "no API", "no version", "a long name", "a web browser"])  # fmt: skip
def test_what_is_no_request_closes_the_connection_with_one_line(
    broker: Broker, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    caplog.clear()
    assert served(broker, data) == b""
    assert len([record for record in caplog.records if record.name == "waterclock.broker"]) == 1


def huge() -> list[Any]:
    """Thirty megabytes of tiny elements, to the APIs that are read by hand and to one that is not."""
    count = 10 << 20
    produce = b"\0" + b"\0" + struct.pack(">hi", -1, 0)
    fetch = b"\0" + struct.pack(">iiiibii", -1, 0, 1, 1, 0, 0, -1)
    return [(key, version, head, count) for key, version, head in ((0, 9, produce), (1, 12, fetch), (3, 9, b"\0"))]


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


@pytest.mark.memory
@pytest.mark.parametrize(("key", "version", "head", "count"), huge(), ids=["Produce", "Fetch", "Metadata"])
def test_a_request_of_many_empty_elements_takes_no_memory_to_speak_of(
    key: int, version: int, head: bytes, count: int
) -> None:
    assert alone(grown_kb, key, version, head, count) < MOST_GROWN_KB


def grown_kb(key: int, version: int, head: bytes, count: int) -> int:
    """How far the most that the process held went up. The peak of one that ran other tests would hide it."""
    with Broker() as broker:
        data = request(key, version, head + uvarint(count + 1) + b"\x01\x01\x00" * count + b"\0\0\0")
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert served(broker, data) == b""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
