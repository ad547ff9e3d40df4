"""Members of consumer groups (KIP-848), by hand: each remembers its epoch, and what it was told to read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID, uuid4

from tests.broker.groups.clients import Client, Turned

BEAT, DESCRIBE_CONSUMERS = 68, 69
FIRST: dict[str, Any] = {"rebalance_timeout": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
"""What a first heartbeat says beside its epoch 0."""


class Reader(Client):
    """A member of the group "g". `reads` is what it has, `told` what it was last told to have."""

    def __init__(self, served: Turned, client_id: str = "tester", instance: str | None = None) -> None:
        super().__init__(served, client_id)
        self.instance, self.member, self.epoch = instance, str(uuid4()), 0
        self.reads: set[tuple[UUID, int]] = set()
        self.assigned_now: set[tuple[UUID, int]] = set()

    def beat(self, version: int = 1, **said: Any) -> Any:
        """One heartbeat as it is said; nothing is remembered."""
        fields = {
            "group_id": "g", "member_id": self.member, "member_epoch": self.epoch, "instance_id": self.instance,
            "rack_id": None, "rebalance_timeout": -1, "subscribed_topic_names": None, "subscribed_topic_regex": None,
            "server_assignor": None, "topic_partitions": None,
        }  # fmt: skip
        return self.ask(BEAT, version, **{**fields, **said})

    def joins(self, *topics: str, rebalance: int = 60_000, **said: Any) -> Any:
        """Come with epoch 0."""
        self.epoch, self.reads = 0, set()
        names = list(topics) or None if said.get("subscribed_topic_regex") else list(topics) or ["t"]
        first = {"rebalance_timeout": rebalance, "subscribed_topic_names": names, "topic_partitions": []}
        return self.remembers(self.beat(**{**first, **said}))

    def says(self, **said: Any) -> Any:
        """A heartbeat with what it reads."""
        rows = [{"topic_id": topic, "partitions": [number]} for topic, number in self.reads]
        return self.remembers(self.beat(**{"topic_partitions": rows, **said}))

    def settles(self) -> Any:
        """Does what it was told, and says so, until there is nothing new."""
        while True:
            self.reads = set(self.assigned_now)
            before = self.epoch, set(self.assigned_now)
            answer = self.says()
            if (self.epoch, self.assigned_now) == before:
                return answer

    def remembers(self, answer: Any) -> Any:
        assert answer.error_code == 0, answer
        self.member, self.epoch = answer.member_id, answer.member_epoch
        if answer.assignment is not None:
            self.assigned_now = {
                (row.topic_id, n) for row in answer.assignment.topic_partitions for n in row.partitions
            }
        return answer

    def leaves(self, epoch: int = -1) -> int:
        return int(self.beat(member_epoch=epoch).error_code)

    @property
    def numbers(self) -> list[int]:
        """The partitions that it was told of."""
        return sorted(number for _, number in self.assigned_now)

    def again(self, served: Turned) -> Reader:
        """The same member, with a new connection."""
        after = Reader(served, self.client_id, self.instance)
        after.member, after.epoch = self.member, self.epoch
        after.reads, after.assigned_now = set(self.reads), set(self.assigned_now)
        return after

    def described(self) -> Any:
        return self.ask(DESCRIBE_CONSUMERS, 1, group_ids=["g"], include_authorized_operations=False).groups[0]


@contextmanager
def readers(served: Turned, *names: str) -> Iterator[list[Reader]]:
    """Several, closed in the end; there is a topic "t" with four partitions."""
    some = [Reader(served, name) for name in names]
    some[0].create_topic("t", 4)
    try:
        yield some
    finally:
        for reader in some:
            reader.close()
