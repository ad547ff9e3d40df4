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
Rule 3: if there is a follower, which may know nothing of a decision, no marker is written before it knows (Rule 6 of
    replication/leader.py): promoted, it would hold a transaction for open that is ended in the logs. Nobody appends
    within a transaction until then.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import TYPE_CHECKING

from waterclock.broker.log.durable import make_durable
from waterclock.broker.log.partition import Partition
from waterclock.broker.transactions.ledger import Transaction
from waterclock.broker.transactions.record import DECIDED, NONE, ProducerId, TransactionRecord, TransactionState
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.folder.topics import TopicPartition
    from waterclock.broker.transactions.coordinator import TransactionCoordinator


def take_up(
    coordinator: TransactionCoordinator,
    partitions: Callable[[], Iterable[Partition]],
    raise_high: Callable[[Partition], None],
    when_loaded: Callable[[Callable[[], None]], None],
) -> None:
    """Bring what the store says and what the logs have together, once the follower knows the store."""
    for transaction in coordinator.ledger.by_name.values():
        transaction.durable = transaction.changed
        coordinator.timeouts.expect(transaction)
    coordinator.admission.loading = True
    when_loaded(lambda: _settle(coordinator, list(partitions())))
    if not coordinator.admission.loading:  # Rule 1
        for partition in partitions():
            if partition.durable < partition.end:
                make_durable(partition)
                raise_high(partition)
                coordinator.ending.durable(partition)


def _settle(coordinator: TransactionCoordinator, partitions: list[Partition]) -> None:
    coordinator.admission.loading = False
    now_ms = coordinator.wall_ms()
    transactions = list(coordinator.ledger.by_name.values())
    decided = [(one, one.record) for one in transactions if one.record.state in DECIDED]
    marked = {one: [p for p in coordinator.ending.partitions(r) if _concerns(r, p)] for one, r in decided}
    ended = {(partition, one.record.producer_id) for one, several in marked.items() for partition in several}
    joining, orphans = _undecided(coordinator, partitions, ended)
    for partition, producer in orphans:
        coordinator.ending.abort(partition, producer, now_ms)
    for transaction in transactions:
        go_on = partial(_go_on, coordinator, transaction, joining.get(transaction, []))
        if transaction in marked:
            coordinator.ending.mark(transaction, marked[transaction], now_ms, go_on)
        else:
            go_on()


def _go_on(
    coordinator: TransactionCoordinator, transaction: Transaction, joining: list[TopicPartition],
    error: Error = Error.NONE,
) -> None:  # fmt: skip
    """What was decided is complete; what is open has its time."""
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
    coordinator: TransactionCoordinator, partitions: list[Partition], ended: Container[tuple[Partition, int]]
) -> tuple[dict[Transaction, list[TopicPartition]], list[tuple[Partition, ProducerId]]]:
    """What is open in the logs and was not decided: what takes part in which transaction, and what nobody can end.

    `ended`: the producers' ids in partitions where a marker is to come.
    """
    joining: dict[Transaction, list[TopicPartition]] = {}
    known = [t for t in coordinator.ledger.by_name.values() if t.record.epoch != NONE]
    owners = {(t.record.completed() if t.record.state in DECIDED else t.record).id: t for t in known}
    orphans = []
    for partition in partitions:
        for producer_id in partition.producers.open:
            if (partition, producer_id) in ended:
                continue
            producer = ProducerId(producer_id, partition.producers.known[producer_id].epoch)
            owner = owners.get(producer)
            if owner is not None:
                joining.setdefault(owner, []).append((partition.topic, partition.number))
            else:
                orphans.append((partition, producer))
    return joining, orphans
