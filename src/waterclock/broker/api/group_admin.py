"""Groups of either protocol described, listed and deleted; their offsets committed, fetched and deleted.

Rule 1: a commit is answered when its offsets are durable, a deletion when the group is gone for good.
Rule 2: from version 10 on OffsetCommit and OffsetFetch name topics by id; before, by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.api.metadata import NOBODY_ASKED
from waterclock.broker.api.table import Api, may_with_cluster, may_with_group, may_with_topic, operations
from waterclock.broker.api.waiting import Countdown
from waterclock.broker.folder.topics import Topic, TopicPartition, Topics
from waterclock.broker.groups.classic import ClassicGroup, ClassicState
from waterclock.broker.groups.consumer import ConsumerGroup
from waterclock.broker.groups.offsets import NEVER, CommittedOffset
from waterclock.broker.security.acls import Operation, ResourceType
from waterclock.broker.wire import answers
from waterclock.broker.wire.answers import refuse
from waterclock.broker.wire.codec import Request
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.groups.coordinator import GroupCoordinator

DESCRIBE, LIST, DELETE = 15, 16, 42


def authorized(request: Request, group_id: str) -> int:
    """What a client may do to a group, if it asks for that."""
    if not getattr(request.body, "include_authorized_operations", False):
        return NOBODY_ASKED
    return operations(request, ResourceType.GROUP, group_id)


class GroupAdminApis:
    """DescribeGroups, ListGroups and DeleteGroups."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    def apis(self) -> dict[int, Api]:
        return {DESCRIBE: Api(self.describe, 0, 6), LIST: Api(self.list, 0, 5), DELETE: Api(self.delete, 0, 2)}

    # DescribeGroups

    def describe(self, request: Request) -> None:
        names = request.body.groups
        answers.answer(request, "groups", (self._described(request, name) for name in names), len(names))

    def _described(self, request: Request, group_id: str) -> Any:
        row = {
            "group_id": group_id, "group_state": "", "protocol_type": "", "protocol_data": "", "members": (),
            "error_code": Error.NONE, "error_message": None, "authorized_operations": NOBODY_ASKED,
        }  # fmt: skip
        if not may_with_group(request, Operation.DESCRIBE, group_id):
            return request.make("DescribedGroup", **row | {"error_code": Error.GROUP_AUTHORIZATION_FAILED})
        row["authorized_operations"] = authorized(request, group_id)
        group = self._coordinator.get(group_id)
        if not isinstance(group, ClassicGroup):
            why = "not found." if group is None else "is not a classic group."
            row |= {"group_state": ClassicState.DEAD.value, "error_message": f"Group {group_id} {why}"}
            row["error_code"] = Error.GROUP_ID_NOT_FOUND if request.version >= 6 else Error.NONE
            return request.make("DescribedGroup", **row)
        row |= {"group_state": group.state_name, "protocol_type": group.protocol_type or ""}
        if group.state is ClassicState.STABLE:
            row["protocol_data"] = group.protocol or ""
        row["members"] = tuple(self._member(request, group, member_id) for member_id in group.members)
        return request.make("DescribedGroup", **row)

    def _member(self, request: Request, group: ClassicGroup, member_id: str) -> Any:
        member, stable = group.members[member_id], group.state is ClassicState.STABLE
        return request.make(
            "DescribedGroupMember", member_id=member_id, group_instance_id=member.instance,
            client_id=member.client_id, client_host=member.client_host,
            member_metadata=member.metadata(group.protocol) if stable else b"", member_assignment=member.assignment,
        )  # fmt: skip

    # ListGroups

    def list(self, request: Request) -> None:
        states = {state.strip().lower() for state in getattr(request.body, "states_filter", ())}
        kinds = {kind.strip().lower() for kind in getattr(request.body, "types_filter", ())}
        sees_all = may_with_cluster(request, Operation.DESCRIBE)
        names = self._coordinator.names()
        rows = (
            request.make(
                "ListedGroup", group_id=group.id, protocol_type=group.protocol_type or "",
                group_state=group.state_name, group_type=group.kind,
            )
            if group is not None
            and (not states or group.state_name.lower() in states)
            and (not kinds or group.kind.lower() in kinds)
            and (sees_all or may_with_group(request, Operation.DESCRIBE, group.id))
            else None
            for group in map(self._coordinator.get, names)
        )  # fmt: skip
        answers.answer(request, "groups", rows, len(names), error_code=Error.NONE)

    # DeleteGroups

    def delete(self, request: Request) -> None:
        """The answer goes out when the last of them is gone for good."""
        answers.do(request, self._delete_all(request), len(request.body.groups_names))

    def _delete_all(self, request: Request) -> Iterator[None]:
        names = request.body.groups_names
        errors = [Error.NONE] * len(names)

        def answer() -> None:
            pairs = zip(names, errors, strict=True)
            rows = (request.make("DeletableGroupResult", group_id=name, error_code=error) for name, error in pairs)
            answers.answer(request, "results", rows, len(errors))

        several = Countdown(len(names), answer)
        for row_number, group_id in enumerate(names):
            refused = partial(errors.__setitem__, row_number, Error.COORDINATOR_NOT_AVAILABLE)
            if not may_with_group(request, Operation.DELETE, group_id):
                errors[row_number] = Error.GROUP_AUTHORIZATION_FAILED
            else:
                errors[row_number] = self._coordinator.delete(group_id, several.after(refused))
            if errors[row_number]:
                several.settled()
            yield


COMMIT, FETCH, DELETE_OFFSETS = 8, 9, 47
BY_ID: Final = 10
TOP_LEVEL_ERROR: Final = 2  # OffsetFetch has an error of its own from here on
MILLISECOND: Final = timedelta(milliseconds=1)
NOTHING: Final = CommittedOffset(-1, -1, "", 0)


class GroupOffsetApis:
    """OffsetCommit, OffsetFetch and OffsetDelete. `longest`: characters of text that an offset may carry."""

    def __init__(self, topics: Topics, coordinator: GroupCoordinator, longest: int) -> None:
        self._topics = topics
        self._coordinator = coordinator
        self._longest = longest

    def apis(self) -> dict[int, Api]:
        return {
            COMMIT: Api(self.commit, 2, BY_ID), FETCH: Api(self.fetch, 1, BY_ID), DELETE_OFFSETS: Api(self.delete, 0, 0),
        }  # fmt: skip

    def _topic(self, request: Request, requested: Any) -> tuple[str, Topic | None, Error]:
        """The topic that a row names, with what is wrong if it is not there."""
        if request.version >= BY_ID:
            topic = self._topics.by_id.get(requested.topic_id)
            return (topic.name if topic else ""), topic, Error.NONE if topic else Error.UNKNOWN_TOPIC_ID
        topic = self._topics.by_name.get(requested.name)
        return requested.name, topic, Error.NONE if topic else Error.UNKNOWN_TOPIC_OR_PARTITION

    # OffsetCommit

    def commit(self, request: Request) -> None:
        body = request.body
        good: dict[TopicPartition, CommittedOffset] = {}
        rows = list(self._rows_of(request))
        errors = {at: error for at, _, _, error, _ in rows if error}  # position in the request -> what is wrong
        refusal = self._refusal(request) if len(errors) < len(rows) else Error.NONE
        for at, name, number, error, requested in rows:
            if refusal or len(requested.committed_metadata or "") > self._longest:
                errors.setdefault(at, refusal or Error.OFFSET_METADATA_TOO_LARGE)
            elif not error:
                good[name, number] = self._committed(request, requested, self._topics.by_name[name].id.hex)
        if not good:
            self._answer_commit(request, errors)
            return

        def durable(done: bool) -> None:
            self._answer_commit(request, errors, Error.NONE if done else Error.COORDINATOR_NOT_AVAILABLE)

        self._coordinator.commit(body.group_id, good, durable)

    def _rows_of(self, request: Request) -> Iterable[tuple[tuple[int, int], str, int, Error, Any]]:
        for at, requested in enumerate(request.body.topics):
            name, topic, missing = self._topic(request, requested)
            if name and not may_with_topic(request, Operation.READ, name):
                topic, missing = None, Error.TOPIC_AUTHORIZATION_FAILED
            for row, one in enumerate(requested.partitions):
                there = topic is not None and 0 <= one.partition_index < len(topic.partitions)
                error = Error.NONE if there else missing or Error.UNKNOWN_TOPIC_OR_PARTITION
                yield (at, row), name, one.partition_index, error, one

    def _refusal(self, request: Request) -> Error:
        """What the group has against it; an older client knows fewer errors."""
        body, instance = request.body, getattr(request.body, "group_instance_id", None)
        error = self._coordinator.check_commit(
            body.group_id, body.member_id, instance, body.generation_id_or_member_epoch, False
        )
        if request.version >= 9:
            return error
        group = self._coordinator.get(body.group_id)
        member = group.members.get(body.member_id) if isinstance(group, ConsumerGroup) else None
        if member is not None and member.classic is None:
            return Error.UNSUPPORTED_VERSION
        return Error.ILLEGAL_GENERATION if error is Error.GROUP_ID_NOT_FOUND else error

    def _committed(self, request: Request, requested: Any, topic: str) -> CommittedOffset:
        now_ms = self._coordinator.wall_ms()
        retention = getattr(request.body, "retention_time", -MILLISECOND)
        expires_ms = NEVER if retention == -MILLISECOND else now_ms + retention // MILLISECOND
        epoch = getattr(requested, "committed_leader_epoch", -1)
        return CommittedOffset(
            requested.committed_offset, epoch, requested.committed_metadata or "", now_ms, expires_ms, topic
        )

    def _answer_commit(
        self, request: Request, errors: dict[tuple[int, int], Error], otherwise: Error = Error.NONE
    ) -> None:
        topics = []
        for at, requested in enumerate(request.body.topics):
            rows = tuple(
                request.make(
                    "OffsetCommitResponsePartition", partition_index=one.partition_index,
                    error_code=errors.get((at, row), otherwise),
                )
                for row, one in enumerate(requested.partitions)
            )  # fmt: skip
            topics.append(request.make("OffsetCommitResponseTopic", **_name_of(requested), partitions=rows))
        request.answer(topics=tuple(topics))

    # OffsetFetch

    def fetch(self, request: Request) -> None:
        """With `require_stable` everything that was committed before is waited for, and open transactions are an error."""
        if getattr(request.body, "require_stable", False):
            self._coordinator.settle(lambda done: self._fetch(request, True))
        else:
            self._fetch(request, False)

    def _fetch(self, request: Request, stable: bool) -> None:
        groups = getattr(request.body, "groups", None)
        if groups is not None:
            branches = (self._group(request, requested, stable) for requested in groups)
            answers.answer(
                request, "groups", branches, sum(1 + self._count(one.group_id, one.topics) for one in groups)
            )
            return
        group_id = request.body.group_id
        if not may_with_group(request, Operation.DESCRIBE, group_id):
            if request.version < TOP_LEVEL_ERROR:
                refuse(request, Error.GROUP_AUTHORIZATION_FAILED)
            else:
                request.answer(topics=(), error_code=Error.GROUP_AUTHORIZATION_FAILED)
            return
        requested = request.body.topics
        rows = self._rows(request, group_id, requested, stable, "")
        answers.answer(request, "topics", rows, self._count(group_id, requested), error_code=Error.NONE)

    def _count(self, group_id: str, requested: Collection[Any] | None) -> int:
        """How many rows a request wants of a group."""
        if requested is None:
            return len(self._coordinator.offsets.all(group_id))
        return sum(1 + len(one.partition_indexes) for one in requested)

    def _group(self, request: Request, requested: Any, stable: bool) -> Any:
        member, epoch = getattr(requested, "member_id", None), getattr(requested, "member_epoch", -1)
        error = Error.GROUP_AUTHORIZATION_FAILED
        if may_with_group(request, Operation.DESCRIBE, requested.group_id):
            error = self._coordinator.check_fetch(requested.group_id, member, epoch)
        row = request.make("OffsetFetchResponseGroup", group_id=requested.group_id, topics=(), error_code=error)
        if error:
            return row
        rows = self._rows(request, requested.group_id, requested.topics, stable, "s")
        return answers.Branch(row, "topics", rows, self._count(requested.group_id, requested.topics))

    def _rows(
        self, request: Request, group: str, requested: Iterable[Any] | None, stable: bool, plural: str
    ) -> Iterator[answers.Branch]:
        """The answer's topics; its classes are in the plural if it has several groups.

        All are of one moment, however many slices they take: what was committed together is seen together.
        """
        offsets = self._coordinator.offsets
        unstable, committed = offsets.pending(group) if stable else set(), dict(offsets.all(group))

        def row(name: str, error: Error, number: int) -> Any:
            tp = name, number
            wrong = error or (Error.UNSTABLE_OFFSET_COMMIT if tp in unstable else Error.NONE)
            found = NOTHING if wrong else committed.get(tp, NOTHING)
            return request.make(
                "OffsetFetchResponsePartition" + plural, partition_index=number, error_code=wrong,
                committed_offset=found.offset, committed_leader_epoch=found.leader_epoch, metadata=found.metadata,
            )  # fmt: skip

        for named, name, numbers, error in self._requested(request, committed, requested):
            topic = request.make("OffsetFetchResponseTopic" + plural, **named, partitions=())
            yield answers.Branch(topic, "partitions", map(partial(row, name, error), numbers), len(numbers))

    def _requested(
        self, request: Request, committed: Iterable[TopicPartition], requested: Iterable[Any] | None
    ) -> Iterable[tuple[dict[str, Any], str, Collection[int], Error]]:
        """How a topic is named in the answer, its name, partitions, and error; if none is `requested`, all that there
        are."""
        if requested is None:
            numbers: dict[str, list[int]] = {}
            for name, number in committed:
                numbers.setdefault(name, []).append(number)
            for name, some in numbers.items():
                if not may_with_topic(request, Operation.DESCRIBE, name):
                    continue
                topic = self._topics.by_name.get(name)
                if topic is not None or request.version < BY_ID:
                    yield {"name": name, "topic_id": topic.id if topic else None}, name, some, Error.NONE
            return
        for one in requested:
            if request.version >= BY_ID:
                name, _, error = self._topic(request, one)
            else:
                name, error = one.name, Error.NONE
            if name and not may_with_topic(request, Operation.DESCRIBE, name):
                error = Error.TOPIC_AUTHORIZATION_FAILED
            yield _name_of(one), name, one.partition_indexes, error

    # OffsetDelete

    def delete(self, request: Request) -> None:
        body, coordinator = request.body, self._coordinator
        error = coordinator.check_removal(body.group_id)
        if error:
            request.answer(error_code=error, topics=())
            return
        group = coordinator.get(body.group_id)
        gone: list[TopicPartition] = []
        rows: dict[int, list[Any]] = {}
        for (at, _), name, number, missing, _ in self._rows_of(request):
            wrong = missing or (Error.GROUP_SUBSCRIBED_TO_TOPIC if group and group.subscribed(name) else Error.NONE)
            if not wrong:
                gone.append((name, number))
            row = request.make("OffsetDeleteResponsePartition", partition_index=number, error_code=wrong)
            rows.setdefault(at, []).append(row)
        topics = tuple(
            request.make("OffsetDeleteResponseTopic", name=requested.name, partitions=tuple(rows.get(at, ())))
            for at, requested in enumerate(body.topics)
        )

        def removed(done: bool) -> None:
            error = Error.NONE if done else Error.COORDINATOR_NOT_AVAILABLE
            request.answer(error_code=error, topics=topics if done else ())

        coordinator.remove_offsets(body.group_id, gone, removed)


def _name_of(requested: Any) -> dict[str, Any]:
    """A topic as the request names it: by name, or by id."""
    return {"name": getattr(requested, "name", ""), "topic_id": getattr(requested, "topic_id", None)}
