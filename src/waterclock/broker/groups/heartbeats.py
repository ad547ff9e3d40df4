"""The consumer protocol: one request, ConsumerGroupHeartbeat, by which members join, say what they read, and leave.

A heartbeat of a member, in this order:

1. Who is it? New (epoch 0), known in this epoch or in the one before, or fenced.
2. What is new: its subscription, or the topics themselves? Then the group has a new epoch.
3. Is the target older than the epoch? Then the assignor divides anew.
4. Is the member not at its target? Then it lets go, takes, or waits: assignment.py.
5. Its session begins anew; and while it has something to let go of, the rebalance timeout runs: timeouts.py.
6. It is answered when all that is durable; with its partitions if they changed, or if it said everything anew.

Rule 1: an older epoch is good only if our last answer may have been lost: one epoch back, and nothing read beyond.
Rule 2: a static member that leaves for a while (-2) keeps its share until its session ends; a new one takes its place.
    One of the classic protocol is replaced without having left.
Source: KIP-848, KIP-1082 (members name themselves).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waterclock.broker.groups.assignment import ASSIGNORS, JOINS, LEAVES_FOR_A_WHILE, ConsumerMember, TopicIdPartition
from waterclock.broker.groups.consumer import ConsumerGroup
from waterclock.broker.groups.subscriptions import matcher
from waterclock.broker.groups.timeouts import Presence
from waterclock.broker.settings import Settings
from waterclock.broker.wire.errors import Error
from waterclock.errors import unstopped
from waterclock.outside import uuid

if TYPE_CHECKING:
    from waterclock.broker.folder.topics import Topics


SHOWN: Final = 249  # characters of a pattern, in an error's message


class HeartbeatAnswer(NamedTuple):
    """The answer to a heartbeat. `assigned`: None if the member knows."""

    error: Error
    message: str | None = None
    member: str | None = None
    epoch: int = 0
    assigned: frozenset[TopicIdPartition] | None = None


NOT_KEPT: Final = HeartbeatAnswer(Error.COORDINATOR_NOT_AVAILABLE, "The group could not be written to disk.")


class HeartbeatRefusal(Exception):
    """A heartbeat that is not accepted."""

    def __init__(self, error: Error, message: str) -> None:
        super().__init__(message)
        self.heard = HeartbeatAnswer(error, message)


@dataclass(frozen=True)
class Beat:
    """What a member says. None: nothing new of that."""

    group: str
    member: str
    epoch: int
    instance: str | None
    rack: str | None
    rebalance_ms: int
    topics: frozenset[str] | None
    regex: str | None
    assignor: str | None
    has: frozenset[TopicIdPartition] | None
    client_id: str
    client_host: str
    principal: str = ""

    @property
    def says_all(self) -> bool:
        """Whether it said everything anew, and is to be answered everything."""
        new = self.topics is not None or self.regex is not None
        return self.epoch == JOINS or (self.rebalance_ms != -1 and new and self.has is not None)


class Heartbeats:
    """Does the consumer protocol; `keep(group, then)` makes a group durable."""

    def __init__(
        self,
        presence: Presence,
        settings: Settings,
        topics: Topics,
        keep: Callable[[ConsumerGroup, Callable[[bool], Any]], Any],
    ) -> None:
        self._presence = presence
        self._settings = settings
        self._topics = topics
        self._keep = keep

    def hear(self, group: ConsumerGroup, beat: Beat, answer: Callable[[HeartbeatAnswer], Any]) -> None:
        """One heartbeat of a member of `group`; answered when what it changed is durable. HeartbeatRefusal if refused."""
        heard = self._leave(group, beat) if beat.epoch < 0 else self._beat(group, beat)

        def durable(done: bool) -> None:
            answer(heard if done else NOT_KEPT)

        self._keep(group, durable)

    # A member is there

    def _beat(self, group: ConsumerGroup, beat: Beat) -> HeartbeatAnswer:
        before = self._member(group, beat)  # 1
        default = self._settings["group.consumer.assignors"][0]
        after = group.advance(before, self._said(before, beat), beat.has, self._topics, default)  # 2, 3, 4
        self._presence.heard(group, after)  # 5
        self._presence.moved(group, before, after)
        send = beat.says_all or after.assigned != before.assigned  # 6
        return HeartbeatAnswer(Error.NONE, None, after.id, after.epoch, after.assigned if send else None)

    def _member(self, group: ConsumerGroup, beat: Beat) -> ConsumerMember:
        """Who it is; a new member, not yet in the group, if it joins."""
        most = self._settings["group.consumer.max.size"]
        if len(group.members) >= most and beat.member not in group.members:
            message = f"The consumer group has reached its maximum capacity of {most} members."
            raise HeartbeatRefusal(Error.GROUP_MAX_SIZE_REACHED, message)
        if beat.instance is not None:
            return self._static_member(group, beat, beat.instance)
        member = group.members.get(beat.member)
        if member is None:
            if beat.epoch != JOINS:
                raise unknown(group, beat.member)
            return ConsumerMember(beat.member or str(uuid.uuid4()))
        if beat.epoch != JOINS:
            check_epoch(member, beat)
        return member

    def _static_member(self, group: ConsumerGroup, beat: Beat, instance: str) -> ConsumerMember:
        holder = group.members.get(group.static.get(instance, ""))
        if beat.epoch != JOINS:
            if holder is None:
                raise HeartbeatRefusal(Error.UNKNOWN_MEMBER_ID, f"Instance id {instance} is unknown.")
            check_holder(holder, beat)
            check_epoch(holder, beat)
            return holder
        if holder is None:
            return group.members.get(beat.member) or ConsumerMember(beat.member or str(uuid.uuid4()))
        if holder.epoch != LEAVES_FOR_A_WHILE and holder.classic is None:
            message = f"Static member {beat.member} with instance id {instance} cannot join the group"
            raise HeartbeatRefusal(Error.UNRELEASED_INSTANCE_ID, f"{message}: {holder.id} owns the instance id.")
        return self._presence.replace(group, holder, beat.member or str(uuid.uuid4()))

    def _said(self, member: ConsumerMember, beat: Beat) -> ConsumerMember:
        """The member with what it says anew, by this protocol."""
        news: dict[str, Any] = {
            "client_id": beat.client_id,
            "client_host": beat.client_host,
            "principal": beat.principal,
            "classic": None,
        }
        for name in ("instance", "rack", "topics", "regex", "assignor"):
            if getattr(beat, name) is not None:
                news[name] = getattr(beat, name)
        if beat.rebalance_ms != -1:
            news["rebalance_ms"] = beat.rebalance_ms
        return replace(member, **news)

    # A member goes

    def _leave(self, group: ConsumerGroup, beat: Beat) -> HeartbeatAnswer:
        member = group.members.get(beat.member)
        if beat.instance is not None:
            member = group.members.get(group.static.get(beat.instance, ""))
            if member is None:
                raise HeartbeatRefusal(Error.UNKNOWN_MEMBER_ID, f"Instance id {beat.instance} is unknown.")
            check_holder(member, beat)
        if member is None:
            raise unknown(group, beat.member)
        if beat.epoch == LEAVES_FOR_A_WHILE:
            self._presence.stays(group, member.id)
            group.put(replace(member, epoch=LEAVES_FOR_A_WHILE, revoking=frozenset()))
        else:
            self._presence.put_out(group, member)
        return HeartbeatAnswer(Error.NONE, None, member.id, beat.epoch)


def check(beat: Beat, version: int) -> None:
    """`HeartbeatRefusal` for a heartbeat that makes no sense by itself."""
    for said, name in ((beat.instance, "InstanceId"), (beat.rack, "RackId")):
        require(said != "", f"{name} can't be empty.")
    require(bool(beat.group), "GroupId can't be empty.")
    require(bool(beat.member) or (version == 0 and beat.epoch == JOINS), "MemberId can't be empty.")
    require(beat.epoch >= LEAVES_FOR_A_WHILE, "MemberEpoch is invalid.")
    if beat.epoch == JOINS:
        require(beat.rebalance_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
        require(beat.has is not None and not beat.has, "TopicPartitions must be empty when (re-)joining.")
        subscribes = beat.topics is not None or beat.regex is not None
        require(subscribes, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    if beat.epoch == LEAVES_FOR_A_WHILE:
        require(beat.instance is not None, "InstanceId can't be null.")
    if beat.assignor is not None and beat.assignor not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        raise HeartbeatRefusal(
            Error.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {known}.",
        )
    if beat.regex:
        check_pattern(beat.regex)


def check_pattern(regex: str) -> None:
    """`HeartbeatRefusal` for what is no regular expression."""
    try:
        matcher(regex)
    except ValueError as error:
        message = f"SubscribedTopicRegex `{regex[:SHOWN]}` is not valid: {unstopped(error)}."
        raise HeartbeatRefusal(Error.INVALID_REGULAR_EXPRESSION, message) from None


def require(holds: bool, message: str) -> None:
    if not holds:
        raise HeartbeatRefusal(Error.INVALID_REQUEST, message)


def unknown(group: ConsumerGroup, member_id: str) -> HeartbeatRefusal:
    return HeartbeatRefusal(Error.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.id}.")


def check_holder(holder: ConsumerMember, beat: Beat) -> None:
    """`HeartbeatRefusal` if another member has the instance."""
    if holder.id != beat.member:
        message = f"Static member {beat.member} with instance id {beat.instance} was fenced by member {holder.id}."
        raise HeartbeatRefusal(Error.FENCED_INSTANCE_ID, message)


def check_epoch(member: ConsumerMember, beat: Beat) -> None:
    """`HeartbeatRefusal` for a member that is in another epoch; rule 1."""
    lost = beat.epoch == member.previous and beat.has is not None and beat.has <= member.assigned
    if beat.epoch > member.epoch or (beat.epoch < member.epoch and not lost):
        size = "greater" if beat.epoch > member.epoch else "smaller"
        raise HeartbeatRefusal(
            Error.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {size} member epoch ({beat.epoch}) than the one known by the group"
            f" coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )
