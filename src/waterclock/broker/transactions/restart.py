"""What a start finds of transactions, in the store and in the logs, and what it makes of it.

    the store says       the log has the producer's transaction open    then
    PrepareCommit,       with an epoch of the decision                  its marker is written: committed or aborted
    PrepareAbort         -                                              the marker is there already
    Ongoing              in a partition that takes part                 it goes on, with what is left of its timeout
    anything             elsewhere, with the name's present epoch       it goes on, and the partition takes part: the
                                                                        producer was not answered, and will send again
    anything else        -                                              it is aborted: nobody can end it any more

Which epochs a decision concerns: under protocol 1 its own; under protocol 2, and if the producer was shut out, those
before, as the marker's epoch is the next one: what has the marker's epoch already belongs to the next transaction.

Rule 1: every marker is on this disk before the first client is let in. Done twice, it does nothing the second time.
Rule 2: a decided transaction is complete when the followers in sync have its markers too: CONCURRENT_TRANSACTIONS until
    then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from waterclock.broker.log.batch import marker
from waterclock.broker.log.durable import make_durable
from waterclock.broker.log.partition import Partition
from waterclock.broker.transactions.ledger import Transaction
from waterclock.broker.transactions.markers import COORDINATOR_EPOCH
from waterclock.broker.transactions.record import DECIDED, NONE, ProducerId, TransactionRecord, TransactionState

if TYPE_CHECKING:
    from waterclock.broker.folder.topics import TopicPartition
    from waterclock.broker.transactions.coordinator import TransactionCoordinator


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
