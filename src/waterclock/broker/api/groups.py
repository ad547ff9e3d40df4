"""Members of classic groups: where their coordinator is, join, sync, heartbeat, leave."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.consumer_groups import ConsumerGroupApis
from waterclock.broker.api.demands import ERRORS
from waterclock.broker.api.group_admin import GroupAdminApis
from waterclock.broker.api.group_offsets import GroupOffsetApis
from waterclock.broker.api.table import Api
from waterclock.broker.groups.members import JoinAnswer, JoinRequest, MemberIdentity, SyncAnswer
from waterclock.broker.security.acls import Operation, ResourceType
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.folder.identity import Identity
    from waterclock.broker.groups.coordinator import GroupCoordinator
    from waterclock.broker.settings import Settings
    from waterclock.broker.topics import Topics

FIND, JOIN, HEARTBEAT, LEAVE, SYNC = 10, 11, 12, 13, 14
GROUP, TRANSACTION = 0, 1  # what FindCoordinator may ask for; 2 is for share groups, which there are none of here
COORDINATED: Final = {GROUP: ResourceType.GROUP, TRANSACTION: ResourceType.TRANSACTIONAL_ID}
MILLISECOND: Final = timedelta(milliseconds=1)


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
            return ERRORS[COORDINATED[kind]], nowhere
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
