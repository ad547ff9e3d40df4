"""What a partition knows of its producers: their last batches, their open transactions, and those that were aborted.

    a batch's epoch      and its sequence                   then
    older                -                                  fenced: INVALID_PRODUCER_EPOCH
    newer                0                                  a new start
    newer                another                            OUT_OF_ORDER_SEQUENCE_NUMBER
    the same             one of the last 5 batches          a duplicate: answered with the first one's offset
    the same             the one that follows               appended
    the same             another                            OUT_OF_ORDER_SEQUENCE_NUMBER
    any                  no transaction, while one is open  INVALID_TXN_STATE
    of a producer nobody knows                              appended
      ... of which one was refused, for those behind it     OUT_OF_ORDER_SEQUENCE_NUMBER, until that one has come

A marker with a newer epoch ends what is known of the older one's batches: the next sequence is 0. The answers to readers of
committed records list which aborted transactions to pass over.

Rule 1: a producer nobody knows may start with any sequence: its state may have been lost with the records it stood on.
    One of its batches that was refused for a while (a full disk, too few replicas) is the one that it starts with: those
    that were on their way behind it would be appended, and it would be out of order for ever, as with Apache Kafka.
Rule 2: transactions are open from their first batch to their marker, and kept in the order of their first offsets.
Rule 3: an aborted transaction is found by its marker's offset: it concerns who reads at or before the marker.
Rule 4: it is kept in a file of its marker's segment, written once the marker is durable. A disk that refuses has the next
    try with the next one: until the next snapshot of the producers, a start finds the rows in the log.
Rule 5: they are made durable before a snapshot says that a start need not read their markers again: `unsettled` says
    which files that takes, snapshot.py has it done.
Rule 6: a reader costs as much as there are transactions from its first record to the last marker of one that begins
    before its end, however many came later: `_floors` never fall, so where the later ones begin is found by bisection.
Rule 7: no row is believed that the snapshot does not vouch for: it has the number and the checksum of each file's rows
    before it. If a file has others, a start finds the transactions in the log again (snapshot.py).
Source: KIP-98, KIP-360 (unknown producers), KIP-890 (epochs that rise with every transaction).
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from operator import attrgetter
from typing import Final, NamedTuple

from crc32c import crc32c

from waterclock.broker.log.batch import SEQUENCES, Batch
from waterclock.broker.log.segment import Segment
from waterclock.broker.wire.errors import Error
from waterclock.disk import write_all, write_whole
from waterclock.outside import open_file, os

KEPT: Final = 5
NO_SEQUENCE: Final = -1
# producer, epoch, batches, open since offset or -1, last timestamp, coordinator's epoch
OPENED: Final = struct.Struct(">qhhqqi")
SENT: Final = struct.Struct(">iiqq")
ROW: Final = struct.Struct(">qqq")
ABORTED: Final = ".aborted"
MARKER: Final = attrgetter("last")  # the offset of a row's marker


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
    """The first batch that was refused of a producer nobody knows; and how many may have been on their way behind it."""

    epoch: int
    sequence: int
    last_timestamp: int
    behind: int = KEPT - 1  # no client has more batches on their way to a partition than are kept here

    def is_or_follows(self, sequence: int) -> bool:
        """Whether it is the batch with this sequence, or was sent behind that one."""
        return (self.sequence - sequence) % SEQUENCES < SEQUENCES // 2


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
        if awaited is None or awaited.epoch != batch.producer_epoch or awaited.is_or_follows(batch.sequence):
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
        if awaited is None or awaited.epoch < epoch or awaited.is_or_follows(batch.sequence):
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


class RowsChecksum(NamedTuple):
    """How many rows there are, and their checksum, in the order of their markers."""

    rows: int = 0
    checksum: int = 0

    @classmethod
    def of(cls, rows: Collection[AbortedTransaction]) -> RowsChecksum:
        return cls(len(rows), crc32c(b"".join(ROW.pack(*row) for row in rows)))


class AbortedTransactions:
    """In the order of their markers."""

    def __init__(self) -> None:
        self._have([])
        self._written = 0
        self._unflushed: dict[str, None] = {}  # in the order of writing, not of hashes: the same at each run
        self._homes: dict[int, RowsChecksum] = {}  # by the bases of the segments with the markers

    def __len__(self) -> int:
        return len(self._rows)

    def _have(self, rows: list[AbortedTransaction]) -> None:
        self._rows = rows
        self._floors = [*accumulate((row.first for row in reversed(rows)), min)][::-1]  # of each row and all after it

    def add(self, aborted: AbortedTransaction, home: int) -> None:
        """One more, with the last marker of all, in the segment from offset `home` on."""
        row, first = len(self._rows), aborted.first
        rows, checksum = self._homes.get(home, RowsChecksum())
        self._homes[home] = RowsChecksum(rows + 1, crc32c(ROW.pack(*aborted), checksum))
        self._rows.append(aborted)
        self._floors.append(first)
        while row and self._floors[row - 1] > first:
            row -= 1
            self._floors[row] = first

    def between(self, first: int, upto: int) -> list[AbortedTransaction]:
        """Those that concern a reader of the offsets from `first` to before `upto`."""
        start = bisect_left(self._rows, first, key=MARKER)
        return [row for row in self._rows[start : bisect_left(self._floors, upto)] if row.first < upto]

    def save(self, segments: Iterable[Segment], durable: int) -> None:
        """Write those whose marker is durable and not in a file yet."""
        if self._written == len(self._rows):
            return
        homes = list(segments)[::-1]
        with suppress(OSError):
            while self._written < len(self._rows) and self._rows[self._written].last < durable:
                row = self._rows[self._written]
                home = next((segment for segment in homes if segment.base <= row.last), None)
                if home is not None:
                    path = home.path + ABORTED
                    self._unflushed[path] = None
                    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
                    try:
                        at = os.fstat(fd).st_size // ROW.size * ROW.size  # a row that was cut off is overwritten
                        write_all(fd, ROW.pack(*row), at)
                    finally:
                        os.close(fd)
                self._written += 1

    def unsettled(self, before: int) -> list[str] | None:
        """The files with rows of markers before offset `before` that may not be on the disk: whoever asks flushes them.

        None if such a row is in no file yet.
        """
        if self._written < len(self._rows) and self._rows[self._written].last < before:
            return None
        files, self._unflushed = list(self._unflushed), {}
        return files

    def vouched(self, start: int) -> dict[int, RowsChecksum]:
        """What the files of the segments from offset `start` on hold, or will; by their bases."""
        self._homes = {base: one for base, one in self._homes.items() if base >= start}
        return self._homes

    def load(self, homes: dict[int, list[AbortedTransaction]]) -> None:
        """Have these, which are all in the files of the segments from these offsets on."""
        rows = [row for some in homes.values() for row in some]
        self._homes = {base: RowsChecksum.of(some) for base, some in homes.items() if some}
        self._have(sorted(rows, key=MARKER))
        self._written = len(rows)

    def forget(self, start: int, end: int) -> None:
        """Drop those whose marker lies before `start` or not before `end`."""
        kept = [row for row in self._rows if start <= row.last < end]
        unwritten = sum(start <= row.last < end for row in self._rows[self._written :])
        self._have(kept)
        self._written = len(kept) - unwritten

    def replace(self, first: int, upto: int, rows: list[AbortedTransaction]) -> None:
        """What a compaction has left of those with markers from `first` to before `upto`, all of them in files."""
        rows = sorted(rows, key=MARKER)
        self._homes = {base: one for base, one in self._homes.items() if not first <= base < upto}
        if rows:
            self._homes[first] = RowsChecksum.of(rows)
        before = [row for row in self._rows if row.last < first]
        after = [row for row in self._rows if row.last >= upto]
        unwritten = sum(row.last >= upto for row in self._rows[self._written :])
        self._have([*before, *rows, *after])
        self._written = len(self._rows) - unwritten


def read_rows(path: str) -> list[AbortedTransaction]:
    """The rows of the segment at `path` (without an ending), each once, in the order of their markers."""
    try:
        with open_file(path + ABORTED, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return []
    return sorted(
        {AbortedTransaction(*row) for row in ROW.iter_unpack(data[: len(data) // ROW.size * ROW.size])}, key=MARKER
    )


def write_rows(path: str, rows: Iterable[AbortedTransaction]) -> None:
    """Replace those rows, durably."""
    write_whole(path + ABORTED, b"".join(ROW.pack(*row) for row in rows))
