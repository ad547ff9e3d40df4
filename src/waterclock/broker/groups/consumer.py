"""A group under the consumer protocol: its members, what each is to have, and who has what now.

    state          when
    Empty          it has no member
    Assigning      its epoch is newer than its target: the next heartbeat divides anew
    Reconciling    some member is not at its target yet
    Stable         everybody is
    Dead           it was deleted

Rule 1: the epoch grows with every change of members, subscriptions or topics; the target belongs to an epoch.
Rule 2: `owners` says who has a partition; nobody else is given it until it is let go of.
Rule 3: what changed since the last `changes` is what must become durable before anybody is answered. If the store
    refuses that, the group is what it was before: `standing`.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waterclock.broker.groups.assignment import (
    ASSIGNORS,
    NO_PARTS,
    STABLE,
    ConsumerMember,
    TopicIdPartition,
    parts,
    reconcile,
    rows,
)
from waterclock.broker.groups.members import CONSUMER
from waterclock.broker.groups.subscriptions import SeenTopic, Subscriptions
from waterclock.broker.store import Entry
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.folder.topics import Topics

NAMESPACE: Final = "consumer_group"
MEMBERS: Final = "consumer_member"


class GroupSnapshot(NamedTuple):
    """A group at one moment: what a change is taken back to."""

    epoch: int
    target_epoch: int
    assignor: str
    topics: dict[str, SeenTopic]
    members: dict[str, ConsumerMember]
    target: dict[str, frozenset[TopicIdPartition]]


NEVER: Final = GroupSnapshot(1, 0, "", {}, {}, {})  # of a group that is not in the store yet


class ConsumerGroup:
    """One group of consumers that the broker divides."""

    kind = "consumer"
    protocol_type = CONSUMER

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch, self.target_epoch = 1, 0
        self.assignor = ""
        self.members: dict[str, ConsumerMember] = {}
        self.static: dict[str, str] = {}  # instance -> member id
        self.target: dict[str, frozenset[TopicIdPartition]] = {}
        self.owners: dict[TopicIdPartition, str] = {}
        self.subscriptions = Subscriptions()
        self.topics: dict[str, SeenTopic] = {}  # what it subscribes to, as the target has it
        self._changed: set[str] = set()  # members
        self.standing = NEVER  # what it was at the last `changes`
        self.on_their_way = 0  # changes that the store has not answered

    @property
    def empty(self) -> bool:
        return not self.members

    @property
    def idle(self) -> bool:
        """Whether nobody is in it or on the way to it."""
        return self.empty

    @property
    def state_name(self) -> str:
        if self.empty:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        there = (member.state == STABLE and member.epoch == self.target_epoch for member in self.members.values())
        return "Stable" if all(there) else "Reconciling"

    @property
    def all_classic(self) -> bool:
        """Whether there are members, and all of them speak the classic protocol."""
        return not self.empty and all(member.classic is not None for member in self.members.values())

    def subscribed(self, topic: str) -> bool:
        """Whether its members read the topic."""
        return not self.empty and topic in self.topics

    def offsets_age_from(self, committed_ms: int) -> int | None:
        """The date from which an offset's retention counts."""
        return committed_ms

    def free(self, part: TopicIdPartition) -> bool:
        """Whether nobody has the partition."""
        return part not in self.owners

    # Members

    def put(self, member: ConsumerMember) -> None:
        """A member came, or is not what it was."""
        self._replace(self.members.get(member.id), member)
        self.members[member.id] = member

    def remove(self, *member_ids: str) -> None:
        """Members are out, and what they had is free."""
        for member_id in member_ids:
            self._replace(self.members.pop(member_id), None)
            self.target.pop(member_id, None)
        self.epoch += 1

    def rename(self, member: ConsumerMember, before: str) -> None:
        """A static member is back under another id, with what was to be its own."""
        self._replace(self.members.pop(before), None)
        self.target[member.id] = self.target.pop(before, NO_PARTS)
        self.put(member)

    def _replace(self, before: ConsumerMember | None, after: ConsumerMember | None) -> None:
        self.subscriptions.replace(before, after)
        for member, owner in ((before, None), (after, after)):
            if member is None:
                continue
            self._changed.add(member.id)
            if member.instance is not None and owner is not None:
                self.static[member.instance] = member.id
            elif member.instance is not None:
                self.static.pop(member.instance, None)
            for part in member.owns:
                if owner is not None:
                    self.owners[part] = owner.id
                elif self.owners.get(part) == member.id:
                    del self.owners[part]

    # The target

    def advance(
        self,
        before: ConsumerMember,
        member: ConsumerMember,
        has: frozenset[TopicIdPartition] | None,
        topics: Topics,
        default: str,
    ) -> ConsumerMember:
        """A member that was heard of, as it is then: what is new, a target if there is need, a step towards it.

        `has` is what it says that it reads; `default` is the assignor if nobody names one.
        """
        if member != self.members.get(member.id):
            self.put(member)
        self.look(topics, (member.topics, member.regex) != (before.topics, before.regex))
        if self.epoch > self.target_epoch:
            self.divide(topics, default)
        target = self.target.get(member.id, NO_PARTS)
        after = reconcile(member, self.target_epoch, target, self.free, has)
        if after is not member:
            self.put(after)
        return after

    def may_take(self, member: ConsumerMember) -> bool:
        """Whether all that the member waits for is free by now."""
        return all(self.free(part) for part in self.target.get(member.id, NO_PARTS) - member.assigned)

    def look(self, topics: Topics, news: bool) -> None:
        """A new epoch if a member has `news` of its subscription, or the topics are not as the target has them."""
        seen = self.subscriptions.seen(topics)
        self.epoch += news or seen != self.topics
        self.topics = seen

    def divide(self, topics: Topics, default: str) -> None:
        """A target for this epoch, by the assignor that most members ask for."""
        order = sorted(self.members.values(), key=lambda m: (m.instance is None, m.instance or m.id))
        subscribed = {
            member.id: frozenset(
                self.topics[name].id for name in self.subscriptions.names(member, topics) if name in self.topics
            )
            for member in order
        }
        sizes = {seen.id: seen.partitions for seen in self.topics.values()}
        named = [member.assignor for member in self.members.values() if member.assignor]
        self.assignor = max(named, key=named.count) if named else default
        target = ASSIGNORS[self.assignor](subscribed, self.target, sizes)
        self._changed |= {member for member in target if target[member] != self.target.get(member, NO_PARTS)}
        self.target, self.target_epoch = target, self.epoch

    # Who may do what

    def check_commit(self, member_id: str, instance: str | None, epoch: int, transactional: bool) -> Error:
        """Whether this member may commit offsets: in its own epoch. Without one an empty group takes them from anybody.

        Any group takes them from a transaction that names no member.
        """
        if epoch < 0 and (self.empty or (transactional and not member_id and instance is None)):
            return Error.NONE
        error = self.check_epoch(member_id, epoch)
        return Error.ILLEGAL_GENERATION if transactional and error is Error.STALE_MEMBER_EPOCH else error

    def check_epoch(self, member_id: str, epoch: int) -> Error:
        """Whether this is a member in this epoch."""
        member = self.members.get(member_id)
        if member is None:
            return Error.UNKNOWN_MEMBER_ID
        stale = Error.STALE_MEMBER_EPOCH if member.classic is None else Error.ILLEGAL_GENERATION
        return Error.NONE if member.epoch == epoch else stale

    # Kept

    def changes(self) -> list[Entry]:
        """What is not durable yet; nothing if nothing changed."""
        if not self._changed:
            return []
        changed, self._changed = self._changed, set()
        topics = {name: [str(seen.id), seen.partitions] for name, seen in self.topics.items()}
        kept = {"epoch": self.epoch, "target": self.target_epoch, "assignor": self.assignor, "topics": topics}
        entries = [Entry(NAMESPACE, self.id, kept)]
        for member_id in sorted(changed):
            row: dict[str, Any] | None = None
            if (member := self.members.get(member_id)) is not None:
                row = {**member.kept(), "target": rows(self.target.get(member_id, ()))}
            entries.append(Entry(MEMBERS, self._key(member_id), row))
        return entries

    def stands(self) -> GroupSnapshot:
        """What it is now."""
        target = self.target_epoch, self.assignor, self.topics
        return GroupSnapshot(self.epoch, *target, dict(self.members), dict(self.target))

    def restore(self, before: GroupSnapshot) -> None:
        """Be again what it was."""
        self.epoch, self.target_epoch, self.assignor, self.topics, members, target = self.standing = before
        self.members = {}
        self.static = {}
        self.target = dict(target)
        self.owners = {}
        self.subscriptions = Subscriptions()
        for member in members.values():
            self.put(member)
        self._changed.clear()

    def removals(self) -> list[Entry]:
        """What makes it durable that the group is gone, with those who were its members and who are."""
        gone = sorted(self.members.keys() | self.standing.members.keys())
        return [Entry(NAMESPACE, self.id, None), *(Entry(MEMBERS, self._key(member_id), None) for member_id in gone)]

    def _key(self, member_id: str) -> str:
        return json.dumps([self.id, member_id])

    @classmethod
    def of(cls, group_id: str, kept: dict[str, Any], members: list[dict[str, Any]]) -> ConsumerGroup:
        """The group that was kept."""
        group, target = cls(group_id), {row["id"]: parts(row.pop("target")) for row in members}
        topics = {name: SeenTopic(next(iter(parts([row])))[0], row[1]) for name, row in kept["topics"].items()}
        there = {row["id"]: ConsumerMember.of(row) for row in members}
        group.restore(GroupSnapshot(kept["epoch"], kept["target"], kept["assignor"], topics, there, target))
        return group


def loaded(groups: dict[str, Any], members: dict[str, Any]) -> list[ConsumerGroup]:
    """All groups, from the namespaces of groups and members."""
    of: dict[str, list[dict[str, Any]]] = {group_id: [] for group_id in groups}
    for key, row in members.items():
        of[json.loads(key)[0]].append(row)
    return [ConsumerGroup.of(group_id, kept, of[group_id]) for group_id, kept in groups.items()]
