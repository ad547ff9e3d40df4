"""Who may append to a partition within a transaction.

    the batch's producer                     and the transaction                  Produce -10, 11        Produce 12-
    unknown name, or another producer id     -                                    INVALID_PRODUCER_ID_MAPPING
    another epoch                            -                                    INVALID_PRODUCER_EPOCH
    the right one                            is being ended                       NOT_ENOUGH_REPLICAS: sent again
                                             has the partition                    appended
                                             has it not                           INVALID_TXN_STATE,     joins it
                                                                                  TRANSACTION_ABORTABLE

Rule 1: a batch outside of any transaction is none of our business, whoever sends it. (The partition itself refuses one
    from a producer whose transaction is open there.)
Rule 2: under protocol 2 the append does not wait for the store, its answer does: what a crash leaves in a log without a
    row in the store is found at the next start.
Source: KIP-890; the answers are those of Apache Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from waterclock.broker.log.batch import HEADER, TRANSACTIONAL, header_of
from waterclock.broker.log.partition import Partition
from waterclock.broker.net.outgoing import Buffer
from waterclock.broker.transactions.ledger import Transaction, TransactionLedger
from waterclock.broker.transactions.record import DECIDED, TransactionState
from waterclock.broker.wire.errors import Error

ABORTABLE: Final = 11  # from here on Produce knows TRANSACTION_ABORTABLE
JOINS: Final = 12


def transactional(batch: Buffer) -> bool:
    """Whether a batch says that it is part of a transaction; False if it is too short to say anything."""
    return len(batch) >= HEADER and bool(batch[22] & TRANSACTIONAL)


class Admission:
    """`join(transaction, partitions, groups)` takes partitions into a transaction at once."""

    def __init__(
        self, ledger: TransactionLedger, join: Callable[[Transaction, list[tuple[str, int]], list[str]], None]
    ) -> None:
        self._ledger, self._join = ledger, join
        self.loading = False
        """Whether it is not settled yet what the last time left (restart.py)."""

    def admit(self, name: str, partition: Partition, batch: memoryview, version: int) -> Error:
        """Whether the batch may be appended now."""
        if not transactional(batch):
            return Error.NONE
        if self.loading:
            return Error.NOT_ENOUGH_REPLICAS  # COORDINATOR_LOAD_IN_PROGRESS, as below
        transaction, head = self._ledger.known(name), header_of(batch)
        if transaction is None or transaction.record.producer_id != head.producer_id:
            return Error.INVALID_PRODUCER_ID_MAPPING
        if transaction.record.epoch != head.producer_epoch:
            return Error.INVALID_PRODUCER_EPOCH
        if transaction.busy or transaction.record.state in DECIDED:
            return Error.NOT_ENOUGH_REPLICAS  # CONCURRENT_TRANSACTIONS in words that every producer sends again at
        record, tp = transaction.record, (partition.topic, partition.number)
        if record.state is TransactionState.ONGOING and tp in record.partitions:
            return Error.NONE
        if version < JOINS:
            return Error.TRANSACTION_ABORTABLE if version >= ABORTABLE else Error.INVALID_TXN_STATE
        self._join(transaction, [tp], [])
        return Error.NONE

    def written(self, name: str) -> Callable[[], bool] | None:
        """Whether all that the transaction has is durable, as a question to ask again; None if it is.

        What is not on its way to the store is sent there.
        """
        transaction = self._ledger.by_name.get(name)
        if transaction is None or transaction.busy or transaction.durable == transaction.changed:
            return None  # busy: its end is on its way to the store, and nothing may be written behind that
        if transaction.record.state is not TransactionState.ONGOING:
            return None
        if transaction.sent != transaction.changed:
            self._ledger.keep(transaction, lambda done: None)  # the ledger has the question below answered again
        count = transaction.changed
        return lambda: transaction.durable >= count
