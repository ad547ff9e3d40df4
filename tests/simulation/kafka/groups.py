"""Requests of consumer groups: the classic protocol with static members, KIP-848's, and their commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.simulation.kafka.client import Kafka, Place
from tests.simulation.kafka.encoding import Answer, message


def packed(name: str, *values: Any) -> bytes:
    """What members say to each other."""
    return message(name).write(*values)


def unpacked(name: str, data: bytes) -> Any:
    return message(name).read(Answer(data))


def assigned(data: bytes) -> list[Place]:
    """What a member was given."""
    topics = unpacked("assignment", data).topics if data else ()
    return [(topic.name, number) for topic in topics for number in topic.numbers]


async def join(kafka: Kafka, group: str, member: str, topics: list[str], instance: str | None) -> Any:
    protocols = [("range", packed("subscription", 0, topics, b""))]
    return await kafka.ask("join_group", group, 6000, 6000, member, instance, "consumer", protocols, timeout_s=20.0)


async def sync(
    kafka: Kafka, group: str, generation: int, member: str, assigned: Mapping[str, bytes], instance: str | None
) -> tuple[int, bytes]:
    asked = (group, generation, member, instance, assigned.items())
    answer = await kafka.ask("sync_group", *asked, timeout_s=20.0)
    return answer.error, answer.assignment or b""


async def group_heartbeat(
    kafka: Kafka,
    group: str,
    member: str,
    epoch: int,
    topics: Iterable[str] | None,
    owned: Mapping[bytes, Iterable[int]] | None,
) -> Any:
    """Of KIP-848; epoch 0 joins and -1 leaves."""
    rows = None if owned is None else owned.items()
    return await kafka.ask("consumer_group_heartbeat", group, member, epoch, None, None, 5000, topics, None, rows)


async def commit_offset(
    kafka: Kafka,
    group: str,
    tp: Place,
    offset: int,
    generation: int = -1,
    member: str = "",
    instance: str | None = None,
) -> int:
    if instance is None:
        answer = await kafka.ask("offset_commit", group, generation, member, [(tp[0], [(tp[1], offset, "")])])
    else:
        rows = [(tp[0], [(tp[1], offset, -1, "")])]
        answer = await kafka.ask("offset_commit.7", group, generation, member, instance, rows)
    return int(answer.topics[0].partitions[0].error)


async def commit_offset_2(kafka: Kafka, group: str, tp: Place, offset: int, epoch: int, member: str) -> int:
    """As a member by KIP-848 has to."""
    answer = await kafka.ask("offset_commit.9", group, epoch, member, None, [(tp[0], [(tp[1], offset, -1, "")])])
    return int(answer.topics[0].partitions[0].error)
