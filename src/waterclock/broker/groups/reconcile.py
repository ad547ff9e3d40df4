"""A member of a consumer group on its way to its target: it lets go first, and takes what others have let go of.

    state         its next heartbeat                              then
    Stable        the target is newer than its epoch              it lets go, takes, or waits: one of the three below
    Unrevoked     still has what it is to let go of               Unrevoked; out when the rebalance timeout is over
                  has let go of it all                            on to the newest target
    Unreleased    some of the target is still somebody else's     Unreleased, with what has become free
                  all of it is its own                            Stable

Rule 1: a partition has one owner: its target member gets it when the owner has let go of it, has left or was put out.
Rule 2: a member's epoch is its target's once it has nothing more to let go of.
Source: KIP-848.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from waterclock.broker.groups.assignors import TopicIdPartition

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
