"""Which partitions each member of a consumer group is to have (the broker divides, not a member), and its way: it lets
go first, and takes what others have let go of.

    state         its next heartbeat                              then
    Stable        the target is newer than its epoch              it lets go, takes, or waits: one of the three below
    Unrevoked     still has what it is to let go of               Unrevoked; out when the rebalance timeout is over
                  has let go of it all                            on to the newest target
    Unreleased    some of the target is still somebody else's     Unreleased, with what has become free
                  all of it is its own                            Stable

Rule 1: a partition is given to at most one member, and only to one that subscribes to its topic.
Rule 2: `uniform` keeps what members have if it can: nothing moves that does not make the division more even.
Rule 3: `range` gives each member a row of neighbours of every topic, so that equal partitions of several topics meet.
Rule 4: a partition has one owner: its target member gets it when the owner has let go of it, has left or was put out.
Rule 5: a member's epoch is its target's once it has nothing more to let go of.
Source: KIP-848.
"""

from __future__ import annotations

import base64
import heapq
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias
from uuid import UUID

TopicIdPartition: TypeAlias = "tuple[UUID, int]"  # topic, partition
Division: TypeAlias = "dict[str, frozenset[TopicIdPartition]]"  # member -> partitions
Assignor: TypeAlias = (
    "Callable[[Mapping[str, frozenset[UUID]], Mapping[str, frozenset[TopicIdPartition]], Mapping[UUID, int]], Division]"
)


def by_range(
    subscribed: Mapping[str, frozenset[UUID]], has: Mapping[str, frozenset[TopicIdPartition]], sizes: Mapping[UUID, int]
) -> Division:
    """Neighbours: of 5 partitions two members have 0-2 and 3-4. `subscribed` is in the order of the members.

    >>> t = UUID(int=1)
    >>> {m: sorted(n for _, n in some) for m, some in by_range({"a": {t}, "b": {t}}, {}, {t: 5}).items()}
    {'a': [0, 1, 2], 'b': [3, 4]}
    """
    division: dict[str, list[TopicIdPartition]] = {member: [] for member in subscribed}
    for topic, size in sizes.items():
        members = [member for member, topics in subscribed.items() if topic in topics]
        at = 0
        for index, member in enumerate(members):
            count = size // len(members) + (index < size % len(members))
            division[member].extend((topic, number) for number in range(at, at + count))
            at += count
    return {member: frozenset(parts) for member, parts in division.items()}


def uniform(
    subscribed: Mapping[str, frozenset[UUID]], has: Mapping[str, frozenset[TopicIdPartition]], sizes: Mapping[UUID, int]
) -> Division:
    """As even as subscriptions allow, with as few moves as that takes.

    1. Everybody keeps what he has, as far as he still subscribes to it.
    2. What nobody has goes to whoever has least.
    3. While somebody has two more than somebody else who could have one of them, it moves.

    >>> t = UUID(int=1)
    >>> has = {"a": frozenset({(t, 0), (t, 1), (t, 2)})}
    >>> {m: sorted(n for _, n in some) for m, some in uniform({"a": {t}, "b": {t}}, has, {t: 4}).items()}
    {'a': [0, 1], 'b': [2, 3]}
    """
    load = dict.fromkeys(subscribed, 0)
    held: dict[UUID, dict[str, set[int]]] = {
        topic: {member: set() for member, topics in subscribed.items() if topic in topics} for topic in sizes
    }
    for member, some in has.items():  # 1
        for topic, number in some:
            if member in held.get(topic, ()) and number < sizes[topic]:
                held[topic][member].add(number)
                load[member] += 1
    for topic, holders in held.items():
        _hand_out(holders, load, sizes[topic])  # 2
    while sum(_even_out(holders, load) for holders in held.values()):  # 3, every topic before the next round
        pass
    division: dict[str, list[TopicIdPartition]] = {member: [] for member in subscribed}
    for topic, holders in held.items():
        for member, numbers in holders.items():
            division[member].extend((topic, number) for number in numbers)
    return {member: frozenset(some) for member, some in division.items()}


def _hand_out(holders: dict[str, set[int]], load: dict[str, int], size: int) -> None:
    """Give what nobody has of one topic; its readers stand in a heap by how much they have in all."""
    heap = [(load[member], index, member) for index, member in enumerate(holders)]
    heapq.heapify(heap)
    for number in sorted(set(range(size)).difference(*holders.values())) if heap else ():
        _, index, member = heap[0]
        holders[member].add(number)
        load[member] += 1
        heapq.heapreplace(heap, (load[member], index, member))


def _even_out(holders: dict[str, set[int]], load: dict[str, int]) -> bool:
    """Move partitions of one topic from who has most in all to who has least; whether any moved."""
    moved = False
    while any(holders.values()):
        most = max((member for member, numbers in holders.items() if numbers), key=load.__getitem__)
        least = min(holders, key=load.__getitem__)
        if load[most] - load[least] < 2:
            break
        holders[most].remove(number := max(holders[most]))
        holders[least].add(number)
        load[most] -= 1
        load[least] += 1
        moved = True
    return moved


ASSIGNORS: Final[dict[str, Assignor]] = {"uniform": uniform, "range": by_range}


STABLE, UNREVOKED, UNRELEASED = "Stable", "Unrevoked", "Unreleased"
JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2  # what a member says instead of an epoch
NO_PARTS: frozenset[TopicIdPartition] = frozenset()


@dataclass(frozen=True)
class ClassicSide:
    """What a member says that is served by JoinGroup, SyncGroup and Heartbeat: mixed.py. The dearest protocol first."""

    session_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    def kept(self) -> dict[str, Any]:
        """What survives a restart."""
        rows = [[name, base64.b64encode(data).decode()] for name, data in self.protocols]
        return {"session": self.session_ms, "protocols": rows}

    @classmethod
    def of(cls, kept: dict[str, Any]) -> ClassicSide:
        return cls(kept["session"], tuple((name, base64.b64decode(data)) for name, data in kept["protocols"]))


@dataclass(frozen=True)
class ConsumerMember:
    """One member, as it is now; `owns` is what nobody else may have. `classic`: it speaks the classic protocol."""

    id: str
    instance: str | None = None
    rack: str | None = None
    client_id: str = ""
    client_host: str = ""
    principal: str = ""
    rebalance_ms: int = -1
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous: int = 0
    state: str = STABLE
    assigned: frozenset[TopicIdPartition] = field(default=NO_PARTS)
    revoking: frozenset[TopicIdPartition] = field(default=NO_PARTS)
    classic: ClassicSide | None = None

    @property
    def owns(self) -> frozenset[TopicIdPartition]:
        return self.assigned | self.revoking

    def at(
        self, epoch: int, state: str, assigned: Iterable[TopicIdPartition], revoking: Iterable[TopicIdPartition] = ()
    ) -> ConsumerMember:
        """The same member, further on."""
        return replace(
            self,
            epoch=epoch,
            previous=self.epoch,
            state=state,
            assigned=frozenset(assigned),
            revoking=frozenset(revoking),
        )

    def kept(self) -> dict[str, Any]:
        """What survives a restart. Versions before mixed groups know no `classic`: it is left out if there is none."""
        values = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "classic"}
        plain = {"topics": sorted(self.topics), "assigned": rows(self.assigned), "revoking": rows(self.revoking)}
        side = {} if self.classic is None else {"classic": self.classic.kept()}
        return {**values, **plain, **side}

    @classmethod
    def of(cls, kept: dict[str, Any]) -> ConsumerMember:
        read: dict[str, Any] = {"assigned": parts(kept["assigned"]), "revoking": parts(kept["revoking"])}
        if "classic" in kept:
            read["classic"] = ClassicSide.of(kept["classic"])
        return cls(**{**kept, "topics": frozenset(kept["topics"]), **read})


def rows(some: Iterable[TopicIdPartition]) -> list[list[Any]]:
    """Partitions as JSON has them."""
    return [[str(topic), number] for topic, number in sorted(some)]


def parts(kept: Iterable[Iterable[Any]]) -> frozenset[TopicIdPartition]:
    """Partitions back from JSON."""
    return frozenset((UUID(topic), number) for topic, number in kept)


def reconcile(
    member: ConsumerMember,
    epoch: int,
    target: frozenset[TopicIdPartition],
    free: Callable[[TopicIdPartition], bool],
    has: frozenset[TopicIdPartition] | None,
) -> ConsumerMember:
    """The member after its heartbeat. `has`: what it says that it reads; None if it does not say."""
    if member.state == STABLE and member.epoch == epoch:
        return member
    reached = member.epoch
    if member.state == UNREVOKED:
        if _still_reads(has, member.revoking):
            return member
        reached += 1
    stays = member.assigned & target
    leaves = member.assigned - target
    if leaves and _still_reads(has, leaves):
        return member.at(reached, UNREVOKED, stays, leaves)
    comes = {part for part in target - stays if free(part)}
    waits = len(stays) + len(comes) < len(target)
    state, assigned = UNRELEASED if waits else STABLE, stays | comes
    if (member.epoch, member.state, member.assigned, member.revoking) == (epoch, state, assigned, NO_PARTS):
        return member
    return member.at(epoch, state, assigned)


def _still_reads(has: frozenset[TopicIdPartition] | None, leaves: frozenset[TopicIdPartition]) -> bool:
    return has is None or bool(has & leaves)
