"""The classic protocol: members join, the leader divides, everybody asks for its share, heartbeats say who is there.

    request        by whom                       then
    JoinGroup      nobody yet, or a member       it waits for the next generation (timeouts.py), or answered with this one
    SyncGroup      a member of the generation    the leader's division becomes durable; the others wait for it
    Heartbeat      a member of the generation    its session begins anew; it hears of a rebalance here
    LeaveGroup     anybody                       those members are out, and the others divide anew

Rule 1: an assignment goes out when it is durable, and only while the group is still in that generation.
Rule 2: a member that waits for an answer of ours needs no heartbeat; its session begins anew with the answer.
Rule 3: generations are made in memory and become durable with their assignment; who has left stays out though the store
    refuses. After a restart the generation that was durable last is there again, until its sessions end.
Source: Kafka's group coordinator; KIP-62, KIP-134 (first delay), KIP-345 (static members), KIP-394 (member ids),
    KIP-814 (a static leader is to skip the division).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from waterclock.broker.groups.classic import ClassicGroup, ClassicState
from waterclock.broker.groups.members import (
    NOBODY,
    ClassicMember,
    Join,
    JoinAnswer,
    JoinRequest,
    MemberIdentity,
    Sync,
    SyncAnswer,
)
from waterclock.broker.groups.timeouts import DelayedJoin, DelayedSync, InitialJoin, Sessions, wait
from waterclock.broker.settings import Settings
from waterclock.broker.wire.errors import Error
from waterclock.outside import uuid
from waterclock.purgatory import Purgatory

FRESH_MS: Final = 300_000  # how long a member that has no id yet may wait for its first generation
ACTIVE: Final = (ClassicState.COMPLETING, ClassicState.STABLE)


class Rebalance:
    """Does the classic protocol; `keep(group, then, shares)` makes a group durable, with these assignments or its own."""

    def __init__(
        self,
        sessions: Sessions,
        joins: Purgatory,
        settings: Settings,
        wall_ms: Callable[[], int],
        keep: Callable[..., Any],
    ) -> None:
        self.sessions = sessions
        self.joins = joins
        self._settings = settings
        self._wall_ms, self._keep = wall_ms, keep

    # JoinGroup

    def join(self, group: ClassicGroup, request: JoinRequest, version: int, answer: Join) -> None:
        """Let a member in, or answer why not."""
        most = self._settings["group.max.size"]
        if group.full(request.member, most):
            self._put_out(group, request.member)
            answer(JoinAnswer(Error.GROUP_MAX_SIZE_REACHED))
            self.joins.check_and_complete(("join", group.id))
        elif not group.supports(request.protocol_type, request.protocols):
            answer(JoinAnswer(Error.INCONSISTENT_GROUP_PROTOCOL, request.member))
        elif request.member == NOBODY:
            self._join_new(group, request, version, answer)
        elif request.member in group.promised:
            self._add(group, ClassicMember(request.member, request), request, answer)
        else:
            error = group.check_member(request.member, request.instance)
            if error:
                answer(JoinAnswer(error, request.member))
            else:
                self._join_again(group, group.members[request.member], request, answer)

    def _join_new(self, group: ClassicGroup, request: JoinRequest, version: int, answer: Join) -> None:
        member_id = f"{request.client_id if request.instance is None else request.instance}-{uuid.uuid4()}"
        if request.instance is not None and request.instance in group.static:
            self._join_static(group, request, member_id, version, answer)
        elif request.instance is None and version >= 4:
            group.promised[member_id] = None
            self.sessions.begin(group.id, member_id, request.session_ms, partial(self._gone, group, member_id))
            answer(JoinAnswer(Error.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(group, ClassicMember(member_id, request), request, answer)

    def _join_again(self, group: ClassicGroup, member: ClassicMember, request: JoinRequest, answer: Join) -> None:
        """A member asks again: whether it has something new to say decides."""
        same = member.protocols == request.protocols
        leads = member.id == group.leader
        if group.state is ClassicState.COMPLETING and same:
            answer(group.joined(member))  # it may not have got our answer
        elif group.state is ClassicState.STABLE and same and not leads:
            answer(group.joined(member))
        else:
            group.update(member, request, answer)
            self._go_on(group)

    def _add(self, group: ClassicGroup, member: ClassicMember, request: JoinRequest, answer: Join) -> None:
        if not group.members:
            group.protocol_type = request.protocol_type
        member.fresh = True
        if group.state is ClassicState.PREPARING and group.before is ClassicState.EMPTY:
            group.newcomers = True
        group.add(member, answer)
        self._begin_session(group, member, FRESH_MS)
        self._go_on(group)

    def _join_static(
        self, group: ClassicGroup, request: JoinRequest, member_id: str, version: int, answer: Join
    ) -> None:
        """A static member is back, and in a stable group gets its share without a rebalance."""
        assert request.instance is not None
        old_leader, old_id = group.leader or "", group.static[request.instance]
        old = group.members[old_id].said()
        self.sessions.end(group.id, old_id)
        member = group.replace(request.instance, member_id)
        self._begin_session(group, member)
        group.update(member, request, answer)
        if group.state is ClassicState.COMPLETING:
            self._prepare(group)  # the leader may divide by the old member id
        elif group.state is ClassicState.STABLE and group.elected_protocol() == group.protocol:

            def kept(done: bool) -> None:
                if not done:
                    self._send_away(group, member, old)
                elif version >= 9:
                    group.answer_join(member, group.joined(member, skip=True))
                else:  # such a client would divide anew if it led: it is answered that the old leader does
                    group.answer_join(member, group.joined(member)._replace(leader=old_leader, members=()))

            self._keep(group, kept)
        else:
            self._go_on(group)

    def _send_away(self, group: ClassicGroup, member: ClassicMember, old: JoinRequest) -> None:
        """The store refused a static member's new id: unless everybody divides anew by now, the old one holds again."""
        group.answer_join(member, JoinAnswer(Error.COORDINATOR_NOT_AVAILABLE))
        if old.instance is not None and group.state is ClassicState.STABLE and group.members.get(member.id) is member:
            self.sessions.end(group.id, member.id)
            group.replace(old.instance, old.member)
            group.update(member, old, None)
            self._begin_session(group, member)

    # The rebalance

    def _go_on(self, group: ClassicGroup) -> None:
        """Begin a rebalance; if one is going on, end it if everybody has joined."""
        if group.empty or group.state in ACTIVE:
            self._prepare(group)
        else:
            self.joins.check_and_complete(("join", group.id))

    def _prepare(self, group: ClassicGroup) -> None:
        if group.state is ClassicState.COMPLETING:
            self._call_off(group, Error.REBALANCE_IN_PROGRESS)
        group.unsynced.clear()
        self.joins.cancel_for_key(("sync", group.id))
        initial = group.empty
        group.move(ClassicState.PREPARING, self._wall_ms())
        if initial:
            delay_ms = self._settings["group.initial.rebalance.delay.ms"]
            self._wait_initially(group, delay_ms, max(round(group.rebalance_s * 1000) - delay_ms, 0))
        else:
            self._wait_for_all(group)

    def _call_off(self, group: ClassicGroup, error: Error) -> None:
        """Nobody gets a share of this generation."""
        for member in group.members.values():
            member.assignment = b""
            if group.answer_sync(member, SyncAnswer(error)):
                self._begin_session(group, member)

    def _wait_initially(self, group: ClassicGroup, delay_ms: int, left_ms: int) -> None:
        delayed = InitialJoin(group, delay_ms, left_ms, self._complete, self._wait_initially)
        wait(self.joins, "join", group, delayed, delay_ms / 1000)

    def _wait_for_all(self, group: ClassicGroup) -> None:
        wait(self.joins, "join", group, DelayedJoin(group, self._complete), group.rebalance_s)

    def _complete(self, group: ClassicGroup) -> None:
        """The next generation: who joined is in it, who did not is out. Static members stay until their session ends."""
        self.joins.cancel_for_key(("join", group.id))
        for member in [m for m in group.members.values() if m.joining is None and m.instance is None]:
            self._put_out(group, member.id)
        if not group.elect() and group.members:
            self._wait_for_all(group)  # only static members are left, and none of them has joined
            return
        group.next_generation(self._wall_ms())
        if group.empty:
            self._keep(group, lambda done: None)
            return
        for member in list(group.members.values()):
            group.answer_join(member, group.joined(member))
            self._begin_session(group, member)
            member.fresh = False

        def put_out_unsynced(group: ClassicGroup) -> None:
            for member_id in sorted(group.unsynced):
                self._put_out(group, member_id)
            self._prepare(group)

        wait(self.joins, "sync", group, DelayedSync(group, put_out_unsynced), group.rebalance_s)

    def _put_out(self, group: ClassicGroup, member_id: str) -> None:
        self.sessions.end(group.id, member_id)
        group.remove(member_id)

    # SyncGroup

    def sync(
        self,
        group: ClassicGroup,
        member_id: str,
        instance: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
        shares: dict[str, bytes],
        answer: Sync,
    ) -> None:
        """Give a member its share of the generation; the leader brings all `shares`. `protocol` is (type, name)."""
        error = self._check_sync(group, member_id, instance, generation, protocol)
        if error or group.state is ClassicState.PREPARING:
            answer(SyncAnswer(error or Error.REBALANCE_IN_PROGRESS))
            return
        member = group.members[member_id]
        group.unsynced.discard(member_id)
        self.joins.check_and_complete(("sync", group.id))
        if group.state is ClassicState.STABLE:
            answer(group.share(member))
            return
        group.await_sync(member, answer)
        if member_id == group.leader:
            self._keep(group, partial(self._divided, group, generation, shares), shares)

    def _check_sync(
        self,
        group: ClassicGroup,
        member_id: str,
        instance: str | None,
        generation: int,
        protocol: tuple[str | None, str | None],
    ) -> Error:
        if group.empty:
            return Error.UNKNOWN_MEMBER_ID
        error = group.check_member(member_id, instance)
        if error:
            return error
        if generation != group.generation:
            return Error.ILLEGAL_GENERATION
        ours = (group.protocol_type, group.protocol)
        wrong = any(
            said is not None and has is not None and said != has for said, has in zip(protocol, ours, strict=True)
        )
        return Error.INCONSISTENT_GROUP_PROTOCOL if wrong else Error.NONE

    def _divided(self, group: ClassicGroup, generation: int, shares: dict[str, bytes], done: bool) -> None:
        """The leader's division is durable, or could not be made so. Somebody may have joined meanwhile."""
        if group.state is not ClassicState.COMPLETING or group.generation != generation:
            return
        if not done:
            self._call_off(group, Error.COORDINATOR_NOT_AVAILABLE)
            self._prepare(group)
            return
        group.move(ClassicState.STABLE, self._wall_ms())
        for member in group.members.values():
            member.assignment = shares.get(member.id, b"")
            if group.answer_sync(member, group.share(member)):
                self._begin_session(group, member)

    # Heartbeat and LeaveGroup

    def heartbeat(self, group: ClassicGroup, member_id: str, instance: str | None, generation: int) -> Error:
        """A member says that it is there."""
        error = group.check_member(member_id, instance)
        if error:
            return error
        if generation != group.generation:
            return Error.ILLEGAL_GENERATION
        self._begin_session(group, group.members[member_id])
        return Error.REBALANCE_IN_PROGRESS if group.state is ClassicState.PREPARING else Error.NONE

    def commits(self, group: ClassicGroup, member_id: str) -> None:
        """A member that commits offsets is there, too."""
        if member_id in group.members and group.state in (ClassicState.STABLE, ClassicState.PREPARING):
            self._begin_session(group, group.members[member_id])

    def leave(self, group: ClassicGroup, leaving: list[MemberIdentity]) -> list[Error]:
        """Put out these (member id, instance); a static member may be named by its instance alone."""
        errors = []
        for member_id, instance in leaving:
            who = group.static.get(instance or "", NOBODY) if member_id == NOBODY else member_id
            error = Error.UNKNOWN_MEMBER_ID if who == NOBODY else Error.NONE
            if member_id != NOBODY and member_id not in group.promised:
                error = group.check_member(member_id, instance)
            if not error:
                self._put_out(group, who)
            errors.append(error)
        if Error.NONE in errors and not group.empty:
            self._go_on(group)
        return errors

    # The other protocol: migration.py

    def divide_anew(self, group: ClassicGroup) -> None:
        """A group that was a consumer group is to divide by itself, if it has members."""
        if group.state is ClassicState.STABLE:
            self._prepare(group)

    def retire(self, group: ClassicGroup) -> None:
        """The group is one of the other protocol: who waits is to join again there, and nothing runs for it here."""
        for sort in ("join", "sync"):
            self.joins.cancel_for_key((sort, group.id))
        for member_id in [*group.members, *group.promised]:
            self.sessions.end(group.id, member_id)
        for member in group.members.values():
            group.answer_join(member, JoinAnswer(Error.REBALANCE_IN_PROGRESS, member.id))
            group.answer_sync(member, SyncAnswer(Error.REBALANCE_IN_PROGRESS))
        group.promised.clear()
        if group.state is ClassicState.COMPLETING:
            group.move(ClassicState.PREPARING, self._wall_ms())

    def reinstate(self, group: ClassicGroup) -> None:
        """It is not, since the store refused that: members have whole sessions, and a rebalance begins anew."""
        self.resume(group)
        if group.state is ClassicState.PREPARING:
            self._wait_for_all(group)

    # Sessions

    def resume(self, group: ClassicGroup) -> None:
        """After a restart: its members have a whole session to be heard of."""
        for member in group.members.values():
            self._begin_session(group, member)

    def _begin_session(self, group: ClassicGroup, member: ClassicMember, session_ms: int | None = None) -> None:
        length_ms = member.session_ms if session_ms is None else session_ms
        self.sessions.begin(group.id, member.id, length_ms, partial(self._gone, group, member.id))

    def _gone(self, group: ClassicGroup, member_id: str) -> None:
        """A session is over."""
        member = group.members.get(member_id)
        if member is not None and member.keeps_alive:
            return
        group.remove(member_id)
        if member is not None and group.state in ACTIVE:
            self._prepare(group)
        elif group.state is ClassicState.PREPARING and group.all_joined:
            self._complete(group)
