"""Members of groups. Classic ones find their coordinator, join, sync, send heartbeats, leave; those of KIP-848 send one
heartbeat, which also takes a classic group over to their protocol, members, offsets and all: groups/migration.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.group_admin import GroupAdminApis, GroupOffsetApis, authorized
from waterclock.broker.api.metadata import NOBODY_ASKED
from waterclock.broker.api.table import DENIED, Api, may_with_group, may_with_topic
from waterclock.broker.groups.assignment import NO_PARTS, ConsumerMember, TopicIdPartition
from waterclock.broker.groups.consumer import ConsumerGroup
from waterclock.broker.groups.heartbeats import Beat, HeartbeatAnswer, HeartbeatRefusal, check
from waterclock.broker.groups.members import JoinAnswer, JoinRequest, MemberIdentity, SyncAnswer
from waterclock.broker.security.acls import Operation, ResourceType
from waterclock.broker.security.authorizer import principal_of
from waterclock.broker.wire import answers
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from uuid import UUID

    from waterclock.broker.folder.identity import Identity
    from waterclock.broker.folder.topics import Topics
    from waterclock.broker.groups.coordinator import GroupCoordinator
    from waterclock.broker.settings import Settings

CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 68, 69
MILLISECOND: Final = timedelta(milliseconds=1)
CLASSIC, CONSUMER = 0, 1  # types of members


class ConsumerGroupApis:
    """ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

    def __init__(self, topics: Topics, coordinator: GroupCoordinator, settings: Settings) -> None:
        self._topics = topics
        self._coordinator = coordinator
        self._settings = settings

    def apis(self) -> dict[int, Api]:
        return {CONSUMER_HEARTBEAT: Api(self.heartbeat, 0, 1), CONSUMER_DESCRIBE: Api(self.describe, 0, 1)}

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
        answers.answer(request, "groups", (self._described(request, name) for name in names), len(names))

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


FIND, JOIN, HEARTBEAT, LEAVE, SYNC = 10, 11, 12, 13, 14
GROUP, TRANSACTION = 0, 1  # what FindCoordinator may ask for; 2 is for share groups, which there are none of here
COORDINATED: Final = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}


class GroupApis:
    """FindCoordinator, JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

    def __init__(self, identity: Identity, coordinator: GroupCoordinator) -> None:
        self._identity, self._coordinator = identity, coordinator

    def apis(self) -> dict[int, Api]:
        return {
            FIND: Api(self.find, 0, 6), JOIN: Api(self.join, 0, 9), HEARTBEAT: Api(self.heartbeat, 0, 4),
            LEAVE: Api(self.leave, 0, 5), SYNC: Api(self.sync, 0, 5),
        }  # fmt: skip

    # FindCoordinator

    def find(self, request: Request) -> None:
        """It is always this broker."""
        if request.version < 4:
            error, where = self._found(request, request.body.key)
            request.answer(error_code=error, error_message=error.name, **where)
            return
        found = ((key, *self._found(request, key)) for key in request.body.coordinator_keys)
        rows = (
            request.make("Coordinator", key=key, error_code=error, error_message="", **where)
            for key, error, where in found
        )
        request.answer(coordinators=tuple(rows))

    def _found(self, request: Request, key: str) -> tuple[Error, dict[str, Any]]:
        us, kind = self._identity, getattr(request.body, "key_type", GROUP)
        nowhere = {"node_id": -1, "host": "", "port": -1}
        if kind not in COORDINATED:
            return Error.INVALID_REQUEST, nowhere
        if not request.may(Operation.DESCRIBE, COORDINATED[kind], key):
            return DENIED[COORDINATED[kind]], nowhere
        return Error.NONE, {"node_id": us.node, "host": us.host, "port": us.port}

    # JoinGroup

    def join(self, request: Request) -> None:
        body, connection = request.body, request.slot.connection
        session_ms = body.session_timeout // MILLISECOND
        rebalance = getattr(body, "rebalance_timeout", None)
        requested = JoinRequest(
            body.group_id, body.member_id, getattr(body, "group_instance_id", None), connection.client_id,
            client_host(request), session_ms, session_ms if rebalance is None else rebalance // MILLISECOND,
            body.protocol_type, tuple((p.name, p.metadata) for p in body.protocols),
        )  # fmt: skip
        self._coordinator.join(requested, request.version, lambda joined: self._joined(request, joined))

    def _joined(self, request: Request, joined: JoinAnswer) -> None:
        members = tuple(
            request.make("JoinGroupResponseMember", member_id=member, group_instance_id=instance, metadata=metadata)
            for member, instance, metadata in joined.members
        )
        request.answer(
            error_code=joined.error, generation_id=joined.generation, protocol_type=joined.protocol_type,
            protocol_name=joined.protocol if request.version >= 7 else joined.protocol or "", leader=joined.leader,
            skip_assignment=joined.skip_assignment, member_id=joined.member, members=members,
        )  # fmt: skip

    # SyncGroup

    def sync(self, request: Request) -> None:
        body = request.body
        protocol = getattr(body, "protocol_type", None), getattr(body, "protocol_name", None)
        if request.version >= 5 and None in protocol:  # from then on it must be said
            self._synced(request, SyncAnswer(Error.INCONSISTENT_GROUP_PROTOCOL))
            return
        self._coordinator.sync(
            body.group_id, _identity(body), body.generation_id, protocol,
            {share.member_id: share.assignment for share in body.assignments},
            lambda synced: self._synced(request, synced),
        )  # fmt: skip

    def _synced(self, request: Request, synced: SyncAnswer) -> None:
        request.answer(
            error_code=synced.error, protocol_type=synced.protocol_type, protocol_name=synced.protocol,
            assignment=synced.assignment,
        )  # fmt: skip

    # Heartbeat

    def heartbeat(self, request: Request) -> None:
        body = request.body
        request.answer(error_code=self._coordinator.heartbeat(body.group_id, _identity(body), body.generation_id))

    # LeaveGroup

    def leave(self, request: Request) -> None:
        """Before version 3 one member leaves, and the answer's error is its own."""
        body = request.body
        several = getattr(body, "members", None)
        leaving = [_identity(body)] if several is None else [_identity(member) for member in several]

        def left(errors: list[Error]) -> None:
            if several is None:
                request.answer(error_code=errors[0], members=())
                return
            rows = (
                request.make("MemberResponse", member_id=member, group_instance_id=instance, error_code=wrong)
                for (member, instance), wrong in zip(leaving, errors, strict=True)
            )
            named = bool(body.group_id)
            error = Error.NONE if named else Error.INVALID_GROUP_ID
            request.answer(error_code=error, members=tuple(rows) if named else ())

        self._coordinator.leave(body.group_id, leaving, left)


def _identity(named: Any) -> MemberIdentity:
    """Who a request, or a row of one, speaks of."""
    return MemberIdentity(named.member_id, getattr(named, "group_instance_id", None))


def client_host(request: Request) -> str:
    """Where a client is, as Kafka writes it."""
    return "/" + request.slot.connection.peer().rpartition(":")[0]


def group_apis(
    identity: Identity, topics: Topics, coordinator: GroupCoordinator, settings: Settings
) -> tuple[Any, ...]:
    """The APIs about groups."""
    offsets = GroupOffsetApis(topics, coordinator, settings["offset.metadata.max.bytes"])
    consumers = ConsumerGroupApis(topics, coordinator, settings)
    return GroupApis(identity, coordinator), offsets, GroupAdminApis(coordinator), consumers
