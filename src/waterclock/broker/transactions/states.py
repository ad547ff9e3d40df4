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


class State(StrEnum):
    """Under Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"
    DEAD = "Dead"


IDLE: Final = frozenset((State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT))
DECIDED: Final = frozenset((State.PREPARE_COMMIT, State.PREPARE_ABORT))
BEFORE: Final = {
    State.EMPTY: IDLE,
    State.ONGOING: IDLE | {State.ONGOING},
    State.PREPARE_COMMIT: frozenset((State.ONGOING,)),
    State.PREPARE_ABORT: IDLE | {State.ONGOING, State.PREPARE_EPOCH_FENCE},
    State.COMPLETE_COMMIT: frozenset((State.PREPARE_COMMIT,)),
    State.COMPLETE_ABORT: frozenset((State.PREPARE_ABORT,)),
    State.PREPARE_EPOCH_FENCE: frozenset((State.ONGOING,)),
    State.DEAD: IDLE,
}
"""The states that each may come from."""
