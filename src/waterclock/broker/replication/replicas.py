"""The leader's view of its follower: how far it is in each partition, and whether it is in sync there.

    the follower                                                              then it is
    has fetched from the high watermark or later                              in sync
    was not at the leader's end for replica.lag.time.max.ms                   out of sync

Rule 1: a follower that fetches from an offset has everything before it on its disk.
Rule 2: the high watermark is the durable end of the leader, and of the follower while it is in sync. It never falls.
Rule 3: a follower that the leader has known stays in sync over the leader's restart, and is in sync for every new
    partition, until its time is up: nothing is acknowledged with acks=all that it might not have.
Source: KIP-16 (lag by time), KIP-101 (epochs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from waterclock.broker.log.partition import Partition
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.settings import Settings
    from waterclock.clock import Clock


@dataclass(slots=True)
class Copy:
    """A partition at the follower: its end there, when it was last at the leader's end (ns), and whether it is in sync."""

    end: int
    caught_up_ns: int
    in_sync: bool


class Replicas:
    """`node` is the leader's id. `changed(partitions)` asks who waits, after a high watermark rose."""

    def __init__(
        self, node: int, settings: Settings, clock: Clock, changed: Callable[[Iterable[Partition]], None]
    ) -> None:
        self._node, self._settings, self._clock, self._changed = node, settings, clock, changed
        self._copies: dict[Partition, Copy] = {}
        self.follower: int | None = None  # its id, once one was seen

    def attach(self, follower: int) -> None:
        """There is a follower from now on: it counts for every partition that it has not fetched from yet."""
        self.follower = follower

    def raise_high(self, partition: Partition) -> None:
        """Raise the high watermark as far as it may be."""
        copy = self._copy(partition)
        high = partition.durable if copy is None or not copy.in_sync else min(partition.durable, copy.end)
        if high > partition.high:
            partition.high = high

    def _copy(self, partition: Partition) -> Copy | None:
        if self.follower is None:
            return None
        copy = self._copies.get(partition)
        if copy is None:
            copy = self._copies[partition] = Copy(partition.high, self._clock.monotonic_ns(), True)
        return copy

    def fetched(self, partition: Partition, offset: int) -> None:
        """The follower has everything before `offset`."""
        now_ns, copy = self._clock.monotonic_ns(), self._copies.get(partition)
        if copy is None:
            copy = self._copies[partition] = Copy(offset, now_ns, False)
        copy.end = offset
        if offset >= partition.durable:
            copy.caught_up_ns = now_ns
        if offset >= partition.high:
            copy.in_sync = True
        before = partition.high
        self.raise_high(partition)
        if partition.high > before:
            self._changed((partition,))

    def drop_laggards(self) -> list[Partition]:
        """Take the follower out of sync where its time is up; the partitions concerned."""
        least_ns = self._clock.monotonic_ns() - self._settings["replica.lag.time.max.ms"] * 1_000_000
        lagging = [p for p, copy in self._copies.items() if copy.in_sync and copy.caught_up_ns < least_ns]
        for partition in lagging:
            self._copies[partition].in_sync = False
            self.raise_high(partition)
        if lagging:
            self._changed(lagging)
        return lagging

    def caught_up(self) -> None:
        """Nothing was appended where the follower stands at the end: its time begins anew with each of its fetches."""
        now_ns = self._clock.monotonic_ns()
        for partition, copy in self._copies.items():
            if copy.end >= partition.durable:
                copy.caught_up_ns = now_ns

    def forget(self, partitions: Iterable[Partition]) -> None:
        """Partitions were deleted."""
        for partition in partitions:
            self._copies.pop(partition, None)

    def in_sync(self, partition: Partition) -> tuple[int, ...]:
        """The ids of the replicas that are in sync, the leader's first."""
        copy = self._copy(partition)
        return (self._node,) if copy is None or not copy.in_sync else (self._node, self.follower or 0)

    def all(self) -> tuple[int, ...]:
        """The ids of all replicas."""
        return (self._node,) if self.follower is None else (self._node, self.follower)

    def refused(self, partition: Partition) -> Error:
        """Whether acks=all must be refused: fewer replicas are in sync than min.insync.replicas asks for."""
        least = min(partition.settings.min_insync, len(self.all()))  # no more than there are. KIP-966
        return Error.NONE if least <= 1 or len(self.in_sync(partition)) >= least else Error.NOT_ENOUGH_REPLICAS

    def statistics(self) -> dict[str, Any]:
        """How many partitions the follower is in sync for, and how many records it lacks."""
        in_sync = sum(copy.in_sync for copy in self._copies.values())
        return {"in_sync": in_sync, "lag": sum(max(0, p.durable - c.end) for p, c in self._copies.items())}
