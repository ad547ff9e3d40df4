"""The times that run for groups and their members. Those of sessions and of a classic group's rebalance are delayed
operations of the purgatory:

    operation           its question                               its time
    DelayedHeartbeat    none: whoever hears the member completes   the session; then the member is gone
                        it, and begins the next one
    InitialJoin         none: it gives an empty group's first      group.initial.rebalance.delay.ms, again as long as more
                        members the time for more to come          come, the members' rebalance timeout in all
    DelayedJoin         has everybody joined?                      the longest rebalance timeout of the members
    DelayedSync         has everybody asked for its share?         the same; who has not is put out

`Presence` runs these for each member of a consumer group, and puts out who is not there:

    what runs     from                                         to                      for
    session       each heartbeat, JoinGroup and SyncGroup      the next one            everybody
    revocation    there is something that it is to let go of   it has let go of it     the new protocol; all after a restart
    rejoining     it is answered to join again                 JoinGroup               the classic protocol
    asking        it is answered by JoinGroup                  SyncGroup               the classic protocol

Rule 1: one operation a member, watched under (sort, group, member): what is begun anew takes the place of what waited. A
    group has at most one join and one sync waiting, watched under ("join" or "sync", group).
Rule 2: a cancelled operation does nothing: whoever cancels goes on by himself.
Rule 3: in a consumer group, whose time is over is put out, and what it had is free. All times but the session are as long
    as the member's rebalance timeout.
Rule 4: the session of a member of the classic protocol is as long as it asks for; the others' is the broker's setting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from waterclock.broker.groups.assignment import UNREVOKED, ConsumerMember
from waterclock.broker.groups.consumer import ConsumerGroup, GroupSnapshot
from waterclock.broker.settings import Settings
from waterclock.purgatory import DelayedOperation, Purgatory

if TYPE_CHECKING:
    from waterclock.broker.groups.classic import ClassicGroup


class DelayedHeartbeat:
    """Waits for a sign of life; `gone()` is called if there is none."""

    __slots__ = ("_gone", "heard")

    def __init__(self, gone: Callable[[], Any]) -> None:
        self._gone = gone
        self.heard = False

    def try_complete(self, op: DelayedOperation) -> bool:
        return self.heard

    def on_complete(self, op: DelayedOperation) -> None:
        """Nobody waits for an answer."""

    def on_expire(self, op: DelayedOperation) -> None:
        self._gone()


class Sessions:
    """One sort of them, for all groups, in `purgatory`: "session", or what a member has a time of its own for."""

    def __init__(self, purgatory: Purgatory, sort: str) -> None:
        self._purgatory, self._sort = purgatory, sort
        self._waiting: dict[tuple[str, str, str], DelayedHeartbeat] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def begin(self, group: str, member: str, session_ms: int, gone: Callable[[], Any]) -> None:
        """The member is there; unless it is heard of within `session_ms`, `gone()` is called."""
        key = (self._sort, group, member)
        before = self._waiting.get(key)
        if before is not None:
            before.heard = True
            self._purgatory.check_and_complete(key)

        def over() -> None:
            del self._waiting[key]
            gone()

        delayed = self._waiting[key] = DelayedHeartbeat(over)
        op = DelayedOperation(delayed.try_complete, delayed.on_complete, session_ms / 1000, delayed.on_expire)
        self._purgatory.try_complete_else_watch(op, (key,))

    def waits(self, group: str, member: str) -> bool:
        """Whether a sign of that member is waited for."""
        return (self._sort, group, member) in self._waiting

    def end(self, group: str, member: str) -> None:
        """The member has left: its heartbeats are waited for no more."""
        key = (self._sort, group, member)
        if self._waiting.pop(key, None) is not None:
            self._purgatory.cancel_for_key(key)


class DelayedJoin:
    """`complete(group)` is called when everybody has joined, or the time is over."""

    __slots__ = ("_complete", "_group")

    def __init__(self, group: ClassicGroup, complete: Callable[[ClassicGroup], Any]) -> None:
        self._group, self._complete = group, complete

    def try_complete(self, op: DelayedOperation) -> bool:
        return self._group.all_joined

    def on_complete(self, op: DelayedOperation) -> None:
        if op.outcome != "cancelled":
            self._complete(self._group)


class InitialJoin:
    """The first wait of an empty group, `delay_ms` long; if more came meanwhile `again(delay, left)` waits on.

    `left_ms` is what may be waited after that.
    """

    __slots__ = ("_again", "_complete", "_delay_ms", "_group", "_left_ms")

    def __init__(
        self,
        group: ClassicGroup,
        delay_ms: int,
        left_ms: int,
        complete: Callable[[ClassicGroup], Any],
        again: Callable[[ClassicGroup, int, int], Any],
    ) -> None:
        self._group = group
        self._delay_ms = delay_ms
        self._left_ms = left_ms
        self._complete, self._again = complete, again

    def try_complete(self, op: DelayedOperation) -> bool:
        return self._delay_ms == 0

    def on_complete(self, op: DelayedOperation) -> None:
        if op.outcome == "cancelled":
            return
        if self._group.newcomers:
            self._group.newcomers = False
            delay_ms = min(self._delay_ms, self._left_ms)
            self._again(self._group, delay_ms, self._left_ms - delay_ms)
        else:
            self._complete(self._group)


class DelayedSync:
    """`missing(group)` is called if members have not asked for their share in time."""

    __slots__ = ("_generation", "_group", "_missing")

    def __init__(self, group: ClassicGroup, missing: Callable[[ClassicGroup], Any]) -> None:
        self._group = group
        self._missing = missing
        self._generation = group.generation

    def try_complete(self, op: DelayedOperation) -> bool:
        return not self._group.unsynced or self._group.generation != self._generation

    def on_complete(self, op: DelayedOperation) -> None:
        if op.outcome == "expired":
            self._missing(self._group)


def wait(
    purgatory: Purgatory,
    sort: str,
    group: ClassicGroup,
    delayed: InitialJoin | DelayedJoin | DelayedSync,
    timeout_s: float,
) -> None:
    """Watch an operation of a group; `sort` is "join" or "sync"."""
    op = DelayedOperation(delayed.try_complete, delayed.on_complete, timeout_s)
    purgatory.try_complete_else_watch(op, ((sort, group.id),))


class Presence:
    """The times of all members; `waiting` is where what is no session waits, `keep(group, then)` makes groups durable."""

    def __init__(
        self,
        sessions: Sessions,
        waiting: Purgatory,
        settings: Settings,
        keep: Callable[[ConsumerGroup, Callable[[bool], Any]], Any],
    ) -> None:
        self._sessions = sessions
        self._settings = settings
        self._keep = keep
        self._revocations = Sessions(waiting, "revoke")
        self._rejoins, self._syncs = Sessions(waiting, "rejoin"), Sessions(waiting, "ask")

    def heard(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """A member is there."""
        broker_ms = self._settings["group.consumer.session.timeout.ms"]
        session_ms = broker_ms if member.classic is None else member.classic.session_ms
        self._begin(self._sessions, group, member, session_ms)

    def moved(self, group: ConsumerGroup, before: ConsumerMember | None, member: ConsumerMember) -> None:
        """A member is where it is; the time to let go runs on if it is to let go of the same."""
        if before is not None and (before.state, before.epoch, before.revoking) == (
            member.state, member.epoch, member.revoking,
        ):  # fmt: skip
            return
        self._revocations.end(group.id, member.id)
        if member.state == UNREVOKED:
            self._begin(self._revocations, group, member, member.rebalance_ms)

    def stays(self, group: ConsumerGroup, member_id: str) -> None:
        """A member has nothing to let go of any more."""
        self._revocations.end(group.id, member_id)

    # The classic protocol

    def called(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """A member is answered to join again: from the first time on its time runs."""
        if not self._rejoins.waits(group.id, member.id):
            self._begin(self._rejoins, group, member, member.rebalance_ms)

    def joined(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """A member has joined, and is to ask for its share."""
        for sort in (self._rejoins, self._revocations):
            sort.end(group.id, member.id)
        self._begin(self._syncs, group, member, member.rebalance_ms)
        self.heard(group, member)

    def synced(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """A member has asked for its share."""
        self._syncs.end(group.id, member.id)
        self.heard(group, member)

    # Who goes

    def put_out(self, group: ConsumerGroup, *members: ConsumerMember) -> None:
        """These are members no more."""
        for member in members:
            self.forget(group, member.id)
        group.remove(*(member.id for member in members))

    def replace(self, group: ConsumerGroup, holder: ConsumerMember, member_id: str) -> ConsumerMember:
        """A static member is back under another id, with what the holder of its instance had."""
        self.forget(group, holder.id)
        again = replace(holder, id=member_id, epoch=0, previous=0)
        group.rename(again, holder.id)
        return again

    def forget(self, group: ConsumerGroup, member_id: str) -> None:
        """Nothing runs for a member any more."""
        for sort in (self._sessions, self._revocations, self._rejoins, self._syncs):
            sort.end(group.id, member_id)

    def resume(self, group: ConsumerGroup) -> None:
        """After a restart: whole sessions, and whole rebalance timeouts for who has something to let go of."""
        for member in group.members.values():
            self.heard(group, member)
            self.moved(group, None, member)

    def take_back(self, group: ConsumerGroup, before: GroupSnapshot) -> None:
        """The store refused what the group has become: it is what it was, and its members have whole sessions again."""
        for member_id in group.members:
            self.forget(group, member_id)
        group.restore(before)
        self.resume(group)

    def _begin(self, sort: Sessions, group: ConsumerGroup, member: ConsumerMember, duration_ms: int) -> None:
        member_id = member.id

        def over() -> None:
            late = group.members.get(member_id)
            if late is not None:
                self.put_out(group, late)
                self._keep(group, lambda done: None)

        sort.begin(group.id, member_id, duration_ms, over)
