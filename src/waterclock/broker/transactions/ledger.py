"""The transactions in memory and what of them is durable, their timeouts, and the ids that their producers get.

    DelayedTransaction   leaves it by                             then
    waiting              the transaction's end is decided         completed
                         transaction.timeout.ms after its begin   expired: it is aborted, its producer shut out

Rule 1: a step that decides something (a new producer, an end) is seen once it is durable. Until then the transaction is
    busy, and every request gets CONCURRENT_TRANSACTIONS.
Rule 2: partitions, groups and offsets that are added are seen at once and acknowledged once they are durable. If the
    store refused them they are taken back; but a partition with records of the transaction stays, it needs a marker:
    the next request writes it again, and a start would find it in the log.
Rule 3: after `close` nothing is taken up any more: what the store did at the very end is found at the next start.
Rule 4: the store keeps the order of what it is given: what is written later is never undone by what was written before.
Rule 5: a timeout counts from the first partition or group, and goes on over a restart: it is a date in the store. Where
    that date lies ahead of the clock, which was set back then, a start waits for the whole timeout: readers of committed
    records would wait for the clock. If the abort cannot be written down, it is tried again every second.
Rule 6: a name's expiration is one timer that looks when it was used last: a transaction moves no timer of it.
Rule 7: no two producers ever get the same id, whatever happens to this process. Ids are handed out from a block; the store
    has written down where the next block begins before the first goes out, and what is left of a block at a stop is
    never handed out. Nor is what partitions know of, should the store have lost where the blocks end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from waterclock.broker.folder.topics import TopicPartition
from waterclock.broker.store import Entry, Store, Then
from waterclock.broker.transactions.record import IDLE, NONE, TransactionRecord, TransactionState, follows
from waterclock.purgatory import DelayedOperation, Purgatory

if TYPE_CHECKING:
    from waterclock.timer import AsyncTimer

NAMESPACE: Final = "transaction"
RETRY_S: Final = 1.0
IDS: Final = "producer-ids"
BLOCK: Final = 1000

Taken: TypeAlias = "Callable[[int | None], None]"


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


class DelayedTransaction:
    """An open transaction. `late(transaction)` is called when its time is up."""

    __slots__ = ("_late", "_transaction")

    def __init__(self, transaction: Transaction, late: Callable[[Transaction], Any]) -> None:
        self._transaction, self._late = transaction, late

    def try_complete(self, op: DelayedOperation | None) -> bool:
        """Whether it is open no more, at every decision: the next transaction has an operation of its own."""
        return self._transaction.record.state is not TransactionState.ONGOING

    def on_complete(self, op: DelayedOperation) -> None:
        """Nobody waits for an answer."""

    def on_expire(self, op: DelayedOperation) -> None:
        if not self.try_complete(op):
            self._late(self._transaction)


class Timeouts:
    """`abort(transaction)` ends one that is late; `forget(transaction, then)` one that nobody used for `expiration_ms`."""

    def __init__(
        self,
        purgatory: Purgatory,
        timer: AsyncTimer,
        wall_ms: Callable[[], int],
        expiration_ms: int,
        abort: Callable[[Transaction], Any],
        forget: Callable[[Transaction, Then], Any],
    ) -> None:
        self._purgatory = purgatory
        self._timer = timer
        self._wall_ms = wall_ms
        self._expiration_ms = expiration_ms
        self._abort = abort
        self._forget = forget

    def begin(self, transaction: Transaction) -> None:
        """It is open; its time runs: whole at most, if the date was set back since."""
        record = transaction.record
        left_ms = record.started_ms + record.timeout_ms - self._wall_ms()
        self._wait(transaction, min(left_ms, record.timeout_ms) / 1000)

    def over(self, transaction: Transaction) -> None:
        """Its end is decided."""
        self._purgatory.check_and_complete(transaction.name)

    def again(self, transaction: Transaction) -> None:
        """It could not be aborted just now."""
        self._wait(transaction, RETRY_S)

    def _wait(self, transaction: Transaction, timeout_s: float) -> None:
        delayed = DelayedTransaction(transaction, self._abort)
        op = DelayedOperation(delayed.try_complete, delayed.on_complete, timeout_s, delayed.on_expire)
        self._purgatory.try_complete_else_watch(op, (transaction.name,))

    # Expiration of names

    def expect(self, transaction: Transaction) -> None:
        """A name is known now; it is forgotten when nobody uses it."""
        left_ms = transaction.record.updated_ms + self._expiration_ms - self._wall_ms()
        self._timer.call_later(max(left_ms, 1) / 1000, self._look, transaction)

    def _look(self, transaction: Transaction) -> None:
        def again(done: bool) -> None:
            if not done:  # it could not be forgotten just now
                self._timer.call_later(RETRY_S, self._look, transaction)

        record = transaction.record
        if record.updated_ms + self._expiration_ms > self._wall_ms():
            self.expect(transaction)
        elif record.state in IDLE and not transaction.busy:
            self._forget(transaction, again)
        else:
            again(False)


class ProducerIds:
    """`take(then)` calls `then` with a new id, or with None if the store refuses; in the order of the calls. Rule 7."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.next_id: int = store.load(IDS).get("next", 0)
        self._end = self.next_id  # of the block; nothing is left of it at the start
        self._waiting: deque[Taken] = deque()

    def pass_over(self, known: Iterable[int]) -> None:
        """These have been handed out, whatever the store says."""
        self.next_id = self._end = max(self._end, *(producer_id + 1 for producer_id in known), 0)

    def take(self, then: Taken) -> None:
        """Hand out one id, now or once there is a block."""
        if self.next_id < self._end:
            self.next_id += 1
            then(self.next_id - 1)
            return
        self._waiting.append(then)
        if len(self._waiting) == 1:
            self._store.put(IDS, "next", self._end + BLOCK, self._granted)

    def _granted(self, done: bool) -> None:
        waiting, self._waiting = self._waiting, deque()
        if done:
            self._end += BLOCK
        for then in waiting:
            if done:
                self.take(then)
            else:
                then(None)
