"""Compaction: of each key, the last record stays. For topics with cleanup.policy=compact.

1. `plan` (the loop) chooses closed segments, and takes along what is known of producers and aborted transactions.
2. `Compaction.steps` (a thread) reads the new part and notes each key's last offset, in memory of a fixed size;
3. then writes segments anew, several small ones as one, and swaps the files (swap.py);
4. `adopt` (the loop) takes the new segments. Who reads an old one keeps its file and finishes.

    a record                                              stays
    without a key                                         no
    followed by one of the same key                       no
    without a value: a deletion                           until delete.retention.ms after a compaction first met it
    of an aborted transaction                             no
    a transaction's marker                                until then too, counted from when its last record went
    a batch that a producer's last sequence stands in     its header, if its records go
    the four before it, unless they are transactions'     the same: who has had no answer yet sends them again
    the last batch of a file                              the same: offsets go on where they were, whatever a crash takes

Rule 1: offsets never change. The active segment is not touched, nor anything at or after the last stable offset, nor
    what is younger than min.compaction.lag.ms.
Rule 2: a batch that cannot be decoded stays as it is: its sender made it so, and every reader gets it so.

    a batch of        whose records are still there    then its marker
    an aborted one    they go now                      stays, and answers to readers list the transaction
    an aborted one    they went before                 may go, once its time is over
    a committed one   (as the keys say)                may go once no batch of it is left

Source: KIP-98, KIP-534; the cleaner of Apache Kafka behaves so.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from waterclock.broker.log.batch import Batch, commits
from waterclock.broker.log.index import NEVER, Index
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.producers import ROW, AbortedTransaction, Producer
from waterclock.broker.log.records import A_FEW, Record, emptied, horizon_of, keys, records, rewritten
from waterclock.broker.log.segment import Segment
from waterclock.broker.log.swap import CLEANED, swap
from waterclock.broker.net.outgoing import Buffer
from waterclock.outside import open_file, os

MAP_BYTES: Final = 64 << 20  # for keys and their offsets; if it is full, the rest waits for the next compaction
ENTRY_BYTES: Final = 160  # what a key costs beside its own bytes
WRITE_BYTES: Final = 1 << 20
log = logging.getLogger("waterclock.broker")


class LastBatches(NamedTuple):
    """Where a producer's last batches end, of those that a power cut leaves. None: its epoch stands in a marker; or, if
    memory is not `sure`, all batches that are kept there may be lost."""

    ends: tuple[int, ...]
    epoch: int
    sure: bool = True


class CompactionPlan(NamedTuple):
    """What is compacted: `segments`, up to offset `upto`; what comes from offset `dirty` on is new."""

    folder: str
    segments: list[Segment]
    dirty: int
    upto: int
    now_ms: int
    keep_ms: int  # delete.retention.ms
    segment_bytes: int
    aborted: list[AbortedTransaction]  # with markers in `segments`, or with records there and markers behind
    share: float  # of new bytes
    last: dict[int, LastBatches]  # of each producer


class Swap(NamedTuple):
    """A new segment is there, in place of `old`; `aborted` are the aborted transactions with markers in it."""

    old: list[Segment]
    upto: int
    aborted: list[AbortedTransaction]


def plan(partition: Partition, now_ms: int) -> CompactionPlan | None:
    """What a compaction would do now; None if there is too little to do."""
    settings = partition.settings
    dirty = max(partition.memo.cleaned, partition.start)
    closed = [(s, after.base) for s, after in pairwise(partition.segments) if after.base > partition.start]
    upto, lag_ms = min(partition.stable, partition.active.base), settings["min.compaction.lag.ms"]  # rule 1
    if lag_ms > 0:
        young = (segment.base for segment, end in closed if end > dirty and segment.tail.latest > now_ms - lag_ms)
        upto = min(upto, next(young, upto))
    upto = max((end for _, end in closed if end <= upto), default=0)
    new = sum(segment.size for segment, end in closed if dirty < end <= upto)
    old = sum(segment.size for segment, end in closed if end <= dirty)
    first = next((segment for segment, end in closed if end > dirty and segment.size), None) if new else None
    due = False
    if first is not None:  # whether the first new record is older than it may be
        due = 0 <= next(first.headers())[1].max_timestamp < now_ms - settings["max.compaction.lag.ms"]
    if not due and (not new or new / (old + new) <= settings["min.cleanable.dirty.ratio"]):
        return None
    chosen = [segment for segment, end in closed if end <= upto]
    for segment in chosen:
        _ = segment.tail  # it is found out before its files go
    aborted = [row for row in partition.aborted.between(0, upto) if row.last >= chosen[0].base]
    last = {pid: _last(known, partition) for pid, known in partition.producers.known.items()}
    keep_ms = settings["delete.retention.ms"]
    return CompactionPlan(
        partition.folder, chosen, dirty, upto, now_ms, keep_ms, settings.segment_bytes, aborted, new / (old + new), last
    )


def _last(known: Producer, partition: Partition) -> LastBatches:
    ends = tuple(sent.end for sent in known.sent if sent.end < partition.durable)
    return LastBatches(ends, known.epoch, bool(ends) or partition.durable == partition.end)


class DecidedTransactions:
    """`aborted`: the transactions that readers of the log pass over, in any order.

    `listed` are those of them that answers to readers must list still. What is fed in comes in the order of the log, from
    its start, every batch of it.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=lambda row: row.first))
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()  # producers with a transaction, decided by a marker to come, that has batches
        self.listed: list[AbortedTransaction] = []

    def goes(self, batch: Batch) -> bool:
        """Whether a batch of records belongs to an aborted transaction."""
        if not batch.transactional:
            return False
        self._reach(batch.last)
        self._seen.add(batch.producer_id)
        return batch.producer_id in self._aborted

    def needless(self, batch: Batch, data: Buffer) -> bool:
        """Whether no batch of a marker's transaction is left before it."""
        if not batch.records:
            return True
        self._reach(batch.last)
        seen = batch.producer_id in self._seen
        self._seen.discard(batch.producer_id)
        row = None if commits(data) else self._aborted.pop(batch.producer_id, None)
        if row is not None and seen:
            self.listed.append(row)
        return not seen

    def _reach(self, offset: int) -> None:
        while self._coming and self._coming[0].first <= offset:
            row = self._coming.popleft()
            self._aborted[row.producer_id] = row


class Compaction:
    """One compaction, done in steps by whoever iterates. `covered` is the offset up to which it has come."""

    def __init__(self, plan: CompactionPlan) -> None:
        self._plan = plan
        for segment in plan.segments:
            segment.pin()  # who reads it needs its index longer than that has its name
        self._offsets: dict[bytes, int] = {}
        self._decided = DecidedTransactions(plan.aborted)
        self._last = plan.last
        self._new_horizon = plan.now_ms + plan.keep_ms
        self.covered = plan.upto
        self.done = False
        self._left: list[tuple[int, str]] = []  # batches that cannot be taken apart, by offset, and why

    def steps(self) -> Iterator[Swap | None]:
        """Work until it is done, a batch or so at a time; each file that was swapped is yielded once. OSError."""
        yield from self._find_last()
        yield from self._note_keys()
        for group in _groups(self._plan.segments, self._plan.segment_bytes):
            yield from self._rewrite(group)
        if self._left:
            offset, why = self._left[0]
            log.warning(
                "%s: %d batches stay as they are, though older records in them could go. The first is at offset %d: %s",
                self._plan.folder, len(self._left), offset, why,
            )  # fmt: skip
        self.done = True

    def leave(self) -> None:
        """It has failed, and no file of the log has lost its name."""
        for segment in self._plan.segments:
            segment.unpin()

    def _find_last(self) -> Iterator[None]:
        """Of producers that memory is unsure of, the last batch that stands in the segments."""
        unsure = {pid for pid, last in self._plan.last.items() if not last.sure}
        found: dict[int, LastBatches] = {}
        for segment in self._plan.segments if unsure else ():
            for _, batch in segment.headers():
                if batch.producer_id in unsure and not batch.control:
                    found[batch.producer_id] = LastBatches((batch.last,), batch.producer_epoch)
                yield None
        self._last = {**self._plan.last, **found}

    # The keys

    def _note_keys(self) -> Iterator[None]:
        plan, used = self._plan, 0
        decided = DecidedTransactions(row for row in plan.aborted if row.last >= plan.dirty)
        for batch, data in _batches(plan.segments):
            if batch.last < plan.dirty:
                continue
            if used > MAP_BYTES:
                self.covered = batch.base
                return
            if batch.control:
                decided.needless(batch, data)
            elif not decided.goes(batch):
                used += yield from self._note(data)
            yield None

    def _note(self, data: bytes) -> Generator[None, None, int]:
        found: dict[bytes, int] = {}
        try:
            for number, (offset, key) in enumerate(keys(data), 1):
                if key is not None:
                    found[key] = offset
                if not number % A_FEW:
                    yield
        except ValueError:
            return 0  # rule 2: nor do the records before the broken one count
        used = sum(len(key) + ENTRY_BYTES for key in found if key not in self._offsets)
        self._offsets.update(found)
        return used

    # The new files

    def _rewrite(self, group: list[Segment]) -> Iterator[Swap | None]:
        plan, base = self._plan, group[0].base
        following = next((s.base for s in plan.segments if s.base > group[-1].base), plan.upto)
        path = os.path.join(plan.folder, f"{base:020}")
        index = Index(path + ".index", base)
        at, latest = 0, NEVER
        with open_file(path + ".log" + CLEANED, "wb", buffering=WRITE_BYTES) as file:
            for batch, data in _batches(group):
                kept = data if batch.base >= self.covered else (yield from self._cleaned(batch, data))
                if not kept and batch.last + 1 == following:
                    kept = emptied(batch)
                if kept:
                    index.note(batch.base, at, latest)
                    at, latest = at + len(kept), max(latest, batch.max_timestamp)
                    file.write(kept)
                yield None
            file.flush()
            os.fsync(file.fileno())
        aborted, self._decided.listed = self._decided.listed, []
        aborted += (row for row in plan.aborted if max(base, self.covered) <= row.last < following)
        with open_file(path + ".aborted" + CLEANED, "wb") as rows:
            rows.write(b"".join(ROW.pack(*row) for row in aborted))
            rows.flush()
            os.fsync(rows.fileno())
        swap(plan.folder, base, following, index)
        yield Swap(group, following, aborted)

    def _cleaned(self, batch: Batch, data: bytes) -> Generator[None, None, bytes]:
        """What stays of a batch; nothing if nothing does."""
        if batch.control:
            kept = self._marker(batch, data)
        elif self._decided.goes(batch):
            kept = b""
        else:
            kept = yield from self._records(batch, data)
        last = self._last.get(batch.producer_id) if batch.producer_id >= 0 else None
        if kept or last is None:
            return kept
        in_marker = not last.ends and batch.control and last.epoch == batch.producer_epoch
        ends = last.ends[-1:] if batch.transactional else last.ends  # the transaction is decided: nobody sends it again
        return emptied(batch) if in_marker or batch.last in ends else b""

    def _marker(self, batch: Batch, data: bytes) -> bytes:
        if not self._decided.needless(batch, data):
            return data
        horizon = horizon_of(batch)
        if not batch.records or (horizon is not None and horizon <= self._plan.now_ms):
            return b""
        return data if horizon is not None else rewritten(batch, list(records(data)), self._new_horizon)

    def _records(self, batch: Batch, data: bytes) -> Generator[None, None, bytes]:
        horizon = horizon_of(batch)
        deletions_go = horizon is not None and horizon <= self._plan.now_ms
        try:
            leads = False
            for number, (offset, key) in enumerate(keys(data), 1):
                leads = leads or self._leads(offset, key)
                if not number % A_FEW:
                    yield
            if not leads:
                return b""  # most old batches: no record need be taken apart
            kept: list[Record] = []
            for number, record in enumerate(records(data), 1):
                if self._leads(record.offset, record.key) and (record.value is not None or not deletions_go):
                    kept.append(record)
                if not number % A_FEW:
                    yield
        except ValueError as error:
            self._left.append((batch.base, str(error)))
            return data  # rule 2
        if not kept:
            return b""
        marks = horizon is None and any(record.value is None for record in kept)
        if len(kept) == batch.records and not marks:
            return data
        return rewritten(batch, kept, self._new_horizon if marks else horizon)

    def _leads(self, offset: int, key: bytes | None) -> bool:
        """Whether no later record of the key is known."""
        return key is not None and offset >= self._offsets.get(key, -1)


def _batches(segments: Iterable[Segment]) -> Iterator[tuple[Batch, bytes]]:
    """Every batch as its checksum says it is: what is damaged must not get a checksum of its own. LogDamaged."""
    for segment in segments:
        for _, batch, data in segment.batches():
            yield batch, bytes(data)


def _groups(segments: Iterable[Segment], most: int) -> Iterator[list[Segment]]:
    """Neighbours that fit into one file together."""
    group: list[Segment] = []
    for segment in segments:
        if group and sum(s.size for s in group) + segment.size > most:
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


def adopt(partition: Partition, swapped: Swap) -> None:
    """Take a new segment in place of the old ones; in the loop's thread."""
    first = partition.segments.index(swapped.old[0])
    new = Segment(partition.folder, swapped.old[0].base)
    new.unread = 0
    partition.segments[first : first + len(swapped.old)] = [new]
    partition.aborted.replace(new.base, swapped.upto, swapped.aborted)
