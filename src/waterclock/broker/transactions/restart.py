"""What a start finds of transactions, in the store and in the logs, and what it makes of it.

    the store says       the log has the producer's transaction open    then
    PrepareCommit,       with an epoch of the decision                  its marker is written: committed or aborted
    PrepareAbort         -                                              the marker is there already
    Ongoing              in a partition that takes part                 it goes on, with what is left of its timeout
    anything             elsewhere, with the name's present epoch       it goes on, and the partition takes part: the
                                                                        producer was not answered, and will send again
    anything else        -                                              it is aborted: nobody can end it any more

Which epochs a decision concerns: under protocol 1 its own; under protocol 2, and where the producer was shut out, those
before, as the marker's epoch is the next one: what has the marker's epoch already belongs to the next transaction.

Rule 1: every marker is on the disk before the first client is let in. Done twice, it does nothing the second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from waterclock.broker.log.batch import marker
from waterclock.broker.log.partition import Partition
from waterclock.broker.transactions.ending import COORDINATOR_EPOCH
from waterclock.broker.transactions.ledger import Transaction
from waterclock.broker.transactions.record import NONE, Record
from waterclock.broker.transactions.states import DECIDED, State

if TYPE_CHECKING:
    from waterclock.broker.transactions.coordinator import TransactionCoordinator


def take_up(coordinator: TransactionCoordinator, partitions: Iterable[Partition]) -> None:
    """Bring what the store says and what the logs have together."""
    every, marked = list(partitions), set()
    for transaction in coordinator.ledger.by_name.values():
        transaction.durable = transaction.changed
        if transaction.record.state in DECIDED:
            marked.update(_complete(coordinator, transaction))
        coordinator.timeouts.expect(transaction)
    marked.update(_undecided(coordinator, every))
    for partition in marked:
        _flush(partition)
    for transaction in coordinator.ledger.by_name.values():
        if transaction.record.state is State.ONGOING:
            coordinator.resume(transaction)


def _complete(coordinator: TransactionCoordinator, transaction: Transaction) -> list[Partition]:
    """Write the markers that are missing."""
    record, marked = transaction.record, []
    for partition in coordinator.ending.partitions(record):
        if _concerns(record, partition):
            _mark(partition, record.producer_id, record.epoch, record.commits, coordinator.wall_ms())
            marked.append(partition)
    transaction.become(record.completed())
    return marked


def _concerns(record: Record, partition: Partition) -> bool:
    """Whether the partition has that very transaction open."""
    if record.producer_id not in partition.producers.open:
        return False
    epoch = partition.producers.known[record.producer_id].epoch
    return epoch < record.epoch or (epoch == record.epoch and record.protocol == 1)


def _undecided(coordinator: TransactionCoordinator, partitions: list[Partition]) -> list[Partition]:
    """What is open in the logs: it takes part, or it is aborted."""
    owners = {t.record.producer_id: t for t in coordinator.ledger.by_name.values() if t.record.producer_id != NONE}
    aborted = []
    for partition in partitions:
        for producer_id in list(partition.producers.open):
            owner, epoch = owners.get(producer_id), partition.producers.known[producer_id].epoch
            if owner is not None and owner.record.epoch == epoch:
                coordinator.adopt(owner, (partition.topic, partition.number))
            else:
                _mark(partition, producer_id, epoch, False, coordinator.wall_ms())
                aborted.append(partition)
    return aborted


def _mark(partition: Partition, producer_id: int, epoch: int, commit: bool, now_ms: int) -> None:
    error, _ = partition.mark(marker(producer_id, epoch, commit, COORDINATOR_EPOCH, now_ms))
    if error:
        raise OSError(f"{partition.folder}: no marker can be written; make room on the disk and start again")


def _flush(partition: Partition) -> None:
    files = partition.unflushed()
    for segment, _ in files:
        segment.flush()
    partition.flushed(partition.end, files)
    partition.high = partition.durable
