"""A group goes over to the other protocol while it has members: the classic one becomes a consumer group, and back.

    what happens                                         then
    a member joins a classic group by the new protocol   its members are members of a consumer group; those of the classic
                                                         protocol are served on by its requests (mixed.py)
    the last member of the new protocol goes             the others are a classic group, and divide anew
    one of the classic protocol takes its place,         the same; without a division if everybody is at its target
    as a static member does

Rule 1: nothing is given to anybody by that: what members have read they go on to have. If that is not known (bytes
    that cannot be read, an assignor that has bytes of its own, two that read the same) the group stays what it is.
Rule 2: epoch and generation are one count: the members' generation is their epoch, and back.
Rule 3: `group.consumer.migration.policy` says which ways are open. A group that may not go back stays a consumer group,
    whatever its members speak.
Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from waterclock.broker.groups.assignors import TopicIdPartition
from waterclock.broker.groups.classic import ClassicGroup
from waterclock.broker.groups.consumer import ConsumerGroup, GroupSnapshot
from waterclock.broker.groups.embedded import (
    NamedPartition,
    Subscription,
    read_assignment,
    read_subscription,
    written_assignment,
)
from waterclock.broker.groups.heartbeats import HeartbeatRefusal
from waterclock.broker.groups.members import CONSUMER, ClassicMember, JoinRequest
from waterclock.broker.groups.reconcile import UNREVOKED, ClassicSide, ConsumerMember
from waterclock.broker.settings import Settings
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.topics import Topics

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
