"""What EndTxn is answered, by what the transaction is: None ends it, NONE says that it has ended as asked.

Protocol 1: a request that is sent again has the epoch of the transaction.
Protocol 2: the epoch distinguishes a request that is sent again (the epoch before) from a new one (the present epoch).

Rule 1: the epoch before is the same producer's only if the last end raised the epoch, by protocol 2. After an end by
    protocol 1 it is a replaced one's: PRODUCER_FENCED. Apache Kafka does not look, and gives it its successor's epoch.
Source: KIP-890; the transaction coordinator of Apache Kafka 4.3, whose answers these are.
"""

from __future__ import annotations

from typing import Final

from waterclock.broker.transactions.record import LAST_EPOCH, ProducerId, TransactionRecord
from waterclock.broker.transactions.states import TransactionState
from waterclock.broker.wire.errors import Error

WRONG: Final = Error.INVALID_TXN_STATE
FENCED: Final = Error.PRODUCER_FENCED
GOES_ON: Final = Error.CONCURRENT_TRANSACTIONS
NONE: Final = Error.NONE

PROTOCOL_1: Final[dict[TransactionState, tuple[Error | None, Error | None]]] = {
    # Dead is not there: its name is forgotten with it
    #                                      commit   abort
    TransactionState.EMPTY: (              WRONG,   WRONG),
    TransactionState.ONGOING: (            None,    None),
    TransactionState.PREPARE_EPOCH_FENCE: (WRONG,   NONE),
    TransactionState.PREPARE_COMMIT: (     GOES_ON, WRONG),
    TransactionState.PREPARE_ABORT: (      WRONG,   GOES_ON),
    TransactionState.COMPLETE_COMMIT: (    NONE,    WRONG),
    TransactionState.COMPLETE_ABORT: (     WRONG,   NONE),
}  # fmt: skip
PROTOCOL_2: Final[dict[TransactionState, tuple[Error | None, Error | None, Error, Error]]] = {
    #                                      new: commit, abort   again: commit, abort
    TransactionState.EMPTY: (              WRONG,   None,       FENCED,  FENCED),
    TransactionState.ONGOING: (            None,    None,       FENCED,  FENCED),
    TransactionState.PREPARE_EPOCH_FENCE: (WRONG,   None,       FENCED,  FENCED),
    TransactionState.PREPARE_COMMIT: (     FENCED,  FENCED,     GOES_ON, WRONG),
    TransactionState.PREPARE_ABORT: (      FENCED,  FENCED,     WRONG,   GOES_ON),
    TransactionState.COMPLETE_COMMIT: (    WRONG,   None,       NONE,    WRONG),
    TransactionState.COMPLETE_ABORT: (     WRONG,   None,       WRONG,   NONE),
}  # fmt: skip


def verdict(record: TransactionRecord, busy: bool, producer: ProducerId, commit: bool, protocol: int) -> Error | None:
    """None if the transaction is to be ended; NONE if it has been, as asked; else why not.

    >>> open_one = TransactionRecord(1000, 5, 0, state=TransactionState.ONGOING)
    >>> verdict(open_one, False, ProducerId(5, 0), True, 1) is None
    True
    """
    rotated = again = False
    if protocol == 2 and record.protocol == 2:  # rule 1
        rotated = record.epoch == 0 and producer == ProducerId(record.previous_id, LAST_EPOCH)
        again = rotated or record.epoch == producer.epoch + 1
    if busy and protocol == 2:
        return Error.CONCURRENT_TRANSACTIONS
    if record.producer_id != producer.producer_id and not rotated:
        return Error.INVALID_PRODUCER_ID_MAPPING
    if record.epoch != producer.epoch and not again:
        return Error.PRODUCER_FENCED
    if busy:
        return Error.CONCURRENT_TRANSACTIONS
    if protocol != 2:
        return PROTOCOL_1[record.state][not commit]
    return PROTOCOL_2[record.state][2 * again + (not commit)]
