"""A group under the classic protocol: who is in it, who leads it, what it speaks. No time, no storage, no answers' bytes.

    state                 leaves it when                                                  for
    Empty                 a member joins                                                  PreparingRebalance
                          it is deleted, or its last offset is too old                    Dead
    PreparingRebalance    everybody has joined, or the rebalance timeout is over          CompletingRebalance
                          the same, and nobody is left                                    Empty
    CompletingRebalance   the leader's assignment is durable                              Stable
                          somebody joins, leaves, expires, says something else, or
                          has not asked for its share within the rebalance timeout        PreparingRebalance
    Stable                somebody joins, leaves, expires, says something else, or the
                          leader joins again                                              PreparingRebalance
    Dead                  -

Rule 1: a leader leads until it leaves or does not join again; then it is whoever has joined and came first.
Rule 2: a protocol is chosen that every member speaks; each votes for the one that it names first.
Rule 3: a static member (one with an instance) has one member id at a time; who comes with an older one is fenced.
Source: Kafka's group coordinator; KIP-62 (timeouts), KIP-345 (static members), KIP-394 (member ids).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

from waterclock.broker.groups.embedded import subscribed_topics
from waterclock.broker.groups.members import (
    CONSUMER,
    ClassicMember,
    Join,
    JoinAnswer,
    JoinRequest,
    Sync,
    SyncAnswer,
    check_member,
)
from waterclock.broker.store import Entry
from waterclock.broker.wire.errors import Error

NAMESPACE: Final = "group"


class ClassicState(Enum):
    """Kafka's names, as ListGroups and DescribeGroups say them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


LEADS_TO = {
    ClassicState.EMPTY: {ClassicState.PREPARING, ClassicState.DEAD},
    ClassicState.PREPARING: {ClassicState.COMPLETING, ClassicState.EMPTY},
    ClassicState.COMPLETING: {ClassicState.STABLE, ClassicState.PREPARING},
    ClassicState.STABLE: {ClassicState.PREPARING},
    ClassicState.DEAD: set[ClassicState](),
}


class ClassicGroup:
    """One group; `now_ms` is the date. A group without a protocol type only keeps offsets: a simple one."""

    kind = "classic"

    def __init__(self, group_id: str, now_ms: int) -> None:
        self.id = group_id
        self.state, self.before = ClassicState.EMPTY, ClassicState.DEAD
        self.since_ms = now_ms  # when it came into its state
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.static: dict[str, str] = {}  # instance -> member id
        self.promised: dict[str, None] = {}  # member ids given out, not yet used to join
        self.unsynced: set[str] = set()  # members that have not asked for their share of this generation
        self.newcomers = False  # somebody joined while the first rebalance waited for more
        self.topics: frozenset[str] | None = None  # what its consumers subscribe to, if that is known
        self._joined = 0  # members that wait for the next generation
        self._speak: Counter[str] = Counter()  # protocol -> members that speak it

    # What it is

    @property
    def empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def stable(self) -> bool:
        return self.state is ClassicState.STABLE

    @property
    def idle(self) -> bool:
        """Whether nobody is in it or on the way to it."""
        return self.empty and not self.promised

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def all_joined(self) -> bool:
        """Whether every member waits for the next generation, and nobody with a promised id is on the way."""
        return self._joined == len(self.members) and not self.promised

    @property
    def rebalance_s(self) -> float:
        """How long members may take to join: as long as the slowest asks for."""
        return max((member.rebalance_ms for member in self.members.values()), default=0) / 1000

    @property
    def is_consumers(self) -> bool:
        return self.protocol_type == CONSUMER

    def subscribed(self, topic: str) -> bool:
        """Whether its members may be reading the topic: offsets of such are not deleted."""
        return self.is_consumers if self.topics is None else topic in self.topics

    def supports(self, protocol_type: str, protocols: Iterable[tuple[str, bytes]]) -> bool:
        """Whether somebody who speaks these can be a member."""
        names = [name for name, _ in protocols]
        if self.empty:
            return bool(protocol_type and names)
        return self.protocol_type == protocol_type and any(self._speak[name] == len(self.members) for name in names)

    def full(self, member_id: str, most: int) -> bool:
        """Whether it can take no more members; during a rebalance those count who have joined again."""
        if self.empty or self.state is ClassicState.DEAD:
            return False
        member = self.members.get(member_id)
        if self.state is ClassicState.PREPARING:
            return (member is None or member.joining is None) and self._joined >= most
        return member is None and len(self.members) >= most

    def check_member(self, member_id: str, instance: str | None) -> Error:
        """Whether this is a member, and the one with that instance."""
        return check_member(self.members, self.static, member_id, instance)

    def check_commit(self, member_id: str, instance: str | None, generation: int, transactional: bool) -> Error:
        """Whether this member may commit offsets. Without a generation an empty group takes them from anybody."""
        if generation < 0 and self.empty:
            return Error.NONE
        if generation >= 0 or member_id or instance is not None:
            error = self.check_member(member_id, instance)
            if error:
                return error
            if generation != self.generation:
                return Error.ILLEGAL_GENERATION
        elif not transactional:
            return Error.UNKNOWN_MEMBER_ID
        if not transactional and self.state is ClassicState.COMPLETING:
            return Error.REBALANCE_IN_PROGRESS
        return Error.NONE

    def offsets_age_from(self, committed_ms: int) -> int | None:
        """The date from which an offset's retention counts; None: the group is in use, nothing grows old."""
        if self.protocol_type is not None and self.empty:
            return self.since_ms
        if self.protocol_type is None or (self.topics is not None and self.state is ClassicState.STABLE):
            return committed_ms
        return None

    # Members come and go

    def add(self, member: ClassicMember, answer: Join | None) -> None:
        """One more member, which waits for the next generation if there is an `answer`."""
        self.leader = self.leader or member.id
        self.members[member.id] = member
        if member.instance is not None:
            self.static[member.instance] = member.id
        self._speak.update(name for name, _ in member.protocols)
        self.promised.pop(member.id, None)
        self.await_join(member, answer)

    def remove(self, member_id: str) -> None:
        """Forget a member, or a promised id."""
        self.promised.pop(member_id, None)
        self.unsynced.discard(member_id)
        member = self.members.get(member_id)
        if member is None:
            return
        self.answer_join(member, JoinAnswer(Error.UNKNOWN_MEMBER_ID))
        self.answer_sync(member, SyncAnswer(Error.UNKNOWN_MEMBER_ID))
        del self.members[member_id]
        self._speak.subtract(name for name, _ in member.protocols)
        if member.instance is not None:
            self.static.pop(member.instance, None)

    def update(self, member: ClassicMember, request: JoinRequest, answer: Join | None) -> None:
        """A member joins again."""
        self._speak.subtract(name for name, _ in member.protocols)
        member.describe(request)
        self._speak.update(name for name, _ in member.protocols)
        self.await_join(member, answer)

    def replace(self, instance: str, member_id: str) -> ClassicMember:
        """A static member is back, under a new id; whoever used the old one is fenced."""
        old = self.members.pop(self.static[instance])
        self.answer_join(old, JoinAnswer(Error.FENCED_INSTANCE_ID, old.id))
        self.answer_sync(old, SyncAnswer(Error.FENCED_INSTANCE_ID))
        self.unsynced.discard(old.id)
        if self.leader == old.id:
            self.leader = member_id
        old.id = self.static[instance] = member_id
        self.members[member_id] = old
        return old

    # Answers that wait

    def await_join(self, member: ClassicMember, answer: Join | None) -> None:
        self.answer_join(member, JoinAnswer(Error.REBALANCE_IN_PROGRESS, member.id))
        member.joining = answer
        self._joined += answer is not None

    def answer_join(self, member: ClassicMember, joined: JoinAnswer) -> None:
        answer, member.joining = member.joining, None
        if answer is not None:
            self._joined -= 1
            answer(joined)

    def await_sync(self, member: ClassicMember, answer: Sync) -> None:
        self.answer_sync(member, SyncAnswer(Error.REBALANCE_IN_PROGRESS))
        member.syncing = answer

    def answer_sync(self, member: ClassicMember, synced: SyncAnswer) -> bool:
        """Whether somebody had waited for that."""
        answer, member.syncing = member.syncing, None
        if answer is not None:
            answer(synced)
        return answer is not None

    # Generations

    def move(self, state: ClassicState, now_ms: int) -> None:
        """Into the next state."""
        assert state in LEADS_TO[self.state], f"{self.id}: {self.state} does not lead to {state}"
        self.before = self.state
        self.state = state
        self.since_ms = now_ms

    def elect(self) -> bool:
        """Have a leader that joined; False if nobody did."""
        leader = self.members.get(self.leader or "")
        if leader is None or leader.joining is None:
            joined = next((m.id for m in self.members.values() if m.joining is not None), None)
            self.leader = joined or self.leader
            return joined is not None
        return True

    def next_generation(self, now_ms: int) -> None:
        """All that joined are one generation; without members the group is empty."""
        self.generation += 1
        self.unsynced = set(self.members)
        self.newcomers = False
        self.protocol = self.elected_protocol() if self.members else None
        self.topics = self._subscribed_topics()
        self.move(ClassicState.COMPLETING if self.members else ClassicState.EMPTY, now_ms)

    def elected_protocol(self) -> str:
        """The protocol with the most votes; of equal ones that which was named first."""
        candidates = {name for name, count in self._speak.items() if count == len(self.members)}
        votes = Counter(member.vote(candidates) for member in self.members.values())
        return votes.most_common(1)[0][0]

    def _subscribed_topics(self) -> frozenset[str] | None:
        if not self.is_consumers:
            return None
        found = [subscribed_topics(member.metadata(self.protocol)) for member in self.members.values()]
        return None if None in found else frozenset().union(*(topics for topics in found if topics))

    def joined(self, member: ClassicMember, *, skip: bool = False) -> JoinAnswer:
        """What a member is answered about this generation."""
        leads = member.id == self.leader
        rows = tuple((m.id, m.instance, m.metadata(self.protocol)) for m in self.members.values()) if leads else ()
        return JoinAnswer(
            Error.NONE, member.id, self.generation, self.protocol_type, self.protocol, self.leader or "",
            skip and leads, rows,
        )  # fmt: skip

    def share(self, member: ClassicMember) -> SyncAnswer:
        """What a member is answered about its assignment."""
        return SyncAnswer(Error.NONE, self.protocol_type, self.protocol, member.assignment)

    # Kept

    def kept(self, shares: Mapping[str, bytes] | None = None) -> dict[str, Any]:
        """What survives a restart; with `shares`, as it will be once these assignments hold."""
        return {
            "kind": self.kind, "since": self.since_ms, "generation": self.generation, "leader": self.leader,
            "protocol_type": self.protocol_type, "protocol": self.protocol,
            "members": [
                m.kept(m.assignment if shares is None else shares.get(m.id, b"")) for m in self.members.values()
            ],
        }  # fmt: skip

    def removals(self) -> list[Entry]:
        """What makes it durable that the group is gone."""
        return [Entry(NAMESPACE, self.id, None)]

    @classmethod
    def of(cls, group_id: str, kept: dict[str, Any]) -> ClassicGroup:
        """The group that was kept: stable with the members of its last generation, or empty."""
        group = cls(group_id, kept["since"])
        for member in map(ClassicMember.of, kept["members"]):
            group.add(member, None)
        group.generation, group.leader = kept["generation"], kept["leader"]
        group.protocol_type, group.protocol = kept["protocol_type"], kept["protocol"]
        group.topics = group._subscribed_topics()
        group.state = ClassicState.STABLE if group.members else ClassicState.EMPTY
        return group

    def stand(self, protocol_type: str, generation: int) -> None:
        """Its members are stable in a generation that was not divided here."""
        self.protocol_type, self.generation = protocol_type, generation
        self.protocol = self.elected_protocol()
        self.topics = self._subscribed_topics()
        self.state = ClassicState.STABLE
