"""Requests of consumer groups: the classic protocol with static members, KIP-848's, and offsets."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tests.simulation.kafka.codes import GROUP_HEARTBEAT, HEARTBEAT, JOIN, LEAVE, OFFSET_COMMIT, OFFSET_FETCH, SYNC
from tests.simulation.kafka.encoding import array, by_topic, compact, compact_array, data_of, text
from tests.simulation.kafka.requests import Place, Requests

Owned = Mapping[bytes, Iterable[int]]  # a topic's id: its partitions


class Beat(NamedTuple):
    """The answer to a heartbeat of KIP-848; `assigned` is None if nothing is new."""

    error: int
    member: str
    epoch: int
    assigned: dict[bytes, list[int]] | None


class GroupRequests(Requests):
    async def join(
        self, group: str, member: str, topics: Iterable[str], session_ms: int = 6000, instance: str | None = None
    ) -> tuple[int, int, str, str, list[str]]:
        """Error, generation, leader, member, all members."""
        meta = struct.pack(">h", 0) + array(text(t) for t in topics) + data_of(b"")
        body = text(group) + struct.pack(">ii", session_ms, 6000) + text(member) + text(instance) + text("consumer")
        answer = await self.call(JOIN, 5, body + array((text("range") + data_of(meta),)), 20.0)
        _, error, generation = answer.take("ihi")
        answer.text()
        leader, member = answer.text() or "", answer.text() or ""
        members = []
        for _ in range(answer.take("i")):
            members.append(answer.text() or "")
            answer.text()
            answer.bytes()
        return error, generation, leader, member, members

    async def sync(
        self, group: str, generation: int, member: str, assigned: Mapping[str, bytes], instance: str | None = None
    ) -> tuple[int, bytes]:
        rows = array(text(one) + data_of(data) for one, data in assigned.items())
        body = text(group) + struct.pack(">i", generation) + text(member) + text(instance) + rows
        answer = await self.call(SYNC, 3, body, 20.0)
        return answer.take("ih")[1], answer.bytes()

    async def heartbeat(self, group: str, generation: int, member: str, instance: str | None = None) -> int:
        body = text(group) + struct.pack(">i", generation) + text(member) + text(instance)
        return (await self.call(HEARTBEAT, 3, body)).take("ih")[1]

    async def leave(self, group: str, member: str) -> int:
        return (await self.call(LEAVE, 2, text(group) + text(member))).take("ih")[1]

    async def group_heartbeat(
        self, group: str, member: str, epoch: int, topics: Iterable[str] | None, owned: Owned | None
    ) -> Beat:
        """ConsumerGroupHeartbeat; epoch 0 joins and -1 leaves."""
        rows = None
        if owned is not None:
            rows = [
                topic + compact_array(struct.pack(">i", one) for one in some) + b"\0" for topic, some in owned.items()
            ]
        body = compact(group) + compact(member) + struct.pack(">i", epoch) + compact(None) + compact(None)
        body += struct.pack(">i", 5000) + compact_array(None if topics is None else map(compact, topics))
        answer = await self.call(GROUP_HEARTBEAT, 0, body + compact(None) + compact_array(rows) + b"\0", flexible=True)
        _, error = answer.take("ih")
        answer.compact()
        member = (answer.compact() or b"").decode()
        epoch, _ = answer.take("ii")
        if answer.take("b") < 0:
            return Beat(error, member, epoch, None)
        assigned = {}
        for _ in range(answer.uvarint() - 1):
            topic = answer.uuid()
            assigned[topic] = [answer.take("i") for _ in range(answer.uvarint() - 1)]
            answer.tags()
        return Beat(error, member, epoch, assigned)

    async def commit_offset(
        self, group: str, tp: Place, offset: int, generation: int = -1, member: str = "", instance: str | None = None
    ) -> int:
        if instance is None:
            row, version, named = struct.pack(">iq", tp[1], offset) + text(""), 5, b""
        else:
            row, version, named = struct.pack(">iqi", tp[1], offset, -1) + text(""), 7, text(instance)
        body = text(group) + struct.pack(">i", generation) + text(member) + named + by_topic(((tp[0], row),))
        return (await self.call(OFFSET_COMMIT, version, body)).first_error("i")

    async def commit_offset_2(self, group: str, tp: Place, offset: int, epoch: int, member: str) -> int:
        """OffsetCommit 9, as a member by KIP-848 has to."""
        row = struct.pack(">iqi", tp[1], offset, -1) + compact("") + b"\0"
        topic = compact(tp[0]) + compact_array((row,)) + b"\0"
        body = compact(group) + struct.pack(">i", epoch) + compact(member) + compact(None) + compact_array((topic,))
        answer = await self.call(OFFSET_COMMIT, 9, body + b"\0", flexible=True)
        answer.take("i")
        answer.uvarint()
        answer.compact()
        answer.uvarint()
        return answer.take("ih")[1]

    async def fetch_offset(self, group: str, tp: Place) -> tuple[int, int]:
        """Error, and the committed offset: -1 if there is none."""
        body = text(group) + by_topic(((tp[0], struct.pack(">i", tp[1])),))
        answer = await self.call(OFFSET_FETCH, 5, body)
        answer.take("i")
        answer.take("i")
        answer.text()
        answer.take("i")
        _, offset, _ = answer.take("iqi")
        answer.text()
        error = answer.take("h")
        return error or answer.take("h"), offset
