"""Members of consumer groups: by the classic protocol, static ones too, and by KIP-848's.

A member goes on where its group was, and commits what it has read. A commit of a member that is one no more is refused:
otherwise the group's offsets would fall back. Nobody asks for a commit twice: after a lost answer it is another member.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.simulation.clients.actor import Actor
from tests.simulation.kafka import codes as k
from tests.simulation.kafka import groups
from tests.simulation.kafka.client import Place
from tests.simulation.kafka.encoding import by_topic
from tests.simulation.kafka.fetching import fetch
from waterclock.simulation.world import NS

EXPIRED = (k.UNKNOWN_MEMBER, k.FENCED_INSTANCE, k.FENCED_MEMBER, k.UNRELEASED)
AGAIN = (*EXPIRED, k.MEMBER_ID_REQUIRED, k.REBALANCING, k.ILLEGAL_GENERATION, k.STALE_EPOCH, *k.RETRIABLE)
REBALANCE_NS = 5 * NS  # a member that lets go of nothing for so long may be fenced


class GroupReader(Actor):
    """What members of both protocols do with a partition."""

    def __init__(self, *args: Any, group: str, topic: str, partitions: int, instance: str | None = None) -> None:
        self.group, self.topic, self.instance = group, topic, instance
        self.places = [(topic, number) for number in range(partitions)]
        self.positions: dict[Place, int] = {}
        self.member = ""
        super().__init__(*args)

    async def commit(self, tp: Place, offset: int) -> int:
        raise NotImplementedError

    async def take_up(self, tp: Place) -> int:
        """Begin where the group is; the error."""
        floor = self.history.offset_floor.get((self.group, tp), -1)
        error, offset = await self.kafka.fetch_offset(self.group, tp)
        if not error:
            self.history.holds_offset(self.group, tp, offset, floor)
            self.positions[tp] = max(0, offset)
        return error

    async def read_on(self, tp: Place) -> int:
        """Read a little, and commit it; the error."""
        found = (await fetch(self.kafka, [(tp, self.positions[tp], 4000)], True, 50))[tp]
        if found.error or not found.batches:
            return found.error
        self.positions[tp] = max(self.positions[tp], found.batches[-1].last + 1)
        self.history.ops += 1
        self.history.asks_offset(self.group, tp, self.positions[tp])
        error = await self.commit(tp, self.positions[tp])
        self.tell("committed", tp, self.positions[tp], error)
        if not error:
            self.history.told_offset(self.group, tp, self.positions[tp])
        elif error not in AGAIN:
            self.refused("commit", error)
        return error

    async def failed(self, what: str, error: int) -> None:
        """After an answer with an error: who is it from now on?"""
        if error in EXPIRED:
            self.member = ""
        if error not in AGAIN:
            self.refused(what, error)
        await self.go_elsewhere(what, error)


class Member(GroupReader):
    """By the classic protocol: the leader divides, every generation begins anew."""

    generation = -1

    async def work(self) -> None:
        told = await groups.join(self.kafka, self.group, self.member, [self.topic], self.instance)
        error, self.generation, leader, member = told.error, told.generation, told.leader, told.member
        self.tell("joined", error, self.generation, member == leader)
        if error:
            await self.failed("join", error)
            self.member = member if error == k.MEMBER_ID_REQUIRED else self.member
            return None
        self.member = member
        assigned = self.divided([one.member for one in told.members]) if member == leader else {}
        error, data = await groups.sync(self.kafka, self.group, self.generation, self.member, assigned, self.instance)
        if error:
            return await self.failed("sync", error)
        await self.serve(groups.assigned(data))
        return None

    async def heartbeat(self) -> int:
        return int((await self.kafka.ask("heartbeat", self.group, self.generation, self.member, self.instance)).error)

    def divided(self, members: list[str]) -> Mapping[str, bytes]:
        return {
            one: groups.packed(
                "assignment", 0, by_topic(tp for tp in self.places if tp[1] % len(members) == number), b""
            )
            for number, one in enumerate(members)
        }

    async def commit(self, tp: Place, offset: int) -> int:
        return await groups.commit_offset(
            self.kafka, self.group, tp, offset, self.generation, self.member, self.instance
        )

    async def serve(self, mine: list[Place]) -> None:
        for tp in mine:
            if error := await self.take_up(tp):
                return await self.failed("offset", error)
        until = self.world.now + 3 * NS
        while not self.over:
            if self.world.now > until:
                until = self.world.now + 2 * NS
                if error := await self.heartbeat():
                    return await self.failed("heartbeat", error)
            for tp in mine:
                if error := await self.read_on(tp):
                    return await self.failed("read", error)
            await self.pause(0.01, 0.2)
        return None


class Claims:
    """Which member of KIP-848 has a partition: one at a time."""

    def __init__(self) -> None:
        self.owner: dict[tuple[str, Place], NewMember] = {}

    def claim(self, member: NewMember, tp: Place) -> None:
        known = self.owner.get((member.group, tp))
        if known is not None and known is not member and known.holds(tp):
            story = f"{tp} of {member.group} is given to {member.name}, and {known.name} has it"
            member.world.problem("shared", story)
        self.owner[member.group, tp] = member


class NewMember(GroupReader):
    """By KIP-848: the broker divides; a member lets go, says so, and is given more."""

    def begin(self) -> None:
        self.claims = self.history.part(Claims)
        self.lives, self.heard_ns, self.epoch = 0, 0, 0
        self.owned: dict[bytes, list[int]] = {}

    def holds(self, tp: Place) -> bool:
        """Whether it may believe that it has a partition, and the broker must know it."""
        known = self.process.alive and tp[1] in [one for some in self.owned.values() for one in some]
        return known and self.heard_ns + REBALANCE_NS > self.world.now

    async def work(self) -> None:
        """A member's life, from its joining on."""
        self.lives += 1
        self.member = f"{self.name}-{self.lives}"
        self.epoch, self.owned, self.positions = 0, {}, {}
        try:
            if await self.beat(self.places[0][:1], {}):
                await self.serve()
        finally:
            self.owned = {}
        if self.rng.random() < 0.5:
            await groups.group_heartbeat(self.kafka, self.group, self.member, -1, None, None)

    async def beat(self, topics: tuple[str, ...] | None, owned: dict[bytes, list[int]] | None) -> bool:
        """A heartbeat, and what it brings; False if the member is one no more."""
        asked_ns = self.world.now
        told = await groups.group_heartbeat(self.kafka, self.group, self.member, self.epoch, topics, owned)
        assigned = told.assigned and {topic.id: topic.numbers for topic in told.assigned.topics}
        self.tell("beat", told.error, told.epoch, assigned and sorted(assigned.values()))
        if told.error:
            await self.failed("beat", told.error)
            return False
        self.heard_ns, self.epoch = asked_ns, told.epoch
        return True if assigned is None else await self.reconcile(assigned)

    async def reconcile(self, assigned: dict[bytes, list[int]]) -> bool:
        """Let go first, then begin with what is new."""
        before = {one for some in self.owned.values() for one in some}
        now = {one for some in assigned.values() for one in some}
        for one in sorted(before - now):
            self.positions.pop((self.topic, one), None)
        self.owned = assigned
        for one in sorted(now - before):
            self.claims.claim(self, (self.topic, one))
            if error := await self.take_up((self.topic, one)):
                await self.failed("offset", error)
                return False
        return True if before == now else await self.beat(None, self.owned)

    async def serve(self) -> None:
        until = self.world.now + self.rng.randrange(2 * NS, 20 * NS)
        next_ns = 0
        while not self.over and self.world.now < until:
            if self.world.now > next_ns:
                next_ns = self.world.now + NS // 2
                if not await self.beat(None, None):
                    return None
            for tp in list(self.positions):
                error = await self.read_on(tp)
                if error in (k.STALE_EPOCH, *k.RETRIABLE):
                    await self.go_elsewhere("read", error)
                elif error:
                    return await self.failed("read", error)
            await self.pause(0.01, 0.2)
        return None

    async def commit(self, tp: Place, offset: int) -> int:
        return await groups.commit_offset_2(self.kafka, self.group, tp, offset, self.epoch, self.member)
