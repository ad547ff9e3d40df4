"""What EndTxn is answered, by what the transaction is: None ends it, NONE says that it has ended as asked.

Protocol 1: a request that is sent again has the epoch of the transaction.
Protocol 2: the epoch distinguishes a request that is sent again (the epoch before) from a new one (the present epoch).

Rule 1: the epoch before is the same producer's only if the last end raised the epoch, by protocol 2. After an end by
    protocol 1 it is a replaced one's: PRODUCER_FENCED. Apache Kafka does not look, and gives it its successor's epoch.
Source: KIP-890; the transaction coordinator of Apache Kafka 4.3, whose answers these are.
"""

from __future__ import annotations

from typing import Final

from waterclock.broker.transactions.record import LAST_EPOCH, ProducerId, Record
from waterclock.broker.transactions.states import State
from waterclock.broker.wire.errors import Error

WRONG: Final = Error.INVALID_TXN_STATE
FENCED: Final = Error.PRODUCER_FENCED
GOES_ON: Final = Error.CONCURRENT_TRANSACTIONS
NONE: Final = Error.NONE

FIRST: Final[dict[State, tuple[Error | None, Error | None]]] = {
    # protocol 1                commit   abort
    State.EMPTY: (              WRONG,   WRONG),
    State.ONGOING: (            None,    None),
    State.PREPARE_EPOCH_FENCE: (WRONG,   NONE),
    State.PREPARE_COMMIT: (     GOES_ON, WRONG),
    State.PREPARE_ABORT: (      WRONG,   GOES_ON),
    State.COMPLETE_COMMIT: (    NONE,    WRONG),
    State.COMPLETE_ABORT: (     WRONG,   NONE),
}  # fmt: skip
SECOND: Final[dict[State, tuple[Error | None, Error | None, Error, Error]]] = {
    # protocol 2                new: commit, abort   again: commit, abort
    State.EMPTY: (              WRONG,   None,       FENCED,  FENCED),
    State.ONGOING: (            None,    None,       FENCED,  FENCED),
    State.PREPARE_EPOCH_FENCE: (WRONG,   None,       FENCED,  FENCED),
    State.PREPARE_COMMIT: (     FENCED,  FENCED,     GOES_ON, WRONG),
    State.PREPARE_ABORT: (      FENCED,  FENCED,     WRONG,   GOES_ON),
    State.COMPLETE_COMMIT: (    WRONG,   None,       NONE,    WRONG),
    State.COMPLETE_ABORT: (     WRONG,   None,       WRONG,   NONE),
}  # fmt: skip


def verdict(record: Record, busy: bool, producer: ProducerId, commit: bool, protocol: int) -> Error | None:
    """None if the transaction is to be ended; NONE if it has been, as asked; else why not.

    >>> verdict(Record(1000, 5, 0, state=State.ONGOING), False, ProducerId(5, 0), True, 1) is None
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
        return FIRST[record.state][not commit]
    return SECOND[record.state][2 * again + (not commit)]
