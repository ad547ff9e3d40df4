"""Consumers of the classic protocol over the plain wire, that say in JoinGroup what real ones do."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

from tests.conformance.groups import Member

Part = tuple[str, int]
EAGER, COOPERATIVE = "range", "cooperative-sticky"


class OldReader(Member):
    """A member that takes part: `owned` is what it was given; an eager one lets go of it all to join again."""

    def __init__(
        self, bootstrap: str, group: str, topic: str, instance: str | None = None, way: str = EAGER, **fields: Any
    ) -> None:
        super().__init__(bootstrap, group, instance, **fields)
        self.topics, self.way, self.owned = [topic], way, list[Part]()

    def enter(self, partitions: int = 4) -> str:
        """Join and sync; a leader takes everything. The value is the error of the first that has one."""
        if self.way == EAGER:
            self.owned = []
        said = {"name": self.way, "metadata": subscription(self.topics, self.owned)}
        joined = self.join(protocols=[said])
        if joined.error_code.name != "none":
            return str(joined.error_code.name)
        led = {self.id: assignment((self.topics[0], number) for number in range(partitions))}
        synced = self.share(**led if joined.members else {})
        if synced.error_code.name == "none":
            self.owned = parts(synced.assignment)
        return str(synced.error_code.name)

    def share(self, **led: bytes) -> Any:
        named = [{"member_id": member, "assignment": data} for member, data in led.items()]
        fields = self._identity(generation_id=self.generation, protocol_type="consumer", protocol_name=self.way)
        return self.wire.ask("sync_group", 5, **fields, assignments=named)

    def follow(self) -> str:
        """A heartbeat; told to join again, it does."""
        error = self.heartbeat()
        if error == "rebalance_in_progress":
            self.enter()
        return error

    @property
    def numbers(self) -> list[int]:
        return sorted(number for _, number in self.owned)


def _text(name: str) -> bytes:
    return struct.pack(">h", len(name)) + name.encode()


def _rows(some: Iterable[Part]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, number in sorted(some):
        topics.setdefault(topic, []).append(number)
    data = struct.pack(">i", len(topics))
    for topic, numbers in topics.items():
        data += _text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)
    return data


def subscription(topics: Iterable[str], owned: Iterable[Part] = ()) -> bytes:
    """ConsumerProtocolSubscription, version 1."""
    names = list(topics)
    return struct.pack(">hi", 1, len(names)) + b"".join(map(_text, names)) + struct.pack(">i", -1) + _rows(owned)


def assignment(some: Iterable[Part], user_data: bytes | None = None) -> bytes:
    """ConsumerProtocolAssignment, version 1."""
    size = -1 if user_data is None else len(user_data)
    return struct.pack(">h", 1) + _rows(some) + struct.pack(">i", size) + (user_data or b"")


def parts(data: bytes) -> list[Part]:
    """The partitions of an assignment."""
    (count,), at, found = struct.unpack_from(">i", data, 2), 6, list[Part]()
    for _ in range(count):
        (size,) = struct.unpack_from(">h", data, at)
        topic = data[at + 2 : at + 2 + size].decode()
        (several,) = struct.unpack_from(">i", data, at + 2 + size)
        at += 6 + size
        found += [(topic, number) for number in struct.unpack_from(f">{several}i", data, at)]
        at += 4 * several
    return found
