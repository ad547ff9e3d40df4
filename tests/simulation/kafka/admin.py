"""Requests about topics and ACLs."""

from __future__ import annotations

import struct
from collections.abc import Mapping

from tests.simulation.kafka.codes import CREATE_ACLS, CREATE_TOPICS, DELETE_ACLS, DELETE_TOPICS, METADATA
from tests.simulation.kafka.encoding import array, compact, compact_array, text
from tests.simulation.kafka.requests import Requests

TOPIC, LITERAL, WRITE, DENY = 2, 3, 4, 2  # of ACLs: a resource, a pattern, an operation, a permission


class AdminRequests(Requests):
    async def create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> int:
        rows = array(text(key) + text(value) for key, value in configs.items())
        topic = text(name) + struct.pack(">ih", partitions, 1) + array(()) + rows
        answer = await self.call(CREATE_TOPICS, 4, array((topic,)) + struct.pack(">ib", 10_000, 0))
        answer.take("i")
        answer.take("i")
        answer.text()
        return answer.take("h")

    async def make_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> tuple[int, bytes]:
        """Error, and the topic's id: CreateTopics 7."""
        rows = compact_array(compact(key) + compact(value) + b"\0" for key, value in configs.items())
        topic = compact(name) + struct.pack(">ih", partitions, 1) + compact_array(()) + rows + b"\0"
        body = compact_array((topic,)) + struct.pack(">ib", 10_000, 0) + b"\0"
        answer = await self.call(CREATE_TOPICS, 7, body, flexible=True)
        answer.take("i")
        answer.uvarint()
        answer.compact()
        number = answer.uuid()
        return answer.take("h"), number

    async def delete_topic(self, name: str) -> int:
        answer = await self.call(DELETE_TOPICS, 3, array((text(name),)) + struct.pack(">i", 10_000))
        answer.take("i")
        answer.take("i")
        answer.text()
        return answer.take("h")

    async def topic_id(self, name: str) -> tuple[int, bytes]:
        """Error and id of a topic: Metadata 10."""
        body = compact_array((bytes(16) + compact(name) + b"\0",)) + bytes(3) + b"\0"
        answer = await self.call(METADATA, 10, body, flexible=True)
        answer.take("i")
        for _ in range(answer.uvarint() - 1):
            answer.take("i")
            answer.compact()
            answer.take("i")
            answer.compact()
            answer.tags()
        answer.compact()
        answer.take("i")
        answer.uvarint()
        error = answer.take("h")
        answer.compact()
        return error, answer.uuid()

    async def deny(self, topic: str, principal: str) -> int:
        """Forbid `principal` to write to a topic."""
        answer = await self.call(CREATE_ACLS, 1, array((_acl(topic, principal),)))
        answer.take("i")
        answer.take("i")
        return answer.take("h")

    async def allow(self, topic: str, principal: str) -> int:
        """Take that back."""
        answer = await self.call(DELETE_ACLS, 1, array((_acl(topic, principal),)))
        answer.take("i")
        answer.take("i")
        return answer.take("h")


def _acl(topic: str, principal: str) -> bytes:
    named = struct.pack(">b", TOPIC) + text(topic) + struct.pack(">b", LITERAL)
    return named + text(principal) + text("*") + struct.pack(">bb", WRITE, DENY)
