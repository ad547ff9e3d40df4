"""How a transaction ends, once a client has asked for it and may; and what a start makes of those that a crash cut off.

1. The decision is written down: PrepareCommit with the offsets of its groups, or PrepareAbort; one commit of the store.
   Before it is durable nothing has happened; after it, nothing can change it.
2. The groups see the offsets, or are let go.
3. A marker is appended to each of its partitions. Readers of committed records may pass.
4. The markers are durable, here and with the followers in sync. Complete: the client is answered, and the next
   transaction may begin.

Nobody is answered before 4: so a reader that comes after the answer finds the records, and the row of the store may be
overwritten by the next transaction without a marker getting lost.

A crash before 1: the transaction is open; its producer goes on, or its timeout aborts it.
A crash after 1, 2 or 3: the next start does 3 and 4 if no marker is found. Step 2 is in 1 already.

    the store says       the log has the producer's transaction open    then a start (`take_up`)
    PrepareCommit,       with an epoch of the decision                  writes its marker: committed or aborted
    PrepareAbort         -                                              has the marker there already
    Ongoing              in a partition that takes part                 goes on, with what is left of its timeout
    anything             elsewhere, with the name's present epoch       goes on, and the partition takes part: the
                                                                        producer was not answered, and will send again
    anything else        -                                              aborts it: nobody can end it any more

Which epochs a decision concerns: under protocol 1 its own; under protocol 2, and if the producer was shut out, those
before, as the marker's epoch is the next one: what has the marker's epoch already belongs to the next transaction.

Rule 1: a partition that cannot be appended to (the disk is full) is tried again, until it can.
Rule 2: a partition that was deleted needs no marker.
Rule 3: after a start every marker is on this disk before the first client is let in. Done twice, it does nothing the
    second time.
Rule 4: a decided transaction is complete when the followers in sync have its markers too: CONCURRENT_TRANSACTIONS until
    then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from waterclock.broker.log.batch import marker
from waterclock.broker.log.durable import make_durable
from waterclock.broker.log.partition import Partition
from waterclock.broker.transactions.ledger import RETRY_S, Transaction, TransactionLedger
from waterclock.broker.transactions.record import DECIDED, NONE, ProducerId, TransactionRecord, TransactionState
from waterclock.broker.wire.errors import Error
from waterclock.purgatory import DelayedOperation, Purgatory

if TYPE_CHECKING:
    from waterclock.broker.flusher import Flusher
    from waterclock.broker.groups.offsets import GroupOffsets
    from waterclock.broker.topics import TopicPartition, Topics
    from waterclock.broker.transactions.coordinator import TransactionCoordinator
    from waterclock.timer import AsyncTimer

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
    """`produces` is the purgatory that looks whenever partitions become durable; `over(transaction)` is called for
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
            self._mark(transaction, list(self.partitions(decided)), now_ms, then)  # 3

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

    def _mark(self, transaction: Transaction, partitions: list[Partition], now_ms: int, then: Then) -> None:
        """Append the markers, then wait until they are durable."""
        waits, left, record = [], [], transaction.record
        for partition in partitions:
            if self.write(partition, *record.id, record.commits, COORDINATOR_EPOCH, now_ms):
                left.append(partition)
            waits.append((partition, partition.end))

        def durable() -> None:  # 4
            if left:
                there = [p for p in left if not p.deleted]
                self._timer.call_later(RETRY_S, self._mark, transaction, there, now_ms, then)
                return
            transaction.become(transaction.record.completed())
            then(Error.NONE)

        self.wait(waits, durable)

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


def take_up(
    coordinator: TransactionCoordinator, partitions: Iterable[Partition], raise_high: Callable[[Partition], None]
) -> None:
    """Bring what the store says and what the logs have together."""
    every, marked = list(partitions), dict[Transaction, list[Partition]]()
    for transaction in coordinator.ledger.by_name.values():
        transaction.durable = transaction.changed
        coordinator.timeouts.expect(transaction)
        if (record := transaction.record).state in DECIDED:
            marked[transaction] = [p for p in coordinator.ending.partitions(record) if _concerns(record, p)]
            for partition in marked[transaction]:
                _mark(partition, *record.id, record.commits, coordinator.wall_ms())
    joining, aborted = _undecided(coordinator, every)
    for partition in dict.fromkeys([*aborted, *(p for several in marked.values() for p in several)]):
        make_durable(partition)
        raise_high(partition)
    for transaction in coordinator.ledger.by_name.values():
        waits = [(partition, partition.end) for partition in marked.get(transaction, ())]
        coordinator.ending.wait(waits, partial(_go_on, coordinator, transaction, joining.get(transaction, [])))


def _go_on(coordinator: TransactionCoordinator, transaction: Transaction, joining: list[TopicPartition]) -> None:
    """What was decided is complete; what is open has its time."""
    if transaction.record.state in DECIDED:
        transaction.become(transaction.record.completed())
    for tp in joining:  # the partition has it open, and the store did not know
        transaction.become(transaction.record.joined_by((tp,), (), coordinator.wall_ms()))
    if transaction.record.state is TransactionState.ONGOING:
        coordinator.resume(transaction)


def _concerns(record: TransactionRecord, partition: Partition) -> bool:
    """Whether the partition has that very transaction open."""
    if record.producer_id not in partition.producers.open:
        return False
    epoch = partition.producers.known[record.producer_id].epoch
    return epoch < record.epoch or (epoch == record.epoch and record.protocol == 1)


def _undecided(
    coordinator: TransactionCoordinator, partitions: list[Partition]
) -> tuple[dict[Transaction, list[TopicPartition]], list[Partition]]:
    """What is open in the logs and was not decided: what takes part in which transaction, and where it was aborted."""
    joining: dict[Transaction, list[TopicPartition]] = {}
    known = [t for t in coordinator.ledger.by_name.values() if t.record.epoch != NONE]
    owners = {(t.record.completed() if t.record.state in DECIDED else t.record).id: t for t in known}
    aborted = []
    for partition in partitions:
        for producer_id in list(partition.producers.open):
            epoch = partition.producers.known[producer_id].epoch
            owner = owners.get(ProducerId(producer_id, epoch))
            if owner is not None:
                joining.setdefault(owner, []).append((partition.topic, partition.number))
            else:
                _mark(partition, producer_id, epoch, False, coordinator.wall_ms())
                aborted.append(partition)
    return joining, aborted


def _mark(partition: Partition, producer_id: int, epoch: int, commit: bool, now_ms: int) -> None:
    error, _ = partition.mark(marker(producer_id, epoch, commit, COORDINATOR_EPOCH, now_ms))
    if error:
        raise OSError(f"{partition.folder}: no marker can be written; make room on the disk and start again")
