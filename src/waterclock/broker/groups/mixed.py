"""Members of consumer groups that speak the classic protocol: JoinGroup, SyncGroup and Heartbeat do for them what
ConsumerGroupHeartbeat does for the others. The broker divides; nobody leads, and nobody waits for the others.

    request        then
    JoinGroup      it is in; its subscription says what it reads; the answer's generation is its epoch
    SyncGroup      it is given its share, in the bytes that a leader would have made
    Heartbeat      it is to join again: there is a new target, or something to let go of, or to take
    LeaveGroup     these members are out, whichever protocol they speak

Rule 1: the rest is as with the new protocol: a step towards the target with each JoinGroup (assignment.py). One that
    lets go of everything to join again has nothing in its subscription; one that reads on says what.
Rule 2: every member must speak a protocol that the others of the classic one speak too: they may be a classic group again.
Source: KIP-848, KIP-345 (who is named by its instance).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from waterclock.broker.groups.assignment import UNRELEASED, UNREVOKED, ClassicSide, ConsumerMember
from waterclock.broker.groups.consumer import ConsumerGroup
from waterclock.broker.groups.embedded import Subscription, read_subscription
from waterclock.broker.groups.members import (
    CONSUMER,
    NOBODY,
    Join,
    JoinAnswer,
    JoinRequest,
    MemberIdentity,
    Sync,
    SyncAnswer,
    check_member,
)
from waterclock.broker.groups.migration import POLICY, encoded, known
from waterclock.broker.groups.timeouts import Presence
from waterclock.broker.settings import Settings
from waterclock.broker.wire.errors import Error
from waterclock.outside import uuid

if TYPE_CHECKING:
    from waterclock.broker.folder.topics import Topics


class ClassicMembers:
    """Does the classic protocol's requests to consumer groups; `keep(group, then)` makes a group durable."""

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

    # JoinGroup

    def join(self, group: ConsumerGroup, request: JoinRequest, version: int, answer: Join) -> None:
        """Let a member in, or a step on; answered when that is durable, or with why not."""
        said = read_subscription(request.protocols[0][1]) if request.protocols else None
        error = self._check_join(group, request, said)
        if error or said is None:
            answer(JoinAnswer(error or Error.INCONSISTENT_GROUP_PROTOCOL, request.member))
        elif request.member == NOBODY and request.instance is None and version >= 4:
            answer(JoinAnswer(Error.MEMBER_ID_REQUIRED, _new_id(request)))
        else:
            before = self._member(group, request)
            default = self._settings["group.consumer.assignors"][0]
            owned = known(said.owned, self._topics)
            after = group.advance(before, _described(before, request, said), owned, self._topics, default)
            self._presence.joined(group, after)

            def joined(done: bool) -> None:
                if done:
                    answer(JoinAnswer(Error.NONE, after.id, after.epoch, CONSUMER, request.protocols[0][0]))
                else:
                    answer(JoinAnswer(Error.COORDINATOR_NOT_AVAILABLE, request.member))

            self._keep(group, joined)

    def _check_join(self, group: ConsumerGroup, request: JoinRequest, said: Subscription | None) -> Error:
        full = len(group.members) >= self._settings["group.consumer.max.size"]
        if self._settings[POLICY] == "disabled":
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if full and request.member not in group.members:
            return Error.GROUP_MAX_SIZE_REACHED
        sides = [member.classic for member in group.members.values() if member.classic is not None]
        speak = Counter(name for side in sides for name, _ in side.protocols)
        shared = any(speak[name] == len(sides) for name, _ in request.protocols)  # a protocol that all of them speak
        if said is None or request.protocol_type != CONSUMER or not shared:
            return Error.INCONSISTENT_GROUP_PROTOCOL
        if request.instance is not None and request.member != NOBODY:
            return check_member(group.members, group.static, request.member, request.instance)
        return Error.NONE

    def _member(self, group: ConsumerGroup, request: JoinRequest) -> ConsumerMember:
        """Who it is: a member that joins again, one in whose place it comes, or a new one, not yet in the group."""
        holder = group.members.get(group.static.get(request.instance or "", ""))
        if holder is not None and request.member == NOBODY:
            return self._presence.replace(group, holder, _new_id(request))
        member_id = request.member or _new_id(request)
        return group.members.get(member_id) or ConsumerMember(member_id)

    # SyncGroup

    def sync(
        self,
        group: ConsumerGroup,
        member_id: str,
        instance: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        answer: Sync,
    ) -> None:
        """Give a member its share. `protocol` is (type, name), as it says them."""
        error = check_classic(group, member_id, instance, generation)
        member = group.members.get(member_id)
        if error or member is None or member.classic is None:
            answer(SyncAnswer(error))
        elif protocol[0] not in (None, CONSUMER) or protocol[1] not in (None, member.classic.protocols[0][0]):
            answer(SyncAnswer(Error.INCONSISTENT_GROUP_PROTOCOL))
        elif member.epoch < group.epoch and member.state != UNREVOKED:
            self._presence.called(group, member)
            answer(SyncAnswer(Error.REBALANCE_IN_PROGRESS))
        else:
            self._presence.synced(group, member)
            answer(SyncAnswer(Error.NONE, *protocol, encoded(member.assigned, member.classic, self._topics)))

    # Heartbeat and LeaveGroup

    def heartbeat(self, group: ConsumerGroup, member_id: str, instance: str | None, generation: int) -> Error:
        """A member says that it is there; it hears of what is new here."""
        error = check_classic(group, member_id, instance, generation)
        if error:
            return error
        member = group.members[member_id]
        self._presence.heard(group, member)
        takes = member.state == UNRELEASED and group.may_take(member)
        if member.epoch >= group.epoch and not takes:  # one that is to let go of something is an epoch behind
            return Error.NONE
        self._presence.called(group, member)
        return Error.REBALANCE_IN_PROGRESS

    def leave(self, group: ConsumerGroup, leaving: list[MemberIdentity], answer: Callable[[list[Error]], Any]) -> None:
        """Put out these; answered when that is durable. A static member may be named by its instance alone."""
        errors, gone = [], dict[str, ConsumerMember]()
        for member_id, instance in leaving:
            by_instance = instance is not None and member_id == NOBODY
            who = group.static.get(instance or "", NOBODY) if by_instance else member_id
            errors.append(check_member(group.members, group.static, who, instance))
            if not errors[-1]:
                gone[who] = group.members[who]
        if gone:
            self._presence.put_out(group, *gone.values())
        unknown = Error.COORDINATOR_NOT_AVAILABLE
        self._keep(group, lambda done: answer(errors if done else [error or unknown for error in errors]))


def check_classic(group: ConsumerGroup, member_id: str, instance: str | None, generation: int) -> Error:
    """Whether this is a member that speaks the classic protocol, in this generation."""
    error = check_member(group.members, group.static, member_id, instance)
    if error:
        return error
    member = group.members[member_id]
    if member.classic is None:
        return Error.UNKNOWN_MEMBER_ID
    return Error.NONE if generation == member.epoch else Error.ILLEGAL_GENERATION


def _described(member: ConsumerMember, request: JoinRequest, said: Subscription) -> ConsumerMember:
    """The member with what it says in JoinGroup."""
    return replace(
        member, instance=request.instance or member.instance, rack=said.rack or member.rack, topics=said.topics, regex="",
        rebalance_ms=request.rebalance_ms, client_id=request.client_id, client_host=request.client_host,
        classic=ClassicSide(request.session_ms, request.protocols),
    )  # fmt: skip


def _new_id(request: JoinRequest) -> str:
    return f"{request.client_id if request.instance is None else request.instance}-{uuid.uuid4()}"
