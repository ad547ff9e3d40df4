"""Assignors of the consumer protocol: who is to have which partitions. The broker divides, not a member.

Rule 1: a partition is given to at most one member, and only to one that subscribes to its topic.
Rule 2: `uniform` keeps what members have if it can: nothing moves that does not make the division more even.
Rule 3: `range` gives each member a row of neighbours of every topic, so that equal partitions of several topics meet.
Source: KIP-848.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias
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
