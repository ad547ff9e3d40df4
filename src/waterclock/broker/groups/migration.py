"""A group goes over to the other protocol while it has members: the classic one becomes a consumer group, and back.

    what happens                                         then
    a member joins a classic group by the new protocol   its members are members of a consumer group; those of the classic
                                                         protocol are served on by its requests (mixed.py)
    the last member of the new protocol goes             the others are a classic group, and divide anew
    one of the classic protocol takes its place,         the same; without a division if everybody is at its target
    as a static member does

`Handover` makes that, as every change of a consumer group, durable:

    step                                     if the store refuses it
    1. the group is, in memory, what it      it is what it was before: of the other protocol, if it has gone over with that.
       has become                            Who had waited there was answered to join again, and does.
    2. one commit: the group that it is,     the old one stands in the store, or the new one: never both, never none
       the one that it was goes
    3. who asked is answered                 answered that it could not be written

Rule 1: nothing is given to anybody by that: what members have read they go on to have. If that is not known (bytes
    that cannot be read, an assignor that has bytes of its own, two that read the same) the group stays what it is.
Rule 2: epoch and generation are one count: the members' generation is their epoch, and back.
Rule 3: `group.consumer.migration.policy` says which ways are open. A group that may not go back stays a consumer group,
    whatever its members speak.
Rule 4: a group that goes over is another object, and nothing runs for the old one any more.
Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from waterclock.broker.groups.assignment import UNREVOKED, ClassicSide, ConsumerMember, TopicIdPartition
from waterclock.broker.groups.classic import NAMESPACE, ClassicGroup
from waterclock.broker.groups.consumer import NEVER, ConsumerGroup, GroupSnapshot
from waterclock.broker.groups.embedded import (
    NamedPartition,
    Subscription,
    read_assignment,
    read_subscription,
    written_assignment,
)
from waterclock.broker.groups.heartbeats import HeartbeatRefusal
from waterclock.broker.groups.members import CONSUMER, ClassicMember, JoinRequest
from waterclock.broker.groups.rebalance import Rebalance
from waterclock.broker.groups.timeouts import Presence
from waterclock.broker.settings import Settings
from waterclock.broker.store import Entry, Store, Then
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.folder.topics import Topics

POLICY: Final = "group.consumer.migration.policy"
UPGRADES, DOWNGRADES = ("upgrade", "bidirectional"), ("downgrade", "bidirectional")


# From classic to consumer


def check_upgrade(group: ClassicGroup, settings: Settings) -> None:
    """`HeartbeatRefusal` if a classic group may take no member of the new protocol."""
    most = settings["group.consumer.max.size"]
    if settings[POLICY] not in UPGRADES:
        raise _refusal(group, f"{POLICY} is {settings[POLICY]}")
    if not group.is_consumers:
        raise _refusal(group, f"its members are not consumers: their protocol type is {group.protocol_type}")
    if len(group.members) > most:
        raise _refusal(group, f"it has more than {most} members")


def upgraded(group: ClassicGroup, topics: Topics) -> ConsumerGroup:
    """The consumer group that the classic one becomes: the same members, each at what it was given last."""
    made, taken = ConsumerGroup(group.id), dict[TopicIdPartition, str]()
    made.epoch = made.target_epoch = group.generation
    for member in group.members.values():
        # what it says of itself; who has not seen a generation yet may not speak the group's protocol
        said = read_subscription(member.metadata(group.protocol) or member.protocols[0][1])
        if said is None:
            raise _refusal(group, f"what its member {member.id} says of itself is not what consumers say")
        has = _has(group, member, said, topics, taken)
        taken.update(dict.fromkeys(has, member.id))
        made.target[member.id] = has
        made.put(_member(group, member, said, has))
    for member_id, one in list(made.members.items()):
        # who said when it joined that it reads more than it was given then has perhaps not heard of that yet
        named = read_subscription(group.members[member_id].protocols[0][1])
        more = frozenset(part for part in known(named.owned if named else (), topics) if made.free(part))
        if more:
            made.put(replace(one, state=UNREVOKED, revoking=more))
    return made


def _has(
    group: ClassicGroup, member: ClassicMember, said: Subscription, topics: Topics, taken: dict[TopicIdPartition, str]
) -> frozenset[TopicIdPartition]:
    """What a member was given last. If a rebalance took that away, what it says that it still reads."""
    given = read_assignment(member.assignment)
    if given is None:
        raise _refusal(group, f"what its member {member.id} was given is not what consumers are given")
    if given.own:
        raise _refusal(group, "its assignor has bytes of its own, which the broker cannot carry on")
    if not member.assignment:
        return known(said.owned, topics) - taken.keys()
    has = known(given.parts, topics)
    if twice := has & taken.keys():
        other = taken[min(twice)]
        raise _refusal(group, f"its members {other} and {member.id} were given the same partition")
    return has


def known(parts: Iterable[NamedPartition], topics: Topics) -> frozenset[TopicIdPartition]:
    """Partitions by their topic's id; those that are not there are left out."""
    found = ((topics.by_name.get(name), number) for name, number in parts)
    return frozenset((topic.id, number) for topic, number in found if topic and 0 <= number < len(topic.partitions))


def _member(
    group: ClassicGroup, member: ClassicMember, said: Subscription, has: frozenset[TopicIdPartition]
) -> ConsumerMember:
    return ConsumerMember(
        member.id, member.instance, said.rack, member.client_id, member.client_host, rebalance_ms=member.rebalance_ms,
        topics=said.topics, epoch=group.generation, previous=group.generation, assigned=has,
        classic=ClassicSide(member.session_ms, member.protocols),
    )  # fmt: skip


def _refusal(group: ClassicGroup, why: str) -> HeartbeatRefusal:
    remedy = "A member of the new protocol may join when it is empty"
    return HeartbeatRefusal(Error.GROUP_ID_NOT_FOUND, f"The classic group {group.id} stays one: {why}. {remedy}.")


# From consumer to classic


def downgrades(group: ConsumerGroup, before: GroupSnapshot, settings: Settings) -> bool:
    """Whether with this change the last member of the new protocol is gone, and the group goes back."""
    spoke_both = any(member.classic is None for member in before.members.values())
    fits = len(group.members) <= settings["group.max.size"]
    return spoke_both and group.all_classic and fits and settings[POLICY] in DOWNGRADES


def downgraded(group: ConsumerGroup, topics: Topics, now_ms: int) -> ClassicGroup:
    """The classic group that a consumer group becomes, whose members all speak the classic protocol: stable."""
    made = ClassicGroup(group.id, now_ms)
    for member in group.members.values():
        made.add(_classic_member(group, member, topics), None)
    made.stand(CONSUMER, group.target_epoch)
    return made


def _classic_member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> ClassicMember:
    assert member.classic is not None, f"{member.id} of {group.id} does not speak the classic protocol"
    made = ClassicMember(member.id, JoinRequest(
        group.id, member.id, member.instance, member.client_id, member.client_host, member.classic.session_ms,
        member.rebalance_ms, CONSUMER, member.classic.protocols,
    ))  # fmt: skip
    made.assignment = encoded(group.target.get(member.id, frozenset()), member.classic, topics)
    return made


def encoded(parts: Iterable[TopicIdPartition], side: ClassicSide, topics: Topics) -> bytes:
    """Partitions as a member of the classic protocol is given them, in the version that it speaks."""
    said = read_subscription(side.protocols[0][1])
    named = ((topics.by_id.get(topic_id), number) for topic_id, number in parts)
    return written_assignment(((topic.name, number) for topic, number in named if topic), said.version if said else 0)


UNDIVIDED: Final = "undivided"  # of a classic group that was a consumer group, until it has divided by itself
Group: TypeAlias = ClassicGroup | ConsumerGroup


class Handover:
    """Keeps consumer groups, and puts them into `groups`, or classic ones in their place. `wall_ms()` is the date."""

    def __init__(
        self,
        groups: dict[str, Group],
        store: Store,
        *,
        classic: Rebalance,
        settings: Settings,
        topics: Topics,
        wall_ms: Callable[[], int],
    ) -> None:
        self._groups = groups
        self._store = store
        self._classic = classic
        self._settings = settings
        self._topics, self._wall_ms = topics, wall_ms
        self.presence = Presence(classic.sessions, classic.joins, settings, self.keep)
        self._came_from: dict[ConsumerGroup, ClassicGroup] = {}  # what a group was, until what it is is durable

    def keep(self, group: ConsumerGroup, then: Then) -> None:
        """Make durable what is new of a group; `then` is called when everything up to now is."""
        changes = group.changes()
        if not (changes or group.on_their_way):
            then(True)
            return
        before, became = (group.standing if changes else None), None
        if before is NEVER and group in self._came_from:
            changes += self._came_from[group].removals()
        if before is not None and downgrades(group, before, self._settings):
            became = self._downgrade(group)
            changes = [*group.removals(), Entry(NAMESPACE, group.id, {**became.kept(), UNDIVIDED: not became.stable})]
        if changes:
            group.standing = group.stands()
        group.on_their_way += 1

        def kept(done: bool) -> None:
            group.on_their_way -= 1
            if done:
                self._came_from.pop(group, None)
            elif before is not None:
                self._take_back(group, became, before)
            then(done)

        self._store.commit(changes, kept)

    def _take_back(self, group: ConsumerGroup, became: ClassicGroup | None, before: GroupSnapshot) -> None:
        if became is not None:
            self._classic.retire(became)
            self._groups[group.id] = group
        self.presence.take_back(group, before)
        if before is not NEVER or self._groups.get(group.id) is not group:
            return
        came_from = self._came_from.pop(group, None)
        if came_from is None:
            del self._groups[group.id]
        else:
            self._groups[group.id] = came_from
            self._classic.reinstate(came_from)

    # From one protocol to the other

    def upgrade(self, group: ClassicGroup, hear: Callable[[ConsumerGroup], Any]) -> None:
        """A classic group is a consumer group, if that `hear`s who joins it; `HeartbeatRefusal` if it cannot be one."""
        check_upgrade(group, self._settings)
        self._groups[group.id] = made = upgraded(group, self._topics)
        self._came_from[made] = group
        try:
            hear(made)
        except HeartbeatRefusal:
            self._groups[group.id] = self._came_from.pop(made)
            raise
        self._classic.retire(group)
        self.presence.resume(made)

    def _downgrade(self, group: ConsumerGroup) -> ClassicGroup:
        """The classic group that it is now. Unless everybody is at its target the members divide anew."""
        for member_id in group.members:
            self.presence.forget(group, member_id)
        made = self._groups[group.id] = downgraded(group, self._topics, self._wall_ms())
        self._classic.resume(made)
        if group.state_name != "Stable":
            self._classic.divide_anew(made)
        return made

    def resume(self, kept: dict[str, Any], group: ClassicGroup) -> None:
        """A classic group after a restart; one that was a consumer group divides if it had not."""
        self._classic.resume(group)
        if kept.get(UNDIVIDED):
            self._classic.divide_anew(group)
