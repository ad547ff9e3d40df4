"""Consumers of the classic protocol by hand, that say in JoinGroup what they read, as real clients do."""

from __future__ import annotations

from typing import Any

from tests.broker.groups.clients import Person, Turned
from tests.broker.groups.consumer_members import Reader
from tests.conformance import mixed
from tests.conformance.mixed import COOPERATIVE, EAGER, Part, assignment, subscription
from waterclock.broker.wire.errors import Error

__all__ = ["COOPERATIVE", "EAGER", "OldReader", "Part", "assignment", "parts", "shared", "subscription"]


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

    def again(self, served: Turned) -> OldReader:
        """The same member, with a new connection."""
        after = OldReader(served, self.client_id, self.instance, self.way)
        after.member, after.generation, after.protocol = self.member, self.generation, self.protocol
        after.reads = set(self.reads)
        return after


def parts(data: bytes) -> list[Part]:
    """The partitions of an assignment, which must end where it says. No bytes are none."""
    found = mixed.parts(data) if data else []
    assert not data or data == assignment(found), data
    return found


def shared(ann: OldReader, bob: Reader) -> None:
    """Both go on until each has two of the four partitions."""
    for _ in range(4):
        ann.follows()
        bob.settles()
    assert (len(ann.numbers), len(bob.numbers)) == (2, 2)
    assert sorted([*ann.numbers, *bob.numbers]) == [0, 1, 2, 3]
