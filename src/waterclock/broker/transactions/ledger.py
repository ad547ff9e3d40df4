"""The transactions in memory, and what of them is durable.

Rule 1: a step that decides something (a new producer, an end) is seen once it is durable. Until then the transaction is
    busy, and whoever asks gets CONCURRENT_TRANSACTIONS.
Rule 2: partitions, groups and offsets that are added are seen at once and acknowledged once they are durable. If the
    store refused them they are taken back; but a partition with records of the transaction stays, it needs a marker:
    the next request writes it again, and a start would find it in the log.
Rule 3: after `close` nothing is taken up any more: what the store did at the very end is found at the next start.
Rule 4: the store keeps the order of what it is given: what is written later is never undone by what was written before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import Any, Final

from waterclock.broker.folder.topics import TopicPartition
from waterclock.broker.store import Entry, Store, Then
from waterclock.broker.transactions.record import NONE, TransactionRecord, follows
from waterclock.broker.transactions.states import TransactionState

NAMESPACE: Final = "transaction"


class Transaction:
    """One transactional id. `busy`: a step is on its way."""

    __slots__ = ("busy", "changed", "durable", "name", "record", "sent")

    def __init__(self, name: str, record: TransactionRecord) -> None:
        self.name, self.record = name, record
        self.busy = False
        self.changed = self.sent = self.durable = 0  # counts of changes: made, on their way to the store, arrived

    def become(self, record: TransactionRecord) -> None:
        """Take a step of the table of states."""
        if not follows(self.record.state, record.state):
            raise RuntimeError(f"a transaction cannot go from {self.record.state} to {record.state}")
        self.record = record
        self.changed += 1

    def take_back(
        self, joined: TransactionRecord, before: TransactionRecord, written: Collection[TopicPartition]
    ) -> None:
        """The step from `before` to `joined` was refused; what came behind it stays, and so do partitions with records."""
        if self.record.state is TransactionState.ONGOING:
            self.record = self.record.without(joined, before, written)
            self.changed += 1


class TransactionLedger:
    """All transactions by name. `written(transaction)` is called whenever more of one is durable."""

    def __init__(self, store: Store, written: Callable[[Transaction], Any]) -> None:
        self._store, self._written = store, written
        kept = store.load(NAMESPACE)
        self.by_name = {name: Transaction(name, TransactionRecord.of(value)) for name, value in kept.items()}
        self._closed = False

    def close(self) -> None:
        """Hear no more of the store."""
        self._closed = True

    def known(self, name: str) -> Transaction | None:
        """The transaction of a name that was given a producer."""
        transaction = self.by_name.get(name)
        return transaction if transaction is not None and transaction.record.producer_id != NONE else None

    def keep(self, transaction: Transaction, then: Then) -> None:
        """Make the record durable as it stands, unless it is."""
        if transaction.durable == transaction.changed:
            then(True)
            return
        count = transaction.sent = transaction.changed

        def kept(done: bool) -> None:
            if self._closed:
                return
            self._arrived(transaction, count, done)
            then(done)

        self._store.put(NAMESPACE, transaction.name, transaction.record.kept(), kept)

    def step(self, transaction: Transaction, record: TransactionRecord, changes: Iterable[Entry], then: Then) -> None:
        """Make the next record durable, together with `changes`; then it is taken."""
        transaction.busy = True

        def stepped(done: bool) -> None:
            if self._closed:
                return
            transaction.busy = False
            if done:
                transaction.become(record)
                self._arrived(transaction, transaction.changed, done)
            then(done)

        self._store.commit([Entry(NAMESPACE, transaction.name, record.kept()), *changes], stepped)

    def forget(self, transaction: Transaction, then: Then) -> None:
        """Forget the name for good."""
        transaction.busy = True

        def forgotten(done: bool) -> None:
            transaction.busy = False
            if done:
                transaction.become(replace(transaction.record, state=TransactionState.DEAD))
                del self.by_name[transaction.name]
            then(done)

        self._store.put(NAMESPACE, transaction.name, None, forgotten)

    def _arrived(self, transaction: Transaction, count: int, done: bool) -> None:
        if done:
            transaction.durable = max(transaction.durable, count)
            self._written(transaction)
        else:
            transaction.sent = transaction.durable  # the next request writes it again
