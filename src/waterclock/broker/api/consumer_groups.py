"""Consumer groups of KIP-848: the heartbeat by which everything happens, and how a group looks.

A classic group goes over to this protocol with its first heartbeat, members, offsets and all: groups/migration.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.demands import may_with_group, may_with_topic
from waterclock.broker.api.group_admin import authorized
from waterclock.broker.api.metadata import NOBODY_ASKED
from waterclock.broker.api.table import Api
from waterclock.broker.groups.assignors import TopicIdPartition
from waterclock.broker.groups.consumer import ConsumerGroup
from waterclock.broker.groups.heartbeats import Beat, HeartbeatAnswer, HeartbeatRefusal, check
from waterclock.broker.groups.reconcile import NO_PARTS, ConsumerMember
from waterclock.broker.security.acls import Operation
from waterclock.broker.security.authorizer import principal_of
from waterclock.broker.wire import portions
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from uuid import UUID

    from waterclock.broker.groups.coordinator import GroupCoordinator
    from waterclock.broker.settings import Settings
    from waterclock.broker.topics import Topics

HEARTBEAT, DESCRIBE = 68, 69
MILLISECOND: Final = timedelta(milliseconds=1)
CLASSIC, CONSUMER = 0, 1  # types of members


class ConsumerGroupApis:
    """ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

    def __init__(self, topics: Topics, coordinator: GroupCoordinator, settings: Settings) -> None:
        self._topics = topics
        self._coordinator = coordinator
        self._settings = settings

    def apis(self) -> dict[int, Api]:
        return {HEARTBEAT: Api(self.heartbeat, 0, 1), DESCRIBE: Api(self.describe, 0, 1)}

    # ConsumerGroupHeartbeat

    def heartbeat(self, request: Request) -> None:
        body, connection = request.body, request.slot.connection
        topics, has = body.subscribed_topic_names, body.topic_partitions
        beat = Beat(
            body.group_id, body.member_id, body.member_epoch, body.instance_id, body.rack_id,
            body.rebalance_timeout // MILLISECOND, None if topics is None else frozenset(topics),
            getattr(body, "subscribed_topic_regex", None), body.server_assignor,
            None if has is None else frozenset((row.topic_id, number) for row in has for number in row.partitions),
            connection.client_id, "/" + connection.peer().rpartition(":")[0],
            principal_of(connection),
        )  # fmt: skip
        if not all(may_with_topic(request, Operation.DESCRIBE, name) for name in topics or ()):
            self._heard(request, HeartbeatAnswer(Error.TOPIC_AUTHORIZATION_FAILED))
            return
        try:
            check(beat, request.version)
            self._coordinator.hear(beat, lambda heard: self._heard(request, heard))
        except HeartbeatRefusal as refused:
            self._heard(request, refused.heard)

    def _heard(self, request: Request, heard: HeartbeatAnswer) -> None:
        interval_ms = 0 if heard.error else self._settings["group.consumer.heartbeat.interval.ms"]
        assignment = None
        if heard.assigned is not None:
            assignment = request.make("Assignment", topic_partitions=self._rows(request, heard.assigned))
        request.answer(
            error_code=heard.error, error_message=heard.message, member_id=heard.member, member_epoch=heard.epoch,
            heartbeat_interval=interval_ms * MILLISECOND, assignment=assignment,
        )  # fmt: skip

    def _rows(self, request: Request, parts: Iterable[TopicIdPartition]) -> tuple[Any, ...]:
        numbers: dict[UUID, list[int]] = {}
        for topic_id, number in sorted(parts):
            numbers.setdefault(topic_id, []).append(number)
        named = {topic_id: self._topics.by_id.get(topic_id) for topic_id in numbers}
        return tuple(
            request.make(
                "TopicPartitions", topic_id=topic_id, topic_name=topic.name if topic else "",
                partitions=tuple(numbers[topic_id]),
            )
            for topic_id, topic in named.items()
        )  # fmt: skip

    # ConsumerGroupDescribe

    def describe(self, request: Request) -> None:
        names = request.body.group_ids
        portions.answer(request, "groups", (self._described(request, name) for name in names), len(names))

    def _described(self, request: Request, group_id: str) -> Any:
        if not may_with_group(request, Operation.DESCRIBE, group_id):
            return _undescribed(request, group_id, Error.GROUP_AUTHORIZATION_FAILED, None, NOBODY_ASKED)
        group = self._coordinator.get(group_id) if group_id else None
        if not isinstance(group, ConsumerGroup):
            error, problem = (
                Error.GROUP_ID_NOT_FOUND,
                f"Group {group_id} " + ("not found." if group is None else "is not a consumer group."),
            )
            if not group_id:
                error, problem = Error.INVALID_GROUP_ID, ""
            return _undescribed(request, group_id, error, problem or None, authorized(request, group_id))
        if not all(may_with_topic(request, Operation.DESCRIBE, name) for name in self._topics_of(request, group)):
            problem = "The group has topics that the client may not describe."
            return _undescribed(request, group_id, Error.TOPIC_AUTHORIZATION_FAILED, problem, NOBODY_ASKED)
        return request.make(
            "DescribedGroup", error_code=Error.NONE, error_message=None, group_id=group_id, group_state=group.state_name,
            group_epoch=group.epoch, assignment_epoch=group.target_epoch,
            assignor_name=group.assignor or self._settings["group.consumer.assignors"][0],
            members=tuple(self._member(request, group, member) for member in group.members.values()),
            authorized_operations=authorized(request, group_id),
        )  # fmt: skip

    def _topics_of(self, request: Request, group: ConsumerGroup) -> set[str]:
        """The topics of which a member has partitions, or is to have some; nobody asks for them without an authorizer."""
        if request.rights is None:
            return set()
        parts = (group.target.get(member.id, NO_PARTS) | member.assigned for member in group.members.values())
        known = (self._topics.by_id.get(topic_id) for topic_id in {one for some in parts for one, _ in some})
        return {topic.name for topic in known if topic is not None}

    def _member(self, request: Request, group: ConsumerGroup, member: ConsumerMember) -> Any:
        target = group.target.get(member.id, NO_PARTS)
        return request.make(
            "Member", member_id=member.id, instance_id=member.instance, rack_id=member.rack, member_epoch=member.epoch,
            client_id=member.client_id, client_host=member.client_host, subscribed_topic_names=tuple(sorted(member.topics)),
            subscribed_topic_regex=member.regex or None, member_type=CONSUMER if member.classic is None else CLASSIC,
            assignment=request.make("Assignment", topic_partitions=self._rows(request, member.assigned)),
            target_assignment=request.make("Assignment", topic_partitions=self._rows(request, target)),
        )  # fmt: skip


def _undescribed(request: Request, group_id: str, error: Error, message: str | None, operations: int) -> Any:
    return request.make(
        "DescribedGroup", error_code=error, error_message=message, group_id=group_id, group_state="", group_epoch=0,
        assignment_epoch=0, assignor_name="", members=(), authorized_operations=operations,
    )  # fmt: skip
