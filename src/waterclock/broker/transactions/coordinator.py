"""The transaction coordinator: who may do what to which transaction, after Apache Kafka's own.

    the transaction is                 AddPartitions, AddOffsets   EndTxn                        InitProducerId
    unknown                            INVALID_PRODUCER_ID_MAPPING INVALID_PRODUCER_ID_MAPPING   made
    another producer's                 INVALID_PRODUCER_ID_MAPPING INVALID_PRODUCER_ID_MAPPING   PRODUCER_FENCED
    of another epoch                   PRODUCER_FENCED             PRODUCER_FENCED               PRODUCER_FENCED
    busy (a step is being written)     CONCURRENT_TRANSACTIONS     CONCURRENT_TRANSACTIONS       CONCURRENT_TRANSACTIONS
    Empty, Complete...                 Ongoing                     record.py                     a new epoch
    Ongoing                            more of it                  ended                         aborted; CONCURRENT_...
    Prepare...                         CONCURRENT_TRANSACTIONS     record.py                     CONCURRENT_TRANSACTIONS

Older clients get INVALID_PRODUCER_EPOCH for PRODUCER_FENCED: api/transactions.py sees to that.

Rule 1: `then` is called once, now or when the answer is durable.
Source: KIP-98, KIP-360 (an epoch raised by its own producer), KIP-890 (an epoch for each transaction).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from waterclock.broker.rhythm import Rhythm
from waterclock.broker.transactions.admission import Admission
from waterclock.broker.transactions.ledger import RETRY_S, ProducerIds, Timeouts, Transaction, TransactionLedger
from waterclock.broker.transactions.markers import Groups, MarkerWriter, Then
from waterclock.broker.transactions.record import (
    DECIDED,
    IDLE,
    NOBODY,
    NONE,
    ProducerId,
    TransactionRecord,
    TransactionState,
    verdict,
)
from waterclock.broker.wire.errors import Error
from waterclock.purgatory import Purgatory

if TYPE_CHECKING:
    from waterclock.broker.flusher import Flusher
    from waterclock.broker.folder.topics import TopicPartition, Topics
    from waterclock.broker.groups.offsets import CommittedOffset
    from waterclock.broker.settings import Settings
    from waterclock.broker.store import Store
    from waterclock.timer import AsyncTimer

UNAVAILABLE: Final = Error.COORDINATOR_NOT_AVAILABLE

Given: TypeAlias = "Callable[[Error, ProducerId], Any]"


class CommittingMember(NamedTuple):
    """Who commits offsets for a group."""

    group: str
    member_id: str
    instance_id: str | None
    generation: int


class TransactionCoordinator:
    """Every transaction of the broker. `wall_ms()` is the date; `produces` the purgatory of what waits for the disk."""

    def __init__(
        self, store: Store, timer: AsyncTimer, settings: Settings, wall_ms: Callable[[], int], produces: Purgatory
    ) -> None:
        self._settings = settings
        self.wall_ms = wall_ms
        self._timer = timer
        self._produces = produces
        self.ledger = TransactionLedger(store, lambda transaction: produces.check_and_complete(transaction.name))
        self.ids = ProducerIds(store)
        self.purgatory = Purgatory("transaction", timer)
        expiration_ms = settings["transactional.id.expiration.ms"]
        self.timeouts = Timeouts(self.purgatory, timer, wall_ms, expiration_ms, self._late, self.ledger.forget)
        self.admission = Admission(self.ledger, self._join)

    def open(self, topics: Topics, flusher: Flusher, groups: Groups) -> None:
        """Ready for requests, once there is somebody to flush; markers.py then takes up what was left."""
        self._groups, self._topics = groups, topics
        every_s = self._settings["producer.id.expiration.check.interval.ms"] / 1000
        self.forgetting = Rhythm(self._timer, every_s, self._forget_producers)
        self.ending = MarkerWriter(
            self.ledger, topics, flusher, self._produces, self._timer, groups, self.timeouts.over
        )

    def close(self) -> None:
        """Nothing is aborted any more, nothing taken up that the store still does."""
        self.purgatory.close()
        self.ledger.close()

    def resume(self, transaction: Transaction) -> None:
        """An open transaction goes on after a start."""
        for group, offsets in transaction.record.offsets.items():
            self._groups.offsets.hold(group, transaction.record.producer_id, offsets)
        self.timeouts.begin(transaction)

    def _forget_producers(self) -> float | None:
        """Partitions forget the sequences of producers that were not heard of for long; None if they know nobody."""
        before_ms = self.wall_ms() - self._settings["producer.id.expiration.ms"]
        for partition in self._topics.partitions():
            partition.producers.forget(before_ms)
        return 0.0 if any(partition.producers.known for partition in self._topics.partitions()) else None

    # InitProducerId

    def init(self, name: str | None, timeout_ms: int, last: ProducerId | None, then: Given) -> None:
        """A producer begins, or begins anew; `last` is what it says that it was (KIP-360)."""
        if name is None:
            self.ids.take(
                lambda new: then(UNAVAILABLE, NOBODY) if new is None else then(Error.NONE, ProducerId(new, 0))
            )
        elif not name:
            then(Error.INVALID_REQUEST, NOBODY)
        elif not 0 < timeout_ms <= self._settings["transaction.max.timeout.ms"]:
            then(Error.INVALID_TRANSACTION_TIMEOUT, NOBODY)
        else:
            self._init(name, timeout_ms, last, then)

    def _init(self, name: str, timeout_ms: int, last: ProducerId | None, then: Given) -> None:
        transaction = self.ledger.by_name.get(name)
        if transaction is None:
            transaction = Transaction(name, TransactionRecord(timeout_ms, updated_ms=self.wall_ms()))
            self.ledger.by_name[name] = transaction
            self.timeouts.expect(transaction)
        record = transaction.record
        if transaction.busy:
            then(Error.CONCURRENT_TRANSACTIONS, NOBODY)
        elif last is not None and not record.knows(last):
            then(Error.PRODUCER_FENCED, NOBODY)
        elif record.state in DECIDED:
            then(Error.CONCURRENT_TRANSACTIONS, NOBODY)
        elif record.state in (TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE):
            self.fence(transaction, lambda error: then(error or Error.CONCURRENT_TRANSACTIONS, NOBODY))
        elif record.producer_id == NONE or (record.exhausted and (last is None or last.epoch == record.epoch)):
            self._with_another_id(
                transaction,
                lambda new: self._give(transaction, record.rotated(new, last, timeout_ms, self.wall_ms()), then),
                then,
            )
        else:
            self._give(transaction, record.renewed(last, timeout_ms, self.wall_ms()), then)

    def _with_another_id(self, transaction: Transaction, go_on: Callable[[int], None], then: Given) -> None:
        """Go on with another producer id, for there is no epoch after this one; the transaction is busy until then."""
        transaction.busy = True

        def taken(new: int | None) -> None:
            transaction.busy = False
            if new is None:
                then(UNAVAILABLE, NOBODY)
            else:
                go_on(new)

        self.ids.take(taken)

    def _give(self, transaction: Transaction, record: TransactionRecord, then: Given) -> None:
        def durable(done: bool) -> None:
            then(*((Error.NONE, record.id) if done else (UNAVAILABLE, NOBODY)))

        self.ledger.step(transaction, record, (), durable)

    # Partitions and groups

    def _of(self, name: str, producer: ProducerId) -> tuple[Transaction | None, Error]:
        """The transaction to which the producer may add, or why it may not."""
        if not name:
            return None, Error.INVALID_REQUEST
        transaction = self.ledger.known(name)
        if transaction is None:
            return None, Error.INVALID_PRODUCER_ID_MAPPING
        record = transaction.record
        if transaction.busy:
            return None, Error.CONCURRENT_TRANSACTIONS
        if record.producer_id != producer.producer_id:
            return None, Error.INVALID_PRODUCER_ID_MAPPING
        if record.epoch != producer.epoch:
            return None, Error.PRODUCER_FENCED
        return transaction, Error.CONCURRENT_TRANSACTIONS if record.state in DECIDED else Error.NONE

    def add(
        self, name: str, producer: ProducerId, partitions: list[TopicPartition], groups: list[str], then: Then
    ) -> None:
        """Partitions and groups take part; NONE once that is durable."""
        transaction, error = self._of(name, producer)
        if transaction is None or error:
            then(error)
            return
        before = transaction.record
        self._join(transaction, partitions, groups)
        self._keep(transaction, before, then)

    def _keep(self, transaction: Transaction, before: TransactionRecord, then: Then) -> None:
        """Make durable what it has become; if the store refuses, that did not happen."""
        joined = transaction.record

        def kept(done: bool) -> None:
            if not done:
                there = ((tp, self._topics.partition(*tp)) for tp in joined.partitions)
                written = [tp for tp, p in there if p is not None and joined.producer_id in p.producers.open]
                transaction.take_back(joined, before, written)
                if transaction.record.state is not TransactionState.ONGOING:
                    self.timeouts.over(transaction)
            then(Error.NONE if done else UNAVAILABLE)

        self.ledger.keep(transaction, kept)

    def has(self, name: str, producer: ProducerId, tp: TopicPartition) -> Error:
        """Whether a partition takes part already: what a broker asks before it appends."""
        transaction, error = self._of(name, producer)
        if transaction is None or error:
            return error
        there = transaction.record.state is TransactionState.ONGOING and tp in transaction.record.partitions
        return Error.NONE if there else Error.TRANSACTION_ABORTABLE

    def _join(self, transaction: Transaction, partitions: Iterable[TopicPartition], groups: Iterable[str]) -> None:
        record = transaction.record
        new = record.state is not TransactionState.ONGOING
        if new or any(p not in record.partitions for p in partitions) or any(g not in record.offsets for g in groups):
            transaction.become(record.joined_by(partitions, groups, self.wall_ms()))
        if new:
            self.timeouts.begin(transaction)

    # Offsets

    def hold(
        self,
        name: str,
        producer: ProducerId,
        member: CommittingMember,
        protocol: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
        then: Then,
    ) -> None:
        """Offsets are to be committed for a group with the transaction; NONE once that is durable.

        A group that does not take part joins it (protocol 2), or TRANSACTION_ABORTABLE is said.
        """
        transaction, error = self._of(name, producer)
        group, held = member.group, self._groups.offsets
        if transaction is not None and not error:
            before = transaction.record
            takes_part = protocol == 2 or (before.state is TransactionState.ONGOING and group in before.offsets)
            error = self._groups.check_commit(*member, True) if takes_part else Error.TRANSACTION_ABORTABLE
        if transaction is None or error:
            then(error)
            return
        self._join(transaction, (), (group,))
        transaction.become(transaction.record.with_offsets(group, offsets))
        held.hold(group, producer.producer_id, offsets)

        def kept(error: Error) -> None:
            if error and transaction.record.state in IDLE | {TransactionState.ONGOING}:
                producer_id = transaction.record.producer_id
                held.let_go(group, producer_id)
                held.hold(group, producer_id, transaction.record.offsets.get(group, {}))
            then(error)

        self._keep(transaction, before, kept)

    # The end

    def end(self, name: str, producer: ProducerId, commit: bool, protocol: int, then: Given) -> None:
        """End a transaction; with the id and epoch to go on with."""
        transaction = self.ledger.known(name)
        if not name or transaction is None:
            then(Error.INVALID_PRODUCER_ID_MAPPING if name else Error.INVALID_REQUEST, NOBODY)
            return
        error = verdict(transaction.record, transaction.busy, producer, commit, protocol)
        if error is not None:
            then(error, NOBODY if error else transaction.record.id)
        elif protocol == 2 and transaction.record.exhausted:
            self._with_another_id(
                transaction,
                lambda new: self._end(transaction, transaction.record.decided(commit, 2, new, self.wall_ms()), then),
                then,
            )
        else:
            self._end(transaction, transaction.record.decided(commit, protocol, NONE, self.wall_ms()), then)

    def _end(self, transaction: Transaction, decided: TransactionRecord, then: Given) -> None:
        def complete(error: Error) -> None:
            then(error, NOBODY if error else transaction.record.id)

        self.ending.end(transaction, decided, self.wall_ms(), complete)

    def fence(self, transaction: Transaction, then: Then) -> None:
        """Shut the producer of an open transaction out, and abort it."""
        if transaction.record.state is TransactionState.ONGOING:
            transaction.become(transaction.record.fenced())

        def again() -> None:
            if transaction.record.state is TransactionState.PREPARE_EPOCH_FENCE and not transaction.busy:
                self.fence(transaction, _nobody_waits)

        def aborted(error: Error) -> None:
            if error:
                self._timer.call_later(RETRY_S, again)
            then(error)

        now_ms = self.wall_ms()
        self.ending.end(transaction, transaction.record.decided(False, 2, NONE, now_ms), now_ms, aborted)

    def _late(self, transaction: Transaction) -> None:
        if transaction.busy:
            self.timeouts.again(transaction)
        else:
            self.fence(transaction, _nobody_waits)


def _nobody_waits(error: Error) -> None:
    """A timeout's abort: nobody waits for its end."""
