"""A member of a group, by the classic protocol and the assignor `cooperative-sticky`.

Rule 1: partitions that stay are read while the group shares anew. What is taken away is given back first, in `on_revoke`;
    then the member joins once more, and nobody else is given it before.
Rule 2: who is shut out, or has no answer for a session's time, has lost everything (`on_lost`), and joins anew.
Rule 3: whose static name is taken by another is told so (FENCED_INSTANCE_ID), and joins no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import Message, TopicPartition

from tests.simulation.confluent.requests import Gone, Kafka, error, partitions
from tests.simulation.confluent.waiting import begun
from tests.simulation.kafka.groups import assigned, packed, unpacked
from waterclock.simulation.world import MS, world

PROTOCOL = "cooperative-sticky"
JOINING_S = 25.0  # a machine without power says nothing; its TCP would, once it is back
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, NEEDS_ID, FENCED = 22, 25, 27, 79, 82


def described(topic: str, owned: Collection[int], generation: int) -> bytes:
    """What a member says of itself, with its generation as user data."""
    return packed("subscription.1", 1, [topic], generation.to_bytes(4, signed=True), [(topic, sorted(owned))])


def claims(data: bytes) -> tuple[int, list[int]]:
    """A member's generation, and what it says that it owns."""
    said = unpacked("subscription.1", data)
    return int.from_bytes(said.user, signed=True), said.owned[0].numbers


def shared(members: Mapping[str, tuple[int, list[int]]], count: int) -> dict[str, list[int]]:
    """Who gets what: each as many, what one has stays, and what another gives back first is left out."""
    owners = dict[int, str]()
    for name, (_, owned) in sorted(members.items(), key=lambda one: (one[1][0], one[0])):
        owners.update(dict.fromkeys(owned, name))  # of two, the later generation's
    least, more = divmod(count, len(members))
    given: dict[str, list[int]] = {name: [] for name in sorted(members)}
    for number in range(count):
        name = owners.get(number)
        if name is not None and len(given[name]) < least + (more > 0):
            given[name].append(number)
            more -= len(given[name]) == least + 1
    taken = {number for some in given.values() for number in some}
    for number in (number for number in range(count) if number not in taken):
        name = min(given, key=lambda one: (len(given[one]), one))
        given[name].append(number)
    return {name: [n for n in some if owners.get(n, name) == name] for name, some in given.items()}


class Membership:
    """`hear` are a consumer's callbacks: on_assign, on_revoke, on_lost."""

    def __init__(
        self, consumer: Any, settings: Mapping[str, Any], topic: str, hear: Mapping[str, Callable[..., object]]
    ) -> None:
        self._consumer, self._settings, self._topic, self._hear = consumer, settings, topic, hear
        self._process = consumer._process
        self._kafka = Kafka(self._process, world().network, self._process.where)
        self.group, self._instance = settings["group.id"], settings.get("group.instance.id")
        self.member, self.generation = "", -1
        self._owned: set[int] = set()
        self._is_left = False
        self._verdict = 0

    def begin(self) -> None:
        begun(self._process, self._run())

    def leave(self) -> None:
        """Give everything back, then say so; librdkafka (2.16) does it in `unsubscribe` for a static member too, and is
        silent only if it is closed without."""
        self._is_left = True
        self._consumer.put(lambda: self._call("on_revoke", self._owned) if self._owned else None)
        begun(self._process, self._say_goodbye())

    async def _say_goodbye(self) -> None:
        try:
            if self.member:
                await self._kafka.ask("leave_group.3", self.group, [(self.member, self._instance)])
        except Gone:
            pass
        self._kafka.close()

    def _call(self, name: str, numbers: Iterable[int]) -> None:
        places = [TopicPartition(self._topic, number) for number in sorted(numbers)]
        self._hear[name](self._consumer, places)

    async def _told(self, name: str, numbers: Iterable[int]) -> None:
        """Have the callback made in the consumer's `poll`, and wait for it."""
        over, numbers = asyncio.Event(), sorted(numbers)

        def tell() -> None:
            if not (self._is_left and name == "on_assign"):
                self._call(name, numbers)
            self._process.loop.call_soon(over.set)

        self._consumer.put(tell)
        await over.wait()

    async def _run(self) -> None:
        while not self._is_left:
            try:
                await self._join()
            except Gone:
                await asyncio.sleep(0.1)

    async def _join(self) -> None:
        """Join, and stay until the group shares anew."""
        session_ms = int(self._settings["session.timeout.ms"])
        rows = [(PROTOCOL, described(self._topic, self._owned, self.generation))]
        asked = (self.group, session_ms, 300_000, self.member, self._instance, "consumer", rows)
        answer = await self._kafka.ask("join_group", *asked, timeout_s=JOINING_S)
        code = answer.error
        if code == NEEDS_ID:
            self.member = answer.member
            return
        if code:
            await self._refused(code)
            return
        self.member, generation = answer.member, answer.generation
        share = dict[str, list[int]]()
        if answer.leader == answer.member:
            said = {one.member: claims(one.metadata) for one in answer.members}
            share = shared(said, (await partitions(self._kafka, self._topic))[1])
        await self._sync(generation, share)

    async def _sync(self, generation: int, share: Mapping[str, list[int]]) -> None:
        rows = [(name, packed("assignment", 1, [(self._topic, numbers)], b"")) for name, numbers in share.items()]
        asked = (self.group, generation, self.member, self._instance, rows)
        answer = await self._kafka.ask("sync_group", *asked, timeout_s=20.0)
        if answer.error:
            await self._refused(answer.error)
            return
        self.generation, self._verdict = generation, 0
        beating = self._process.loop.create_task(self._beat(generation))
        given = {number for _, number in assigned(answer.assignment)}
        world().log(self._process.name, "is given", self._topic, sorted(given), "of generation", generation)
        revoked, new = self._owned - given, given - self._owned
        if revoked:
            await self._told("on_revoke", revoked)
            self._owned -= revoked
        if not revoked or new:
            await self._told("on_assign", new)
            self._owned |= new
        if revoked:
            self._verdict = self._verdict or REBALANCING
        while not self._verdict and not self._is_left:
            await asyncio.sleep(0.05)
        beating.cancel()
        if self._verdict and not self._is_left:
            await self._refused(self._verdict)

    async def _beat(self, generation: int) -> None:
        heard, session = world().now, self._settings["session.timeout.ms"] * MS
        while not self._verdict and not self._is_left:
            await asyncio.sleep(self._settings["heartbeat.interval.ms"] / 1000)
            try:
                asked = (self.group, generation, self.member, self._instance)
                code = (await self._kafka.ask("heartbeat", *asked, timeout_s=session / 1e9)).error
                self._kafka.elsewhere(code)
            except Gone:
                code = -1
            if not code:
                heard = world().now
            elif code in (ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, FENCED):
                self._verdict = code
            elif world().now - heard > session:
                self._verdict = UNKNOWN_MEMBER

    async def _refused(self, code: int) -> None:
        """What the group's word means (rules 2 and 3)."""
        world().log(self._process.name, "in", self.group, "is told", code)
        if code == REBALANCING:
            return
        if code == FENCED:
            self._is_left = True
            self._consumer.put(Message(error=error(code, fatal=True)))
            return
        if code not in (ILLEGAL_GENERATION, UNKNOWN_MEMBER):
            self._kafka.elsewhere(code)
            await asyncio.sleep(0.1)
            return
        self.member, self.generation = "" if code == UNKNOWN_MEMBER else self.member, -1
        if self._owned:
            await self._told("on_lost", self._owned)
            self._owned.clear()
