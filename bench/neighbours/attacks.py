"""What hostile clients do, each kind by its name, until they are ended.

    python -m waterclock.bench.neighbours.attacks BOOTSTRAP NAME prepare|attack

`attack` says `ready` once it is under way.

Rule 1: an attacker does what the protocol allows, as much of it as one process can.
Rule 2: whom the broker closes connects again.
"""

from __future__ import annotations

import itertools
import resource
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from waterclock.bench.neighbours import requests

CLAIM = 100 << 20
STRANGERS_CLAIM = 512 << 10
FLOODERS = 20
BOMB = 30 << 20  # bytes of a small batch when it is uncompressed: nearly the most that the broker takes
TOPICS, GROUPS = 10_000, 50_000


def begun(size: int, sent: int) -> bytes:
    """The beginning of a request that claims `size` bytes."""
    return struct.pack(">i", size) + requests.frame(18, 0)[4:] + b"\0" * sent


def slow(bootstrap: str) -> None:
    """5,000 connections that send a request a byte at a time, one byte each in a second or so."""
    request = requests.metadata("good")
    socks = _many(bootstrap, 5000)
    _ready()
    for byte in itertools.cycle(request):
        for place, sock in enumerate(socks):
            try:
                sock.send(bytes([byte]))
            except OSError:
                socks[place] = _anew(sock, bootstrap)
            if place % 50 == 0:
                time.sleep(0.01)


def claims(bootstrap: str) -> None:
    """60 connections that claim 100 MB each, and send 200 bytes."""
    _claim(bootstrap, 60, begun(CLAIM, 200))


def strangers(bootstrap: str) -> None:
    """1,500 connections that claim 512 KB each before they have said who they are."""
    _claim(bootstrap, 1500, begun(STRANGERS_CLAIM, 200))


def halves(bootstrap: str) -> None:
    """8 connections that send 90 of 100 MB, and no more."""
    _claim(bootstrap, 8, begun(CLAIM, 90 << 20))


def floods_of(request: Callable[[int], bytes], each: int, connections: int = FLOODERS) -> Callable[[str], None]:
    """Connections that ask as fast as the broker reads, `each` requests at a time, and read what is answered."""

    def flood(bootstrap: str) -> None:
        selector = selectors.DefaultSelector()
        for number in range(connections):
            sock = requests.connected(bootstrap)
            sock.setblocking(False)
            pending = Pending(request(number) * each)
            selector.register(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, pending)
        began = False
        while True:
            for key, events in selector.select():
                sock, pending = key.fileobj, key.data
                with suppress(BlockingIOError):
                    if events & selectors.EVENT_READ and not sock.recv(1 << 20):
                        return
                    if events & selectors.EVENT_WRITE:
                        pending.at = (pending.at + sock.send(pending.data[pending.at :])) % len(pending.data)
            if not began:
                began = True
                _ready()

    return flood


@dataclass
class Pending:
    """The requests of a connection, and how far the present round of them has been sent."""

    data: Any
    at: int = 0

    def __post_init__(self) -> None:
        self.data = memoryview(self.data)


def asks(request: Callable[[], bytes], connections: int) -> Callable[[str], None]:
    """Connections that ask one thing after the other, for its whole answer each time."""

    def ask(bootstrap: str) -> None:
        import threading

        def one(sock: socket.socket) -> None:
            while True:
                requests.ask(sock, request())

        socks = [requests.connected(bootstrap) for _ in range(connections)]
        threads = [threading.Thread(target=one, args=(sock,), daemon=True) for sock in socks]
        for thread in threads:
            thread.start()
        _ready()
        for thread in threads:
            thread.join()

    return ask


def bombs(record: bytes) -> Callable[[str], None]:
    """Small batches that hold 30 MB, into a topic that is compacted all the time."""

    def bomb(bootstrap: str) -> None:
        count = BOMB // len(record)
        batch = requests.batch(record * count, count, requests.GZIP)
        request = requests.produce("bombed", 0, batch, acks=1)
        sock = requests.connected(bootstrap)
        for sent in itertools.count():
            requests.ask(sock, request)
            if sent == 2:
                _ready()
            time.sleep(0.2)

    return bomb


def creates(bootstrap: str) -> None:
    """10,000 topics in one request, and their end in another, again and again."""
    sock = requests.connected(bootstrap)
    sock.settimeout(600)
    _ready()
    for turn in itertools.count():
        requests.ask(sock, requests.create_topics(_names(f"made{turn}")))


def with_topics(bootstrap: str) -> None:
    with requests.connected(bootstrap) as sock:
        sock.settimeout(600)
        requests.ask(sock, requests.create_topics(_names("known")))


def with_groups(bootstrap: str) -> None:
    with requests.connected(bootstrap) as sock:
        for first in range(0, GROUPS, 100):
            sock.sendall(b"".join(requests.commit(f"group.{first + n}", "good") for n in range(100)))
            for _ in range(100):
                requests.answer(sock)


def with_compaction(bootstrap: str) -> None:
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.bytes": str(1 << 20)}
    with requests.connected(bootstrap) as sock:
        requests.ask(sock, requests.create_topics(["bombed"], **settings))


def nothing(bootstrap: str) -> None:
    """There is nothing to prepare."""


@dataclass(frozen=True)
class Attack:
    """What is said of it in the table, how it is prepared, and what it does; `users`: the broker asks who one is."""

    what: str
    run: Callable[[str], None]
    prepare: Callable[[str], None] = nothing
    users: bool = False


def _produced(number: int) -> bytes:
    return requests.produce("flood", number % 4, requests.batch(requests.record(b"", b"x" * 100), 1))


ATTACKS = {
    "slow": Attack("5,000 connections that send a byte a second", slow),
    "claims": Attack("60 requests of 100 MB claimed, 200 bytes sent", claims),
    "strangers": Attack("1,500 requests of 512 KB claimed before login", strangers, users=True),
    "halves": Attack("8 requests of 100 MB, 90 MB of each sent", halves),
    "metadata": Attack("20 connections full of Metadata", floods_of(lambda n: requests.metadata("good"), 5000)),
    "acks": Attack("20 connections full of acks=all", floods_of(_produced, 1000)),
    "bomb": Attack(
        "gzip batches of 30 MB, one record each, compacted",
        bombs(requests.record(b"k", b"\0" * (BOMB - 100))),
        with_compaction,
    ),
    "bombs": Attack(
        "gzip batches of 30 MB, records of 10 bytes, compacted", bombs(requests.record(b"k", b"v")), with_compaction
    ),
    "creates": Attack("10,000 topics made in one request, again and again", creates),
    "topics": Attack("4 connections that ask for all of 10,000 topics", asks(requests.metadata, 4), with_topics),
    "groups": Attack("4 connections that list 50,000 groups", asks(requests.list_groups, 4), with_groups),
}  # fmt: skip


def _names(word: str) -> Iterator[str]:
    return (f"{word}.{n}" for n in range(TOPICS))


def _claim(bootstrap: str, connections: int, data: bytes) -> None:
    socks = _many(bootstrap, connections)
    left = {sock: memoryview(data) for sock in socks}
    told = False
    for turn in itertools.count():
        for sock in list(left):
            sock.setblocking(False)
            try:
                while left[sock] and (sent := sock.send(left[sock][: 1 << 20])):
                    left[sock] = left[sock][sent:]
                if not left[sock] and not sock.recv(1):
                    raise ConnectionResetError
            except BlockingIOError:
                pass
            except OSError:
                del left[sock]
                left[_anew(sock, bootstrap)] = memoryview(data)
        if not told and turn == 20:
            told = True
            _ready()
        time.sleep(0.02)


def _many(bootstrap: str, count: int) -> list[socket.socket]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return [requests.connected(bootstrap) for _ in range(count)]


def _anew(sock: socket.socket, bootstrap: str) -> socket.socket:
    sock.close()
    return requests.connected(bootstrap)


def _ready() -> None:
    print("ready", flush=True)


def main() -> None:
    bootstrap, name, what = sys.argv[1:]
    attack = ATTACKS[name]
    (attack.prepare if what == "prepare" else attack.run)(bootstrap)


if __name__ == "__main__":
    main()
