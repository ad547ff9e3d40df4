"""Whether the members of consumer groups are there: the times that run for each, and who is put out.

    what runs         from                                            to                               for
    session           each heartbeat, JoinGroup and SyncGroup         the next one                     everybody
    revocation        there is something that it is to let go of      it has let go of it              the new protocol;
                                                                                                       all after a restart
    rejoining         it is answered to join again                    JoinGroup                        the classic one
    asking            it is answered by JoinGroup                     SyncGroup                        the classic one

Rule 1: whose time is over is put out, and what it had is free. All but the session are as long as the member's
    rebalance timeout.
Rule 2: the session of a member of the classic protocol is as long as it asks for; the others' is the broker's setting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from waterclock.broker.groups.consumer import ConsumerGroup, GroupSnapshot
from waterclock.broker.groups.reconcile import UNREVOKED, ConsumerMember
from waterclock.broker.groups.sessions import Sessions
from waterclock.broker.settings import Settings
from waterclock.purgatory import Purgatory


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
