"""How a transaction ends, once somebody has asked for it and may.

1. The decision is written down: PrepareCommit with the offsets of its groups, or PrepareAbort; one commit of the store.
   Before it is durable nothing has happened; after it, nothing can change it.
2. The groups see the offsets, or are let go.
3. A marker is appended to each of its partitions. Readers of committed records may pass.
4. The markers are durable, here and with the followers in sync. Complete: whoever asked is answered, and the next
   transaction may begin.

Nobody is answered before 4: so a reader that asks after the answer finds the records, and the row of the store may be
overwritten by the next transaction without a marker getting lost.

A crash before 1: the transaction is open; its producer goes on, or its timeout aborts it.
A crash after 1, 2 or 3: the next start does 3 and 4 if no marker is found. Step 2 is in 1 already.

Rule 1: a partition that cannot be appended to (the disk is full) is tried again, until it can.
Rule 2: a partition that was deleted needs no marker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from waterclock.broker.log.batch import marker
from waterclock.broker.log.partition import Partition
from waterclock.broker.transactions.ledger import Transaction, TransactionLedger
from waterclock.broker.transactions.record import ProducerId, TransactionRecord
from waterclock.broker.wire.errors import Error
from waterclock.purgatory import DelayedOperation, Purgatory

if TYPE_CHECKING:
    from waterclock.broker.flusher import Flusher
    from waterclock.broker.folder.topics import Topics
    from waterclock.broker.groups.offsets import GroupOffsets
    from waterclock.timer import AsyncTimer

RETRY_S: Final = 1.0
COORDINATOR_EPOCH: Final = 0  # there has never been another one

Then: TypeAlias = "Callable[[Error], Any]"


class Groups(Protocol):
    """What transactions need of the consumer groups."""

    @property
    def offsets(self) -> GroupOffsets: ...

    def check_commit(
        self, group_id: str, member_id: str, group_instance_id: str | None, generation: int, transactional: bool
    ) -> Error: ...


class DelayedMarkers:
    """The end of a transaction, which waits until its markers are below the high watermarks.

    `waits` are partitions with their ends.
    """

    __slots__ = ("_then", "_waits")

    def __init__(self, waits: list[tuple[Partition, int]], then: Callable[[], Any]) -> None:
        self._waits, self._then = waits, then

    def try_complete(self, op: DelayedOperation | None) -> bool:
        return all(partition.high >= end or partition.deleted for partition, end in self._waits)

    def on_complete(self, op: DelayedOperation) -> None:
        if op.outcome == "completed":
            self._then()


class MarkerWriter:
    """`produces` is the purgatory that is asked when partitions become durable; `over(transaction)` is called for
    each whose end is decided.
    """

    def __init__(
        self,
        ledger: TransactionLedger,
        topics: Topics,
        flusher: Flusher,
        produces: Purgatory,
        timer: AsyncTimer,
        groups: Groups,
        over: Callable[[Transaction], Any],
    ) -> None:
        self._ledger = ledger
        self._topics = topics
        self._flusher = flusher
        self._produces = produces
        self._timer = timer
        self._groups = groups
        self._over = over

    def end(self, transaction: Transaction, decided: TransactionRecord, now_ms: int, then: Then) -> None:
        """End it as `decided` says; NONE once it is complete, COORDINATOR_NOT_AVAILABLE if the store refused."""

        def durable(done: bool) -> None:
            if not done:
                then(Error.COORDINATOR_NOT_AVAILABLE)
                return
            self._over(transaction)
            self._settle_groups(decided)  # 2
            self.mark(transaction, list(self.partitions(decided)), now_ms, then)  # 3

        committed = decided.offsets.items() if decided.commits else ()
        changes = [change for group, some in committed for change in self._groups.offsets.changes(group, some)]
        self._ledger.step(transaction, decided, changes, durable)  # 1

    def partitions(self, record: TransactionRecord) -> Iterable[Partition]:
        """Those of its partitions that are still there."""
        for topic, number in record.partitions:
            partition = self._topics.partition(topic, number)
            if partition is not None:
                yield partition

    def _settle_groups(self, decided: TransactionRecord) -> None:
        for group, some in decided.offsets.items():
            self._groups.offsets.let_go(group, decided.producer_id)
            if decided.commits:
                self._groups.offsets.apply(group, some)

    def mark(self, transaction: Transaction, partitions: list[Partition], now_ms: int, then: Then) -> None:
        """Append the markers of a decided transaction, then wait until they are durable."""
        waits, left, record = [], [], transaction.record
        for partition in partitions:
            if self.write(partition, *record.id, record.commits, COORDINATOR_EPOCH, now_ms):
                left.append(partition)
            waits.append((partition, partition.end))

        def durable() -> None:  # 4
            if left:
                there = [p for p in left if not p.deleted]
                self._timer.call_later(RETRY_S, self.mark, transaction, there, now_ms, then)
                return
            transaction.become(transaction.record.completed())
            then(Error.NONE)

        self.wait(waits, durable)

    def abort(self, partition: Partition, producer: ProducerId, now_ms: int) -> None:
        """Abort in one partition what nobody can end any more."""
        if not partition.deleted and self.write(partition, *producer, False, COORDINATOR_EPOCH, now_ms):
            self._timer.call_later(RETRY_S, self.abort, partition, producer, now_ms)

    def write(
        self, partition: Partition, producer_id: int, epoch: int, commits: bool, coordinator_epoch: int, now_ms: int
    ) -> Error:
        """Append a marker, whoever decided the end; it becomes durable with the next flush."""
        data = marker(producer_id, epoch, commits, coordinator_epoch, now_ms)
        error, _ = partition.mark(data)
        if not error:
            self._flusher.mark(partition)
        return error

    def wait(self, waits: list[tuple[Partition, int]], then: Callable[[], Any]) -> None:
        """Go on once partitions are durable as far as that, here and with the followers in sync."""
        delayed = DelayedMarkers(waits, then)
        if delayed.try_complete(None):
            then()
            return
        op = DelayedOperation(delayed.try_complete, delayed.on_complete, None)
        self._produces.try_complete_else_watch(op, tuple(partition for partition, _ in waits))

    def durable(self, partition: Partition) -> None:
        """More of a partition is."""
        self._produces.check_and_complete(partition)
