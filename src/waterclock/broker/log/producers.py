"""What a partition knows of its producers: their last batches, and their open transactions.

    a batch's epoch      and its sequence                   then
    older                -                                  fenced: INVALID_PRODUCER_EPOCH
    newer                0                                  a new start
    newer                another                            OUT_OF_ORDER_SEQUENCE_NUMBER
    the same             one of the last 5 batches          a duplicate: answered with the first one's offset
    the same             the one that follows               appended
    the same             another                            OUT_OF_ORDER_SEQUENCE_NUMBER
    any                  no transaction, while one is open  INVALID_TXN_STATE
    of a producer nobody knows                              appended
      ... whose first one was refused, and comes again      OUT_OF_ORDER_SEQUENCE_NUMBER, until that one has come

A marker with a newer epoch ends what is known of the older one's batches: the next sequence is 0.

Rule 1: a producer nobody knows may start with any sequence: its state may have been lost with the records it stood on.
    One of its batches that was refused for a while (a full disk, too few replicas) is the one that it starts with: those
    that were on their way behind it would be appended, and it would be out of order for ever, as with Apache Kafka.
Rule 2: transactions are open from their first batch to their marker, and kept in the order of their first offsets.
Source: KIP-98, KIP-360 (unknown producers), KIP-890 (epochs that rise with every transaction).
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

from waterclock.broker.log.batch import SEQUENCES, Batch
from waterclock.broker.wire.errors import Error

KEPT: Final = 5
NO_SEQUENCE: Final = -1
# producer, epoch, batches, open since offset or -1, last timestamp, coordinator's epoch
OPENED: Final = struct.Struct(">qhhqqi")
SENT: Final = struct.Struct(">iiqq")


class SentBatch(NamedTuple):
    """One of a producer's last batches: first and last sequence, first and last offset."""

    first: int
    last: int
    base: int
    end: int


class Producer:
    """One producer in one partition."""

    __slots__ = ("coordinator_epoch", "epoch", "last_timestamp", "sent")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.sent: deque[SentBatch] = deque(maxlen=KEPT)
        self.last_timestamp = -1
        self.coordinator_epoch = -1


@dataclass(slots=True)
class AwaitedBatch:
    """The first batch of a producer nobody knows, which was refused; and how many may have been on their way behind it."""

    epoch: int
    sequence: int
    last_timestamp: int
    behind: int = KEPT - 1  # no client has more batches on their way to a partition than are kept here


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: its producer, its first offset, the offset of its marker."""

    producer_id: int
    first: int
    last: int


class Producers:
    """All producers of one partition."""

    def __init__(self) -> None:
        self.known: dict[int, Producer] = {}
        self.open: dict[int, int] = {}  # producer -> first offset of its transaction, in the order of the offsets
        self._awaited: dict[int, AwaitedBatch] = {}

    def check(self, batch: Batch) -> tuple[Error, SentBatch | None]:
        """Whether the batch may be appended; the batch that it repeats, if it was appended before."""
        known = self.known.get(batch.producer_id)
        if known is None:
            return self._not_known(batch), None
        if batch.producer_id in self.open and not batch.transactional:
            return Error.INVALID_TXN_STATE, None
        if batch.producer_epoch < known.epoch:
            return Error.INVALID_PRODUCER_EPOCH, None
        if batch.producer_epoch > known.epoch or not known.sent:
            return Error.NONE if batch.sequence == 0 else Error.OUT_OF_ORDER_SEQUENCE_NUMBER, None
        if batch.sequence == (known.sent[-1].last + 1) % SEQUENCES:
            return Error.NONE, None
        for sent in known.sent:
            if sent.first == batch.sequence and sent.last == batch.last_sequence:
                return Error.NONE, sent
        return Error.OUT_OF_ORDER_SEQUENCE_NUMBER, None

    def _not_known(self, batch: Batch) -> Error:
        awaited = self._awaited.get(batch.producer_id)
        if awaited is None or awaited.epoch != batch.producer_epoch or awaited.sequence == batch.sequence:
            return Error.NONE
        awaited.behind -= 1
        if not awaited.behind:  # what comes after these was sent after the refusal was heard of
            del self._awaited[batch.producer_id]
        return Error.OUT_OF_ORDER_SEQUENCE_NUMBER

    def refused(self, batch: Batch) -> None:
        """A batch was refused with an error after which its producer sends it again."""
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        if producer_id < 0 or producer_id in self.known:
            return
        awaited = self._awaited.get(producer_id)
        if awaited is None or awaited.epoch < epoch or awaited.sequence == batch.sequence:
            self._awaited[producer_id] = AwaitedBatch(epoch, batch.sequence, batch.max_timestamp)

    def appended(self, batch: Batch) -> None:
        """The batch stands in the log now, with its final offsets."""
        self._awaited.pop(batch.producer_id, None)
        known = self.known.get(batch.producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            known = self.known[batch.producer_id] = Producer(batch.producer_epoch)
        known.last_timestamp = batch.max_timestamp
        if batch.sequence != NO_SEQUENCE:
            known.sent.append(SentBatch(batch.sequence, batch.last_sequence, batch.base, batch.last))
        if batch.transactional:
            self.open.setdefault(batch.producer_id, batch.base)

    def ended(self, batch: Batch, coordinator_epoch: int) -> int | None:
        """The marker stands in the log now; the first offset of the transaction that it ends, if one was open."""
        known = self.known.get(batch.producer_id)
        if known is None or known.epoch != batch.producer_epoch:
            known = self.known[batch.producer_id] = Producer(batch.producer_epoch)
        known.last_timestamp, known.coordinator_epoch = batch.max_timestamp, coordinator_epoch
        return self.open.pop(batch.producer_id, None)

    def forget(self, before_ms: int) -> None:
        """Drop producers without an open transaction that were last heard of before `before_ms`."""
        old = [p for p, known in self.known.items() if known.last_timestamp < before_ms and p not in self.open]
        for producer_id in old:
            del self.known[producer_id]
        self._awaited = {p: awaited for p, awaited in self._awaited.items() if awaited.last_timestamp >= before_ms}

    def dump(self) -> bytes:
        """All of it as bytes, for a snapshot."""
        rows = []
        for producer_id, known in self.known.items():
            first = self.open.get(producer_id, -1)
            head = (producer_id, known.epoch, len(known.sent), first, known.last_timestamp, known.coordinator_epoch)
            rows.append(OPENED.pack(*head) + b"".join(SENT.pack(*sent) for sent in known.sent))
        return b"".join(rows)

    @classmethod
    def load(cls, data: bytes) -> Producers:
        """What `dump` gave; `struct.error` if it is not that."""
        producers, at = cls(), 0
        while at < len(data):
            producer_id, epoch, count, first, timestamp, coordinator = OPENED.unpack_from(data, at)
            at += OPENED.size
            known = producers.known[producer_id] = Producer(epoch)
            known.last_timestamp, known.coordinator_epoch = timestamp, coordinator
            for _ in range(count):
                known.sent.append(SentBatch(*SENT.unpack_from(data, at)))
                at += SENT.size
            if first >= 0:
                producers.open[producer_id] = first
        producers.open = dict(sorted(producers.open.items(), key=lambda item: item[1]))
        return producers
