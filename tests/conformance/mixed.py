"""Groups with members of both protocols over the plain wire; the classic ones say in JoinGroup what real ones do."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Any

from tests.conformance.dialogue import Dialogue
from tests.conformance.groups import Member
from tests.conformance.readers import Reader
from tests.conformance.waiting import until

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

    def enter_anew(self) -> str:
        """Enter as nobody yet, as a client does whose id the coordinator has forgotten: Apache Kafka may clear a group away
        that is empty, between the answer that gives an id and the request that shows it."""
        self.id = ""
        return self.enter()

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


def subscription(topics: Iterable[str], owned: Iterable[Part] = (), version: int = 1) -> bytes:
    """What a consumer says of itself: ConsumerProtocolSubscription."""
    names = list(topics)
    data = struct.pack(">hi", version, len(names)) + b"".join(map(_text, names)) + struct.pack(">i", -1)
    return data + (_rows(owned) if version >= 1 else b"")


def assignment(some: Iterable[Part], user_data: bytes | None = None) -> bytes:
    """What a leader gives a consumer: ConsumerProtocolAssignment, version 1."""
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


Makes = Callable[..., OldReader]


class Mixed:
    """One group and its topic with four partitions; makes members, which have not joined yet."""

    def __init__(self, bootstrap: str, dialogue: Dialogue, group: str, topic: str) -> None:
        self._bootstrap, self.dialogue, self.group, self.topic = bootstrap, dialogue, group, topic
        self._made: list[OldReader] = []

    def old(self, instance: str | None = None, **fields: Any) -> OldReader:
        """One of the classic protocol."""
        self._made.append(OldReader(self._bootstrap, self.group, self.topic, instance, **fields))
        return self._made[-1]

    def new(self, instance: str | None = None) -> Reader:
        """One of the new protocol."""
        return Reader(self.dialogue, self.group, [self.topic], instance)

    def first(self) -> OldReader:
        """The only member of a classic group, with all four partitions."""
        one = self.old()
        until(lambda: one.enter_anew() == "none")
        assert len(one.owned) == 4
        return one

    def close(self) -> None:
        for one in self._made:
            one.wire.__exit__()


def owned(*members: Any) -> list[int]:
    return sorted(number for member in members for _, number in member.owned)


def settle(*members: Any, partitions: int = 4) -> None:
    """All go on until the partitions are shared, and nobody is to do anything."""

    def settled() -> bool:
        quiet = [error == "none" for error in [m.follow() if isinstance(m, OldReader) else m.error() for m in members]]
        sizes = [len(member.owned) for member in members]
        together = owned(*members)
        assert len(together) <= partitions, "a partition is owned by two"
        return all(quiet) and together == list(range(partitions)) and max(sizes) - min(sizes) <= 1

    until(settled)


def listed(dialogue: Dialogue, group: str) -> Any:
    (row,) = [row for row in dialogue.wire.ask("list_groups", 5).groups if row.group_id == group]
    return row


def kind(dialogue: Dialogue, group: str) -> str:
    return str(listed(dialogue, group).group_type)
