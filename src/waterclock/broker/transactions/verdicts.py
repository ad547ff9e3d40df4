"""What EndTxn is answered, by what the transaction is.

Protocol 1: a request that is sent again has the epoch of the transaction.
    state             commit                     abort
    Empty             INVALID_TXN_STATE          INVALID_TXN_STATE
    Ongoing           done                       done
    PrepareCommit     CONCURRENT_TRANSACTIONS    INVALID_TXN_STATE
    PrepareAbort      INVALID_TXN_STATE          CONCURRENT_TRANSACTIONS
    CompleteCommit    NONE                       INVALID_TXN_STATE
    CompleteAbort     INVALID_TXN_STATE          NONE

Protocol 2: the epoch distinguishes a request that is sent again (the epoch before) from a new one (the present epoch).
    state             commit, new                abort, new         sent again as it was       sent again, otherwise
    Empty             INVALID_TXN_STATE          done               PRODUCER_FENCED            PRODUCER_FENCED
    Ongoing           done                       done               PRODUCER_FENCED            PRODUCER_FENCED
    Prepare...        PRODUCER_FENCED            PRODUCER_FENCED    CONCURRENT_TRANSACTIONS    INVALID_TXN_STATE
    Complete...       INVALID_TXN_STATE          done               NONE                       INVALID_TXN_STATE

Rule 1: the epoch before is the same producer's only if the last end raised the epoch, by protocol 2. After an end by
    protocol 1 it is a replaced one's: PRODUCER_FENCED. Apache Kafka does not look, and gives it its successor's epoch.
Source: KIP-890; the transaction coordinator of Apache Kafka 4.3, whose answers these are.
"""

from __future__ import annotations

from typing import Final

from waterclock.broker.transactions.record import LAST_EPOCH, ProducerId, Record
from waterclock.broker.transactions.states import DECIDED, State
from waterclock.broker.wire.errors import Error

COMMITTED: Final = (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
OPEN: Final = (State.EMPTY, State.ONGOING)


def verdict(record: Record, busy: bool, producer: ProducerId, commit: bool, protocol: int) -> Error | None:
    """None if the transaction is to be ended; NONE if it has been, as asked; else why not.

    >>> verdict(Record(1000, 5, 0, state=State.ONGOING), False, ProducerId(5, 0), True, 1) is None
    True
    """
    return (_second if protocol == 2 else _first)(record, busy, producer, commit)


def _first(record: Record, busy: bool, producer: ProducerId, commit: bool) -> Error | None:
    if record.producer_id != producer.producer_id:
        return Error.INVALID_PRODUCER_ID_MAPPING
    if record.epoch != producer.epoch:
        return Error.PRODUCER_FENCED
    if busy:
        return Error.CONCURRENT_TRANSACTIONS
    if record.state is State.ONGOING:
        return None
    return _repeated(record, commit)


def _repeated(record: Record, commit: bool) -> Error:
    """The answer to a request that was sent before."""
    if record.state is State.EMPTY or (record.state in COMMITTED) != commit:
        return Error.INVALID_TXN_STATE
    return Error.CONCURRENT_TRANSACTIONS if record.state in DECIDED else Error.NONE


def _second(record: Record, busy: bool, producer: ProducerId, commit: bool) -> Error | None:
    raised = record.protocol == 2  # Rule 1
    rotated = raised and record.epoch == 0 and producer == ProducerId(record.previous_id, LAST_EPOCH)
    again = rotated or (raised and record.epoch == producer.epoch + 1)
    if busy:
        return Error.CONCURRENT_TRANSACTIONS
    if record.producer_id != producer.producer_id and not rotated:
        return Error.INVALID_PRODUCER_ID_MAPPING
    if again and record.state not in (*OPEN, State.PREPARE_EPOCH_FENCE):
        return _repeated(record, commit)
    if record.epoch != producer.epoch or record.state in DECIDED:
        return Error.PRODUCER_FENCED
    if record.state is State.ONGOING:
        return None
    return Error.INVALID_TXN_STATE if commit else None
