"""A transaction as a value: its state, what is known of its transactional id, and what EndTxn is answered by these.

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
decided. A start finds out the rest from the logs (markers.py), so a transaction costs two commits of the store.

Rule 1: nothing here waits or writes: a step gives the next record, who takes it makes it durable first.
Rule 2: an epoch is used up to 32766: the last one (32767) is for markers that fence. Then comes another producer id.
Rule 3: under protocol 2 (KIP-890) the epoch rises with every end; the markers already have the new one. So it distinguishes
    an EndTxn that is sent again (the epoch before) from a new one; under protocol 1 both have the transaction's epoch.
Rule 4: the epoch before is the same producer's only if the last end raised the epoch, by protocol 2. After an end by
    protocol 1 it is a replaced one's: PRODUCER_FENCED. Apache Kafka does not look, and gives it its successor's epoch.
Source: the transaction coordinator of Apache Kafka 4.3, whose answers these are; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, NamedTuple

from waterclock.broker.folder.topics import TopicPartition
from waterclock.broker.groups.offsets import CommittedOffset
from waterclock.broker.wire.errors import Error

NONE: Final = -1
LAST_EPOCH: Final = 0x7FFE
WRONG: Final = Error.INVALID_TXN_STATE
FENCED: Final = Error.PRODUCER_FENCED
GOES_ON: Final = Error.CONCURRENT_TRANSACTIONS
ENDED: Final = Error.NONE  # as it was to be


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


class ProducerId(NamedTuple):
    """A producer's id and epoch."""

    producer_id: int
    epoch: int


NOBODY: Final = ProducerId(NONE, NONE)


@dataclass(frozen=True)
class TransactionRecord:
    """`last_epoch` and `previous_id` are what the producer had before, for requests that are sent again; `next_id` is
    what it goes on with after a decided end. `offsets`: what is to be committed for each group. Times are dates in ms.
    """

    timeout_ms: int
    producer_id: int = NONE
    epoch: int = NONE
    last_epoch: int = NONE
    previous_id: int = NONE
    next_id: int = NONE
    state: TransactionState = TransactionState.EMPTY
    partitions: Mapping[TopicPartition, None] = field(default_factory=dict)
    offsets: Mapping[str, Mapping[TopicPartition, CommittedOffset]] = field(default_factory=dict)
    started_ms: int = NONE
    updated_ms: int = NONE
    protocol: int = 1

    @property
    def id(self) -> ProducerId:
        return ProducerId(self.producer_id, self.epoch)

    @property
    def exhausted(self) -> bool:
        """Whether there is no further epoch for this producer id."""
        return self.epoch >= LAST_EPOCH

    @property
    def commits(self) -> bool:
        return self.state is TransactionState.PREPARE_COMMIT

    # InitProducerId

    def knows(self, last: ProducerId) -> bool:
        """Whether a producer that says what it was may go on under this name. KIP-360.

        By its epoch too, while a transaction is open: an old one's claim would abort its successor's.
        """
        if self.epoch == NONE:
            return True
        if last.producer_id == self.producer_id:
            return last.epoch in (self.epoch, self.last_epoch)
        return last == ProducerId(self.previous_id, self.last_epoch)

    def renewed(self, last: ProducerId | None, timeout_ms: int, now_ms: int) -> TransactionRecord:
        """With the next epoch; with the present one if the request was sent again. `last` is one that it knows."""
        epoch, last_epoch = self.epoch + 1, NONE
        if last is not None and self.epoch in (NONE, last.epoch):
            last_epoch = self.epoch
        elif last is not None:
            epoch, last_epoch = self.epoch, self.last_epoch
        return TransactionRecord(timeout_ms, self.producer_id, epoch, last_epoch, self.previous_id, updated_ms=now_ms)

    def rotated(self, producer_id: int, last: ProducerId | None, timeout_ms: int, now_ms: int) -> TransactionRecord:
        """With another producer id, from epoch 0 on."""
        last_epoch = self.epoch if last is not None else NONE
        return TransactionRecord(timeout_ms, producer_id, 0, last_epoch, self.producer_id, updated_ms=now_ms)

    # A transaction

    def joined_by(self, partitions: Iterable[TopicPartition], groups: Iterable[str], now_ms: int) -> TransactionRecord:
        """Ongoing, with more partitions and groups."""
        ongoing = self.state is TransactionState.ONGOING
        before, offsets = (self.partitions, self.offsets) if ongoing else ({}, {})
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions={**before, **dict.fromkeys(partitions)},
            offsets={**{group: {} for group in groups}, **offsets},
            started_ms=self.started_ms if ongoing else now_ms,
            updated_ms=now_ms,
        )

    def with_offsets(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> TransactionRecord:
        """With offsets to commit for a group that takes part."""
        return replace(self, offsets={**self.offsets, group: {**self.offsets[group], **offsets}})

    def without(
        self, joined: TransactionRecord, before: TransactionRecord, written: Collection[TopicPartition]
    ) -> TransactionRecord:
        """Without what made `joined` of `before`, which the store refused; but in `written` there are records already."""
        had = before.partitions if before.state is TransactionState.ONGOING else {}
        gone = joined.partitions.keys() - had.keys() - set(written)
        partitions = {tp: None for tp in self.partitions if tp not in gone}
        if before.state is TransactionState.ONGOING or partitions:
            return replace(self, partitions=partitions, offsets=before.offsets)
        return before

    def fenced(self) -> TransactionRecord:
        """Its producer is shut out, before it is aborted."""
        return replace(
            self, state=TransactionState.PREPARE_EPOCH_FENCE, epoch=self.epoch + 1, last_epoch=self.epoch, protocol=2
        )

    def decided(self, commit: bool, protocol: int, next_id: int, now_ms: int) -> TransactionRecord:
        """To be committed or aborted, for good. A fenced one has its new epoch already."""
        fenced = self.state is TransactionState.PREPARE_EPOCH_FENCE
        rises = protocol == 2 and not fenced
        return replace(
            self,
            state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
            epoch=self.epoch + rises,
            last_epoch=self.epoch if rises else self.last_epoch,
            next_id=next_id,
            partitions=self.partitions if fenced or self.state is TransactionState.ONGOING else {},
            offsets=self.offsets if fenced or self.state is TransactionState.ONGOING else {},
            started_ms=now_ms if self.started_ms == NONE else self.started_ms,
            updated_ms=now_ms,
            protocol=2 if fenced else protocol,
        )

    def completed(self) -> TransactionRecord:
        """Nothing is left to do."""
        done = replace(
            self,
            state=TransactionState.COMPLETE_COMMIT if self.commits else TransactionState.COMPLETE_ABORT,
            partitions={},
            offsets={},
            next_id=NONE,
        )
        if self.next_id == NONE:
            return done
        return replace(done, producer_id=self.next_id, previous_id=self.producer_id, epoch=0)

    # The row in the store

    def kept(self) -> dict[str, Any]:
        """As it stands in the store; what is decided commits its offsets with the groups'."""
        offsets = {} if self.state in DECIDED else self.offsets
        return {
            "id": [self.producer_id, self.epoch, self.last_epoch, self.previous_id, self.next_id],
            "state": self.state,
            "times": [self.timeout_ms, self.started_ms, self.updated_ms],
            "partitions": list(self.partitions),
            "offsets": {g: [[*tp, *committed] for tp, committed in some.items()] for g, some in offsets.items()},
            "protocol": self.protocol,
        }

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> TransactionRecord:
        """What `kept` gave."""
        producer_id, epoch, last_epoch, previous_id, next_id = kept["id"]
        timeout_ms, started_ms, updated_ms = kept["times"]
        return cls(
            timeout_ms, producer_id, epoch, last_epoch, previous_id, next_id, TransactionState(kept["state"]),
            dict.fromkeys((topic, number) for topic, number in kept["partitions"]),
            {g: {(row[0], row[1]): CommittedOffset(*row[2:]) for row in rows} for g, rows in kept["offsets"].items()},
            started_ms, updated_ms, kept["protocol"],
        )  # fmt: skip


def follows(before: TransactionState, after: TransactionState) -> bool:
    """Whether the table of states has that step.

    >>> open_one, decided = TransactionState.ONGOING, TransactionState.PREPARE_COMMIT
    >>> follows(open_one, decided), follows(decided, open_one)
    (True, False)
    """
    return before in BEFORE[after]


PROTOCOL_1: Final[dict[TransactionState, tuple[Error | None, Error | None]]] = {
    # Dead is not there: its name is forgotten with it
    #                                      commit   abort
    TransactionState.EMPTY: (              WRONG,   WRONG),
    TransactionState.ONGOING: (            None,    None),
    TransactionState.PREPARE_EPOCH_FENCE: (WRONG,   ENDED),
    TransactionState.PREPARE_COMMIT: (     GOES_ON, WRONG),
    TransactionState.PREPARE_ABORT: (      WRONG,   GOES_ON),
    TransactionState.COMPLETE_COMMIT: (    ENDED,   WRONG),
    TransactionState.COMPLETE_ABORT: (     WRONG,   ENDED),
}  # fmt: skip
PROTOCOL_2: Final[dict[TransactionState, tuple[Error | None, Error | None, Error, Error]]] = {
    #                                      new: commit, abort   again: commit, abort
    TransactionState.EMPTY: (              WRONG,   None,       FENCED,  FENCED),
    TransactionState.ONGOING: (            None,    None,       FENCED,  FENCED),
    TransactionState.PREPARE_EPOCH_FENCE: (WRONG,   None,       FENCED,  FENCED),
    TransactionState.PREPARE_COMMIT: (     FENCED,  FENCED,     GOES_ON, WRONG),
    TransactionState.PREPARE_ABORT: (      FENCED,  FENCED,     WRONG,   GOES_ON),
    TransactionState.COMPLETE_COMMIT: (    WRONG,   None,       ENDED,   WRONG),
    TransactionState.COMPLETE_ABORT: (     WRONG,   None,       WRONG,   ENDED),
}  # fmt: skip


def verdict(record: TransactionRecord, busy: bool, producer: ProducerId, commit: bool, protocol: int) -> Error | None:
    """None if the transaction is to be ended; NONE if it has been, as this one wants; else why not.

    >>> open_one = TransactionRecord(1000, 5, 0, state=TransactionState.ONGOING)
    >>> verdict(open_one, False, ProducerId(5, 0), True, 1) is None
    True
    """
    rotated = again = False
    if protocol == 2 and record.protocol == 2:  # Rule 4
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
