"""What is known of one transactional id: a value, and each step of its life a new one.

Rule 1: nothing here waits or writes: a step gives the next record, who takes it makes it durable first.
Rule 2: an epoch is used up to 32766: the last one (32767) is for markers that fence. Then comes another producer id.
Rule 3: under protocol 2 (KIP-890) the epoch rises with every end; the markers already have the new one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from waterclock.broker.folder.topics import TopicPartition
from waterclock.broker.groups.offsets import CommittedOffset
from waterclock.broker.transactions.states import BEFORE, DECIDED, TransactionState

NONE: Final = -1
LAST_EPOCH: Final = 0x7FFE


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
