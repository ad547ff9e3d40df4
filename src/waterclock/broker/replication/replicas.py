"""The leader's view of its follower: how far it is in each partition, and whether it is in sync there.

    the follower                                                              then it is
    has fetched from the high watermark or later                              in sync
    has fetched from before it                                                out of sync
    has fetched from beyond the leader's end                                  what it was
    was not at the leader's end for replica.lag.time.max.ms                   out of sync

At the leader's end is also who fetches, each time, from where that end was at the fetch before: under a steady load
nobody is ever further.

Rule 1: a follower that fetches from an offset has everything before it on its disk. From beyond the leader's durable end
    it can have nothing of this leader's: it is refused (api/fetch.py), and counts for nothing.
Rule 2: the high watermark is the durable end of the leader, and of the follower while it is in sync or catches up. It
    never falls, and stands still while fewer replicas are in sync than min.insync.replicas says.
Rule 3: a follower that the leader knew before its restart stays in sync, and one that is there is in sync for every new
    partition, until its time is up: nothing is acknowledged with acks=all that it might not have.
Source: KIP-16 (lag by time), KIP-101 (epochs), KIP-966 (the high watermark below min.insync.replicas).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from waterclock.broker.log.partition import Partition
from waterclock.broker.statistics import ReplicationStatistics
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.settings import Settings
    from waterclock.clock import Clock

NEVER: Final = -(1 << 62)


@dataclass(slots=True)
class ReplicaState:
    """A partition at the follower: its end there, when it was last at the leader's end, and whether it is in sync.

    `seen_end` was the leader's end at its last fetch, which came at `seen_ns`. `start` is where its log begins there.
    """

    end: int
    in_sync: bool
    caught_up_ns: int
    seen_end: int
    seen_ns: int
    start: int = 0


class Replicas:
    """`node` is the leader's id. `changed(partitions)` asks who waits, after a high watermark rose;
    `began(partition)`, after the follower's log began later, or does not count any more.
    """

    def __init__(
        self, node: int, settings: Settings, clock: Clock, changed: Callable[[Iterable[Partition]], None],
        began: Callable[[Partition], object],
    ) -> None:  # fmt: skip
        self._node = node
        self._settings = settings
        self._clock = clock
        self._changed, self._began = changed, began
        self._states: dict[Partition, ReplicaState] = {}
        self._ends: dict[Partition, int] = {}  # at the start: below, the high watermark may be lower than it was
        self.heard_ns = NEVER
        self.follower: int | None = None  # its id, once one was seen

    def attach(self, follower: int) -> None:
        """There is a follower from now on, of which nothing is known."""
        self.follower = follower
        self._states.clear()
        self.heard()

    def expect(self, partition: Partition) -> None:
        """After a start: the follower of before counts, and had everything before the high watermark."""
        self._ends[partition] = partition.end
        self._states[partition] = ReplicaState(partition.high, True, *self._as_seen(partition))

    def lead(self, partition: Partition) -> None:
        """After a promotion: the leader of before does not count yet, nor is it sure that it has more than is known."""
        self._ends[partition] = partition.end
        self.raise_high(partition)

    def heard(self) -> None:
        """The follower has asked for something."""
        self.heard_ns = self._clock.monotonic_ns()

    @property
    def alive(self) -> bool:
        """Whether the follower was heard of within replica.lag.time.max.ms."""
        return self.heard_ns >= self._since_ns()

    def _since_ns(self) -> int:
        return self._clock.monotonic_ns() - int(self._settings["replica.lag.time.max.ms"]) * 1_000_000

    def _as_seen(self, partition: Partition) -> tuple[int, int, int]:
        now_ns = self._clock.monotonic_ns()
        return now_ns, partition.durable, now_ns

    def raise_high(self, partition: Partition) -> None:
        """Raise the high watermark as far as it may be."""
        state, high = self._state(partition), partition.durable
        if state is not None and (state.in_sync or state.caught_up_ns >= self._since_ns()):
            high = min(high, state.end)
        if high > partition.high and not partition.deposed and not self.refused(partition):
            partition.high = high

    def _state(self, partition: Partition) -> ReplicaState | None:
        if self.follower is None:
            return None
        state = self._states.get(partition)
        if state is None:  # a new one, or one with a new follower
            state = ReplicaState(
                partition.high, self.alive and not partition.high, NEVER, *self._as_seen(partition)[1:]
            )
            if state.in_sync:
                state.caught_up_ns = state.seen_ns
            self._states[partition] = state
        return state

    def begins_at(self, partition: Partition, offset: int) -> bool:
        """Whether no record before `offset` can come back with the follower: its log begins there, or it does not count.

        Source: DeleteRecords waits for the low watermark of all replicas (KIP-107).
        """
        state = self._state(partition)
        return state is None or state.start >= offset or not (state.in_sync or self.refused(partition))

    def fetched(self, partition: Partition, offset: int, start: int = -1) -> None:
        """The follower has everything from `start` to before `offset`."""
        state, now_ns = self._state(partition), self._clock.monotonic_ns()
        if state is None or offset > partition.durable:
            return
        if start > state.start:
            state.start = start
            self._began(partition)
        if offset < state.end:
            state.caught_up_ns = NEVER  # it has lost what it had
        state.end = offset
        if offset >= partition.durable:
            state.caught_up_ns = now_ns
        elif offset >= state.seen_end:
            state.caught_up_ns = max(state.caught_up_ns, state.seen_ns)
        state.seen_end, state.seen_ns = partition.durable, now_ns
        state.in_sync = offset >= partition.high
        before = partition.high
        self.raise_high(partition)
        if partition.high > before:
            self._changed((partition,))

    def drop_laggards(self) -> list[Partition]:
        """Take the follower out of sync if its time is up; the partitions concerned."""
        least_ns = self._since_ns()
        lagging = [p for p, state in self._states.items() if state.in_sync and state.caught_up_ns < least_ns]
        for partition in lagging:
            self._states[partition].in_sync = False
            self._began(partition)
        late = [p for p, state in self._states.items() if not state.in_sync and p.high < p.durable]
        for partition in late:
            self.raise_high(partition)
        if lagging or late:
            self._changed({**dict.fromkeys(lagging), **dict.fromkeys(late)})
        return lagging

    def unsure(self, partition: Partition) -> bool:
        """Whether the high watermark may be lower than it was before the last start. KIP-207."""
        return partition.high < self._ends.get(partition, 0)

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Partitions were deleted."""
        for partition in partitions:
            self._states.pop(partition, None)
            self._ends.pop(partition, None)

    def in_sync(self, partition: Partition) -> tuple[int, ...]:
        """The ids of the replicas that are in sync, the leader's first."""
        state = self._state(partition)
        return (self._node,) if state is None or not state.in_sync else (self._node, self.follower or 0)

    def all(self) -> tuple[int, ...]:
        """The ids of all replicas."""
        return (self._node,) if self.follower is None else (self._node, self.follower)

    def refused(self, partition: Partition) -> Error:
        """Whether acks=all must be refused: fewer replicas are in sync than min.insync.replicas asks for."""
        least = min(partition.settings.min_insync, len(self.all()))  # no more than there are. KIP-966
        return Error.NONE if least <= 1 or len(self.in_sync(partition)) >= least else Error.NOT_ENOUGH_REPLICAS

    @property
    def leader_is_too_few(self) -> bool:
        """Whether the broker's own min.insync.replicas asks for more than the leader."""
        return min(int(self._settings["min.insync.replicas"]), len(self.all())) > 1

    def statistics(self, peer: str) -> ReplicationStatistics:
        """What is known of the follower at `peer`."""
        states = self._states.items()
        in_sync, lag = sum(state.in_sync for _, state in states), sum(max(0, p.durable - s.end) for p, s in states)
        return ReplicationStatistics(True, peer, in_sync, lag)
