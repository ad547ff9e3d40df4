"""The group coordinator: all groups by id, what is kept of them, who may commit, and what goes when it is old.

Rule 1: a group that has offsets exists: if only they are known, as a simple one, empty and without a protocol.
Rule 2: an answer that promises something goes out when the store has it. What goes (groups, offsets) goes from memory
    then; what a consumer group has become is taken back if the store refuses it: migration.py.
Rule 3: an empty group makes way for one of the other protocol. One with members goes over to it with them: migration.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waterclock.broker.groups import consumer
from waterclock.broker.groups.assignment import JOINS
from waterclock.broker.groups.classic import NAMESPACE, ClassicGroup, ClassicState
from waterclock.broker.groups.consumer import ConsumerGroup
from waterclock.broker.groups.heartbeats import NOT_KEPT, Beat, HeartbeatAnswer, HeartbeatRefusal, Heartbeats
from waterclock.broker.groups.members import NOBODY, Join, JoinAnswer, JoinRequest, MemberIdentity, Sync, SyncAnswer
from waterclock.broker.groups.migration import Group, Handover
from waterclock.broker.groups.mixed import ClassicMembers
from waterclock.broker.groups.offsets import CommittedOffset, GroupOffsets
from waterclock.broker.groups.rebalance import Rebalance
from waterclock.broker.groups.timeouts import Sessions
from waterclock.broker.rhythm import Rhythm
from waterclock.broker.settings import Settings
from waterclock.broker.store import Store, Then
from waterclock.broker.wire.errors import Error
from waterclock.purgatory import Purgatory
from waterclock.timer import AsyncTimer

if TYPE_CHECKING:
    from waterclock.broker.folder.topics import TopicPartition, Topics

MINUTE_MS: Final = 60_000


class GroupRemoval(NamedTuple):
    """What goes of a group: the offsets of these partitions, and the `whole` group if nobody comes until it is durable."""

    group: Group
    partitions: list[TopicPartition]
    whole: bool


class GroupCoordinator:
    """Every group of the broker. `wall_ms()` is the date."""

    def __init__(
        self, store: Store, timer: AsyncTimer, settings: Settings, topics: Topics, wall_ms: Callable[[], int]
    ) -> None:
        self._store = store
        self._settings = settings
        self.wall_ms = wall_ms
        self.offsets = GroupOffsets(store, topics)
        self.joins, self.heartbeats = Purgatory("join", timer), Purgatory("heartbeat", timer)
        self.sessions = Sessions(self.heartbeats, "session")
        self.classic = Rebalance(self.sessions, self.joins, settings, wall_ms, self._keep)
        self._groups: dict[str, Group] = {}
        self.handover = over = Handover(
            self._groups, store, classic=self.classic, settings=settings, topics=topics, wall_ms=wall_ms
        )
        self.consumers = Heartbeats(over.presence, settings, topics, over.keep)
        self.mixed = ClassicMembers(over.presence, settings, topics, over.keep)
        for group_id, kept in store.load(NAMESPACE).items():
            group = self._groups[group_id] = ClassicGroup.of(group_id, kept)
            over.resume(kept, group)
        for one in consumer.loaded(store.load(consumer.NAMESPACE), store.load(consumer.MEMBERS)):
            self._groups[one.id] = one
            over.presence.resume(one)
        self._expiring = Rhythm(timer, settings["offsets.retention.check.interval.ms"] / 1000, self.expire)
        self._expiring.wake()

    def close(self) -> None:
        """Nobody waits any more."""
        self.joins.close()
        self.heartbeats.close()

    # Groups

    def get(self, group_id: str) -> Group | None:
        """A group, or None if there is none of that id."""
        group = self._groups.get(group_id)
        if group is None and (self.offsets.has(group_id) or self.offsets.pending(group_id)):
            group = self._make(group_id)
        return group

    def __iter__(self) -> Iterator[Group]:
        for group_id in self.offsets.groups():
            self.get(group_id)
        return iter(list(self._groups.values()))

    def names(self) -> list[str]:
        """Of all groups, for who looks at them one after the other, with `get`."""
        known = self._groups
        return [*known, *(name for name in self.offsets.groups() if name not in known)]

    def _make(self, group_id: str) -> ClassicGroup:
        group = self._groups[group_id] = ClassicGroup(group_id, self.wall_ms())
        self._expiring.wake()
        return group

    def _keep(self, group: ClassicGroup, then: Then, shares: Mapping[str, bytes] | None = None) -> None:
        self._store.put(NAMESPACE, group.id, group.kept(shares), then)

    def _make_way(self, group: Group, then: Then) -> None:
        """An empty group of the other protocol goes; its offsets stay."""
        self._go([GroupRemoval(group, [], True)], then)

    def settle(self, then: Then) -> None:
        """`then` is called when everything that was done up to now is durable."""
        self._store.commit((), then)

    # The classic protocol

    def join(self, request: JoinRequest, version: int, answer: Join) -> None:
        """JoinGroup."""
        least, most = self._settings["group.min.session.timeout.ms"], self._settings["group.max.session.timeout.ms"]
        group = self.get(request.group)
        if not request.group:
            answer(JoinAnswer(Error.INVALID_GROUP_ID, request.member))
        elif not least <= request.session_ms <= most:
            answer(JoinAnswer(Error.INVALID_SESSION_TIMEOUT, request.member))
        elif isinstance(group, ConsumerGroup) and not group.empty:
            self.mixed.join(group, request, version, answer)
        elif not isinstance(group, ClassicGroup) and request.member != NOBODY:
            answer(JoinAnswer(Error.UNKNOWN_MEMBER_ID, request.member))
        else:

            def join_again(done: bool) -> None:
                if done:
                    self.join(request, version, answer)
                else:
                    answer(JoinAnswer(Error.COORDINATOR_NOT_AVAILABLE, request.member))

            if isinstance(group, ConsumerGroup):
                self._make_way(group, join_again)
                return
            self.classic.join(group or self._make(request.group), request, version, answer)

    def sync(
        self,
        group_id: str,
        member: MemberIdentity,
        generation: int,
        protocol: tuple[str | None, str | None],
        shares: dict[str, bytes],
        answer: Sync,
    ) -> None:
        """SyncGroup. `protocol` is (type, name), as the member says them; a leader brings all `shares`."""
        group, error = self._find(group_id)
        if isinstance(group, ClassicGroup):
            self.classic.sync(group, *member, generation, protocol, shares, answer)
        elif isinstance(group, ConsumerGroup):
            self.mixed.sync(group, *member, generation, protocol, answer)
        else:
            answer(SyncAnswer(error))

    def heartbeat(self, group_id: str, member: MemberIdentity, generation: int) -> Error:
        """Heartbeat."""
        group, error = self._find(group_id)
        if isinstance(group, ClassicGroup):
            return self.classic.heartbeat(group, *member, generation)
        if isinstance(group, ConsumerGroup):
            return self.mixed.heartbeat(group, *member, generation)
        return error

    def leave(self, group_id: str, leaving: list[MemberIdentity], answer: Callable[[list[Error]], Any]) -> None:
        """LeaveGroup, of a group of either protocol; an error for each. Answered when what it did is durable."""
        group, error = self._find(group_id)
        if isinstance(group, ConsumerGroup):
            self.mixed.leave(group, leaving, answer)
            return
        errors = [error] * len(leaving) if group is None else self.classic.leave(group, leaving)
        self.settle(lambda done: answer(errors))

    def _find(self, group_id: str) -> tuple[Group | None, Error]:
        """The group that a member speaks of, or the error if there is none."""
        if not group_id:
            return None, Error.INVALID_GROUP_ID
        group = self.get(group_id)
        return group, Error.NONE if group is not None else Error.UNKNOWN_MEMBER_ID

    # The consumer protocol

    def hear(self, beat: Beat, answer: Callable[[HeartbeatAnswer], Any]) -> None:
        """ConsumerGroupHeartbeat; `HeartbeatRefusal` if it cannot be."""
        group = self.get(beat.group)
        if isinstance(group, ConsumerGroup):
            self.consumers.hear(group, beat, answer)
            return
        if beat.epoch != JOINS:
            problem = "is not a consumer group." if group is not None else "was not found."
            raise HeartbeatRefusal(Error.GROUP_ID_NOT_FOUND, f"Group {beat.group} {problem}")
        if group is not None:

            def hear_again(done: bool) -> None:
                if not done:
                    answer(NOT_KEPT)
                    return
                hear = self.hear if beat.group in self._groups else self._hear_first  # somebody may have come meanwhile
                try:
                    hear(beat, answer)
                except HeartbeatRefusal as refused:
                    answer(refused.heard)

            if group.empty:
                self._make_way(group, hear_again)
            else:
                self.handover.upgrade(group, partial(self.consumers.hear, beat=beat, answer=answer))
            return
        self._hear_first(beat, answer)

    def _hear_first(self, beat: Beat, answer: Callable[[HeartbeatAnswer], Any]) -> None:
        made = self._groups[beat.group] = ConsumerGroup(beat.group)
        self._expiring.wake()
        self.consumers.hear(made, beat, answer)

    # Offsets

    def check_commit(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation: int, transactional: bool
    ) -> Error:
        """Whether a member may commit offsets, for OffsetCommit and TxnOffsetCommit.

        Anybody may commit for a group that is not there, with generation -1: a simple group is made of it.
        """
        group = self.get(group_id)
        if group is None:
            if generation >= 0:
                return Error.ILLEGAL_GENERATION if transactional else Error.GROUP_ID_NOT_FOUND
            group = ClassicGroup(group_id, self.wall_ms())  # there once it has an offset
        error = group.check_commit(member_id, group_instance_id, generation, transactional)
        if not error and not transactional and isinstance(group, ClassicGroup):
            self.classic.commits(group, member_id)
        return error

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> Error:
        """Whether a member may fetch offsets; who does not say who he is may, and classic members are not checked."""
        group = self.get(group_id)
        if not isinstance(group, ConsumerGroup) or (member_id is None and epoch < 0):
            return Error.NONE
        return group.check_epoch(member_id or NOBODY, epoch)

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset], then: Then) -> None:
        """Make offsets durable, then show them, then call `then`."""

        def committed(done: bool) -> None:
            self.offsets.arrived(group_id, offsets)
            if done:
                self.offsets.apply(group_id, offsets)
            then(done)

        self._store.commit(self.offsets.send(group_id, offsets), committed)

    def check_removal(self, group_id: str) -> Error:
        """Whether offsets of a group may be deleted."""
        group = self.get(group_id)
        if group is None:
            return Error.GROUP_ID_NOT_FOUND
        in_use = isinstance(group, ClassicGroup) and not (group.empty or group.is_consumers)
        return Error.NON_EMPTY_GROUP if in_use else Error.NONE

    def remove_offsets(self, group_id: str, partitions: list[TopicPartition], then: Then) -> None:
        """Forget offsets once that is durable."""
        group = self.get(group_id)
        self._go([] if group is None else [GroupRemoval(group, partitions, False)], then)

    # What goes

    def delete(self, group_id: str, then: Then) -> Error:
        """Delete an empty group with its offsets; `then` is called when that is durable, unless there is an error."""
        group = self.get(group_id)
        if group is None:
            return Error.GROUP_ID_NOT_FOUND
        if not group.empty:
            return Error.NON_EMPTY_GROUP
        self._go([GroupRemoval(group, list(self.offsets.all(group.id)), True)], then)
        return Error.NONE

    def _go(self, going: list[GroupRemoval], then: Then) -> None:
        changes = []
        for group, partitions, whole in going:
            changes += [*(group.removals() if whole else ()), *self.offsets.removals(group.id, partitions)]

        def gone(done: bool) -> None:
            for group, partitions, whole in going if done else ():
                self.offsets.remove(group.id, partitions)
                if whole and group.empty and self._groups.get(group.id) is group:  # nobody has come meanwhile
                    if isinstance(group, ClassicGroup):
                        for member_id in list(group.promised):
                            self.sessions.end(group.id, member_id)
                        group.move(ClassicState.DEAD, self.wall_ms())
                    del self._groups[group.id]
            then(done)

        self._store.commit(changes, gone)

    def topic_gone(self, topic: str) -> None:
        """A topic was deleted for good, and with it all offsets in it."""
        for group_id in self.offsets.groups():
            self.get(group_id)  # it goes on existing without them
        changes = self.offsets.forget_topic(topic)
        if changes:
            self._store.commit(changes)  # if the store refuses, they say nothing: they belong to the topic's id

    def expire(self) -> float | None:
        """Drop offsets past their retention, and empty groups that have none left; None if there is no group."""
        going = []
        now_ms, retention_ms = self.wall_ms(), self._settings["offsets.retention.minutes"] * MINUTE_MS
        for group in self:
            coming, has = self.offsets.on_their_way(group.id), self.offsets.all(group.id)
            partitions = []
            for tp, committed in has.items():
                since_ms = group.offsets_age_from(committed.committed_ms)
                kept = since_ms is None or group.subscribed(tp[0]) or tp in coming
                if since_ms is not None and not kept and committed.expired(since_ms, now_ms, retention_ms):
                    partitions.append(tp)
            whole = group.idle and not coming and len(partitions) == len(has)
            if partitions or whole:
                going.append(GroupRemoval(group, partitions, whole))
        if going:
            self._go(going, _nobody_waits)
        return 0.0 if self._groups else None


def _nobody_waits(done: bool) -> None:
    """What is too old is looked at again."""
