"""Questions about topics and groups, as `AdminClient` answers them: futures by what was asked.

Rule 1: librdkafka asks the controller for what it makes and describes of topics, and any broker for their list.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from confluent_kafka import ConsumerGroupState, IsolationLevel, KafkaError, TopicPartition

from tests.simulation.confluent.requests import AWAY, Gone, Kafka, error, metadata, offset_of, raised, topics
from tests.simulation.confluent.waiting import Future, begun, me
from tests.simulation.kafka.encoding import by_topic
from tests.simulation.kafka.groups import assigned
from waterclock.simulation.world import NS, world

TOPIC = 2  # of resources
STATES = {"Stable": ConsumerGroupState.STABLE, "Empty": ConsumerGroupState.EMPTY, "Dead": ConsumerGroupState.DEAD,
          "PreparingRebalance": ConsumerGroupState.PREPARING_REBALANCING,
          "CompletingRebalance": ConsumerGroupState.COMPLETING_REBALANCING}  # fmt: skip


def listed(process: Any, kafka: Kafka, topic: str | None, timeout_s: float) -> Any:
    """Topics and their partitions; KafkaException if nobody says."""
    names = None if topic is None else [topic]
    future = begun(process, topics(kafka, names))
    try:
        found = future.result(None if timeout_s < 0 else timeout_s)
    except (Gone, TimeoutError):
        raise raised(KafkaError._TRANSPORT, retriable=True) from None
    return SimpleNamespace(topics={
        name: SimpleNamespace(
            topic=name, error=error(one.error) if one.error else None,
            partitions={part.number: part for part in one.partitions},
        )
        for name, one in found.items()
    })  # fmt: skip


class AdminClient:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._process = me()
        self._kafka = Kafka(self._process, world().network, self._process.where)
        self._controls: Any = None  # the connection to the controller

    async def _to_controller(self) -> None:
        """Rule 1."""
        if (here := self._kafka.connection()) is self._controls:
            return
        said = await metadata(self._kafka, [])
        if here.address not in {(one.host, one.port) for one in said.brokers if one.id == said.controller}:
            here.close()
            raise Gone("not the controller")
        self._controls = here

    def list_topics(self, topic: str | None = None, timeout: float = -1.0) -> Any:
        return listed(self._process, self._kafka, topic, timeout)

    def _begun(self, timeout_s: float, work: Callable[[], Coroutine[Any, Any, Any]]) -> Future:
        """Asked again until there is an answer, or time is over."""
        until = world().now + round(timeout_s * NS)

        async def patient() -> Any:
            while True:
                try:
                    return await work()
                except Gone:
                    code = KafkaError._TIMED_OUT
                except _Away as away:
                    code = away.args[0]
                    self._kafka.elsewhere(code)
                if world().now >= until:
                    raise raised(code)
                await asyncio.sleep(0.1)

        return begun(self._process, patient())

    def create_topics(self, new: Sequence[Any], request_timeout: float = 60.0) -> dict[str, Future]:
        return {one.topic: self._begun(request_timeout, lambda one=one: self._create(one)) for one in new}

    async def _create(self, new: Any) -> None:
        await self._to_controller()
        row = new.topic, new.num_partitions, -1, [], (new.config or {}).items()
        _check((await self._kafka.ask("create_topics.5", [row], 10_000, 0)).topics[0].error)

    def describe_topics(
        self, names: Any, include_authorized_operations: bool = False, request_timeout: float = 60.0
    ) -> dict[str, Future]:
        return {one: self._begun(request_timeout, lambda one=one: self._describe(one)) for one in names.topic_names}

    async def _describe(self, name: str) -> Any:
        await self._to_controller()
        (found,) = (await topics(self._kafka, [name])).values()
        _check(found.error)
        id = str(uuid.UUID(bytes=found.id))
        return SimpleNamespace(topic_id=id, authorized_operations=None, partitions=found.partitions)

    def describe_configs(self, resources: Sequence[Any], request_timeout: float = 60.0) -> dict[Any, Future]:
        return {one: self._begun(request_timeout, lambda one=one: self._configs(one.name)) for one in resources}

    async def _configs(self, topic: str) -> dict[str, Any]:
        await self._to_controller()
        (found,) = (await self._kafka.ask("describe_configs", [(TOPIC, topic, None)], 0)).results
        _check(found.error)
        return {one.name: one for one in found.configs}

    def list_consumer_group_offsets(
        self, asked: Sequence[Any], require_stable: bool = False, request_timeout: float = 60.0
    ) -> dict[str, Future]:
        (one,) = asked
        return {one.group_id: self._begun(request_timeout, lambda: self._offsets(one, require_stable))}

    async def _offsets(self, asked: Any, stable: bool) -> Any:
        (topic,) = {place.topic for place in asked.topic_partitions}
        rows = [(topic, [place.partition for place in asked.topic_partitions])]
        answer = await self._kafka.ask("offset_fetch.7", asked.group_id, rows, stable)
        _check(answer.error)
        found = answer.topics[0].partitions
        _check(next((one.error for one in found if one.error), 0))
        made = [TopicPartition(topic, one.number, one.offset, one.metadata or "") for one in found]
        return SimpleNamespace(topic_partitions=made)

    def alter_consumer_group_offsets(self, asked: Sequence[Any], request_timeout: float = 60.0) -> dict[str, Future]:
        (one,) = asked
        return {one.group_id: self._begun(request_timeout, lambda: self._commit(one))}

    async def _commit(self, asked: Any) -> Any:
        rows = by_topic((one.topic, (one.partition, one.offset, -1, one.metadata)) for one in asked.topic_partitions)
        answer = await self._kafka.ask("offset_commit.8", asked.group_id, -1, "", None, rows)
        _check(next((one.error for one in answer.topics[0].partitions if one.error), 0))
        return SimpleNamespace(topic_partitions=asked.topic_partitions)

    def list_offsets(
        self, asked: Mapping[Any, Any], isolation_level: Any = None, request_timeout: float = 60.0
    ) -> dict[Any, Future]:
        committed = isolation_level == IsolationLevel.READ_COMMITTED
        return {place: self._begun(request_timeout, lambda p=place: self._end(p, committed)) for place in asked}

    async def _end(self, place: Any, committed: bool) -> Any:
        code, offset = await offset_of(self._kafka, (place.topic, place.partition), -1, committed)
        _check(code)
        return SimpleNamespace(offset=offset)

    def delete_records(self, places: Sequence[Any], request_timeout: float = 60.0) -> dict[Any, Future]:
        return {one: self._begun(request_timeout, lambda one=one: self._cut(one)) for one in places}

    async def _cut(self, place: Any) -> Any:
        rows = [(place.topic, [(place.partition, place.offset)])]
        (found,) = (await self._kafka.ask("delete_records", rows, 10_000)).topics[0].partitions
        _check(found.error)
        return SimpleNamespace(low_watermark=found.low)

    def describe_consumer_groups(self, groups: Sequence[str], request_timeout: float = 60.0) -> dict[str, Future]:
        return {one: self._begun(request_timeout, lambda one=one: self._group(one)) for one in groups}

    async def _group(self, group: str) -> Any:
        (found,) = (await self._kafka.ask("describe_groups", [group], 0)).groups
        _check(found.error)
        members = [
            SimpleNamespace(
                member_id=one.member, group_instance_id=one.instance, assignment=SimpleNamespace(
                    topic_partitions=[TopicPartition(*place) for place in assigned(one.assignment)]))
            for one in found.members
        ]  # fmt: skip
        return SimpleNamespace(state=STATES.get(found.state, ConsumerGroupState.UNKNOWN), members=members)


class _Away(Exception):
    """The same may be asked again."""


def _check(code: int) -> None:
    if code in AWAY:
        raise _Away(code)
    if code:
        raise raised(code)
