"""The states of a transaction.

    state               leaves it by                                                          for
    Empty               the first partition or group added                                    Ongoing
                        EndTxn 5, abort of nothing: the epoch rises                           PrepareAbort
    Ongoing             EndTxn, its decision durable                                          PrepareCommit, PrepareAbort
                        its timeout, or InitProducerId of a newer producer: epoch raised      PrepareEpochFence
    PrepareEpochFence   the decision to abort, durable                                        PrepareAbort
    PrepareCommit       every partition's marker durable                                      CompleteCommit
    PrepareAbort        every partition's marker durable                                      CompleteAbort
    CompleteCommit,     the first partition or group added                                    Ongoing
    CompleteAbort       InitProducerId                                                        Empty
                        EndTxn 5, abort of nothing: the epoch rises                           PrepareAbort
    Empty, Complete...  nobody heard of for transactional.id.expiration.ms                    Dead, then forgotten

PrepareEpochFence and the Complete states are not written down: the row of the store then still says Ongoing, or what was
decided. A start finds out the rest from the logs (restart.py), so a transaction costs two commits of the store.

Source: the transaction coordinator of Apache Kafka; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class TransactionState(StrEnum):
    """Under Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"


IDLE: Final = frozenset((TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT))
DECIDED: Final = frozenset((TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT))
BEFORE: Final = {
    TransactionState.EMPTY: IDLE,
    TransactionState.ONGOING: IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset((TransactionState.ONGOING,)),
    TransactionState.PREPARE_ABORT: IDLE | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
    TransactionState.COMPLETE_COMMIT: frozenset((TransactionState.PREPARE_COMMIT,)),
    TransactionState.COMPLETE_ABORT: frozenset((TransactionState.PREPARE_ABORT,)),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset((TransactionState.ONGOING,)),
    TransactionState.DEAD: IDLE,
}
"""The states that each may come from."""
