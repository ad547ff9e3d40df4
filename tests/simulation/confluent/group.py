"""A member of a group, by the classic protocol and the assignor `cooperative-sticky`.

Rule 1: partitions that stay are read while the group shares anew. What is taken away is given back first, in `on_revoke`;
    then the member joins once more, and nobody else is given it before.
Rule 2: who is shut out, or has no answer for a session's time, has lost everything (`on_lost`), and joins anew.
Rule 3: whose static name is taken by another is told so (FENCED_INSTANCE_ID), and joins no more.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import Message, TopicPartition

from tests.simulation.confluent.admin import assigned
from tests.simulation.confluent.requests import Gone, Kafka, ask, error, ms, partitions
from tests.simulation.confluent.waiting import begun
from tests.simulation.kafka.encoding import array, data_of, text
from waterclock.simulation.world import MS, world

PROTOCOL = "cooperative-sticky"
JOINING_S = 25.0  # a machine without power says nothing; its TCP would, once it is back
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, NEEDS_ID, FENCED = 22, 25, 27, 79, 82


def described(topic: str, owned: Collection[int], generation: int) -> bytes:
    """What a member says of itself: ConsumerProtocolSubscription 1, with its generation as user data."""
    numbers = array(struct.pack(">i", number) for number in sorted(owned))
    return struct.pack(">h", 1) + array((text(topic),)) + data_of(struct.pack(">i", generation)) + array(
        (text(topic) + numbers,))  # fmt: skip


def claims(data: bytes) -> tuple[int, list[int]]:
    """A member's generation, and what it says that it owns."""
    (size,) = struct.unpack_from(">h", data, 6)
    at = 8 + size
    generation, _, size = struct.unpack_from(">iih", data, at + 4)
    (count,) = struct.unpack_from(">i", data, at + 14 + size)
    return generation, list(struct.unpack_from(f">{count}i", data, at + 18 + size))


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
                one = {"member_id": self.member, "group_instance_id": self._instance}
                await ask(self._kafka, "leave_group", group_id=self.group, members=[one])
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
        session = ms(self._settings["session.timeout.ms"])
        rows = [{"name": PROTOCOL, "metadata": described(self._topic, self._owned, self.generation)}]
        answer = await ask(
            self._kafka, "join_group", JOINING_S, group_id=self.group, session_timeout=session,
            rebalance_timeout=ms(300_000), member_id=self.member, group_instance_id=self._instance,
            protocol_type="consumer", protocols=rows,
        )  # fmt: skip
        code = int(answer.error_code)
        if code == NEEDS_ID:
            self.member = answer.member_id
            return
        if code:
            await self._refused(code)
            return
        self.member, generation = answer.member_id, answer.generation_id
        share = dict[str, list[int]]()
        if answer.leader == answer.member_id:
            said = {one.member_id: claims(bytes(one.metadata)) for one in answer.members}
            share = shared(said, (await partitions(self._kafka, self._topic))[1])
        await self._sync(generation, share)

    async def _sync(self, generation: int, share: Mapping[str, list[int]]) -> None:
        rows = [{"member_id": name, "assignment": self._packed(numbers)} for name, numbers in share.items()]
        answer = await ask(
            self._kafka, "sync_group", 20.0, group_id=self.group, generation_id=generation, member_id=self.member,
            group_instance_id=self._instance, assignments=rows,
        )  # fmt: skip
        if code := int(answer.error_code):
            await self._refused(code)
            return
        self.generation, self._verdict = generation, 0
        beating = self._process.loop.create_task(self._beat(generation))
        given = {one.partition for one in assigned(bytes(answer.assignment))}
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

    def _packed(self, numbers: Iterable[int]) -> bytes:
        row = text(self._topic) + array(struct.pack(">i", number) for number in numbers)
        return struct.pack(">h", 1) + array((row,)) + data_of(b"")

    async def _beat(self, generation: int) -> None:
        heard, session = world().now, self._settings["session.timeout.ms"] * MS
        while not self._verdict and not self._is_left:
            await asyncio.sleep(self._settings["heartbeat.interval.ms"] / 1000)
            try:
                answer = await ask(
                    self._kafka, "heartbeat", session / 1e9, group_id=self.group, generation_id=generation,
                    member_id=self.member, group_instance_id=self._instance,
                )  # fmt: skip
                code = int(answer.error_code)
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
