"""Consumers of the classic protocol by hand, that say in JoinGroup what they read, as real clients do."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from tests.broker.groups.clients import Person, Turned
from waterclock.broker.wire.errors import Error

Part = tuple[str, int]
EAGER, COOPERATIVE = "range", "cooperative-sticky"


class OldReader(Person):
    """A consumer of the group "g". `reads` is what it has been given; an eager one lets go of it all to join again."""

    def __init__(
        self, served: Turned, client_id: str = "tester", instance: str | None = None, way: str = EAGER
    ) -> None:
        super().__init__(served, client_id, instance=instance)
        self.way, self.topics = way, ["t"]
        self.reads: set[Part] = set()
        self.session = 10_000

    def says(self) -> dict[str, bytes]:
        """What it names in JoinGroup: its protocol, and the bytes for it."""
        return {self.way: subscription(self.topics, self.reads if self.way == COOPERATIVE else ())}

    def asks(self, **said: Any) -> Any:
        """Send JoinGroup, with an id asked for first where that must be."""
        if self.way == EAGER:
            self.reads = set()
        return self.comes(protocols=self.says(), session=self.session, **said)

    def enters(self, **said: Any) -> Any:
        """Join, and take its share; it divides by itself if it leads."""
        return self.shares(self.takes(self.asks(**said)))

    def shares(self, joined: Any) -> Any:
        """SyncGroup after that answer to JoinGroup; a leader gives everything to the first, who is itself."""
        led = {self.member: assignment(("t", number) for number in range(4))} if joined.members else {}
        synced = self.syncs(led).get()
        if synced.error_code == Error.NONE:
            self.reads = set(parts(synced.assignment))
        return synced

    def follows(self) -> int:
        """A heartbeat; told to join again, it does. The value is the heartbeat's error."""
        error = self.beats()
        if error == Error.REBALANCE_IN_PROGRESS:
            self.enters()
        return error

    @property
    def numbers(self) -> list[int]:
        return sorted(number for _, number in self.reads)


def text(name: str) -> bytes:
    data = name.encode()
    return struct.pack(">h", len(data)) + data


def rows(some: Iterable[Part]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(some):
        by_topic.setdefault(topic, []).append(number)
    data = struct.pack(">i", len(by_topic))
    for topic, numbers in by_topic.items():
        data += text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return data


def subscription(topics: Iterable[str], owned: Iterable[Part] = (), version: int = 1) -> bytes:
    """What a consumer says of itself: ConsumerProtocolSubscription."""
    names = list(topics)
    data = struct.pack(">hi", version, len(names)) + b"".join(map(text, names)) + struct.pack(">i", -1)
    return data + (rows(owned) if version >= 1 else b"")


def assignment(some: Iterable[Part], user_data: bytes | None = None) -> bytes:
    """What a leader gives a consumer: ConsumerProtocolAssignment."""
    size = -1 if user_data is None else len(user_data)
    return struct.pack(">h", 1) + rows(some) + struct.pack(">i", size) + (user_data or b"")


def parts(data: bytes) -> list[Part]:
    """The partitions of an assignment, which must end where it says. No bytes are none."""
    if not data:
        return []
    (count,), at, found = struct.unpack_from(">i", data, 2), 6, []
    for _ in range(count):
        (size,) = struct.unpack_from(">h", data, at)
        topic = data[at + 2 : at + 2 + size].decode()
        at += 2 + size
        (several,) = struct.unpack_from(">i", data, at)
        found += [(topic, number) for number in struct.unpack_from(f">{several}i", data, at + 4)]
        at += 4 + 4 * several
    assert data[at:] == struct.pack(">i", -1), data[at:]
    return found
