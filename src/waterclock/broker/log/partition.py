"""A partition: a folder of segments, and what is known of its producers and transactions.

Rule 1: a batch is written as it was received, at a known place, after all checks: a refused one changes nothing.
Rule 2: `end` counts what was appended, `durable` what is on the disk, `high` (the high watermark) what readers may see.
    start <= high <= durable <= end.
Rule 3: only the event loop's thread calls these methods. A flusher touches nothing but files, and so does what `do` is
    handed.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from waterclock.broker.errors import LogDamaged
from waterclock.broker.knobs import knobs
from waterclock.broker.log.batch import (
    BASE,
    CHECKED,
    CODEC,
    EPOCH,
    HEADER,
    PREFIX,
    Batch,
    at_append_time,
    commits,
    coordinator_epoch,
    header_of,
)
from waterclock.broker.log.memo import Memo
from waterclock.broker.log.producers import AbortedTransaction, AbortedTransactions, Producers
from waterclock.broker.log.records import keyless
from waterclock.broker.log.scrubbing import sound_bytes
from waterclock.broker.log.segment import Segment
from waterclock.broker.log.snapshot import Snapshots, packed
from waterclock.broker.net.outgoing import Buffer, Slice
from waterclock.broker.wire.errors import Error
from waterclock.broker.worker import Do, at_once

if TYPE_CHECKING:
    from waterclock.broker.settings import TopicSettings

SNAPSHOT_SHARE: Final = 32  # a snapshot of many producers is large: it may be one part in so many of what is written
FAILED: Final = -1
UNKNOWN: Final = -1  # the coordinator's epoch, if no marker says it
ZSTD: Final = 4  # the last of the compressions
NO_TIMESTAMP: Final = -1


class Partition:
    """The log of one partition, opened by recovery.py."""

    def __init__(self, topic: str, number: int, folder: str, settings: TopicSettings, memo: Memo) -> None:
        self.topic = topic
        self.number = number
        self.folder = folder
        self.settings = settings
        self.memo = memo
        self.segments: list[Segment] = []
        self.producers, self.aborted = Producers(), AbortedTransactions()
        self.end = self.durable = self.high = 0
        self.deleted = False
        self.deposed = False  # another broker leads it: who waits gets NOT_LEADER_OR_FOLLOWER
        self.upkept = False  # a compaction has its closed segments: nobody else removes any
        self._said: set[str] = set()
        self._unsnapped = 0  # bytes since the last snapshot
        self._snapshot_every = self._snapshot_at_least = knobs().snapshot_every
        self._snapshot: tuple[int, bytes] | None = None  # one taken, to be written once all before it is durable
        self.snapped = -1  # the offset of the last snapshot that is written, or is being
        self._snapshots = Snapshots(folder)
        self.do: Do = at_once  # if there is a worker it does what is slow, in the order in which it was asked for

    @property
    def start(self) -> int:
        """The first offset there is."""
        return self.memo.start

    @property
    def active(self) -> Segment:
        return self.segments[-1]

    @property
    def stable(self) -> int:
        """The last stable offset: before it, every transaction is decided, or its records are deleted."""
        first = next(iter(self.producers.open.values()), None)
        return self.high if first is None else max(self.start, min(first, self.high))

    # Writing

    def append(self, data: memoryview, now_ms: int, keyed: bool | None = None) -> tuple[Error, int]:
        """Append a producer's batch; (NONE, its offset), or (why not, -1). A repeated one has its first offset.

        `keyed` says whether every record has a key, if that is known already.
        """
        error, batch = self.checked(data, now_ms, keyed)
        if error:
            return error, FAILED
        if batch.producer_id >= 0:
            error, sent = self.producers.check(batch)
            if error or sent is not None:
                return error, sent.base if sent is not None else FAILED
        if self.settings.append_time:
            data = memoryview(at_append_time(data, now_ms))
            batch = header_of(data)
        return self._write(data, batch)

    def checked(self, data: memoryview, now_ms: int, keyed: bool | None = None) -> tuple[Error, Batch]:
        """What is wrong with a producer's batch, its place in a sequence aside."""
        if len(data) < HEADER:
            return Error.INVALID_RECORD if not len(data) else Error.CORRUPT_MESSAGE, _NO_BATCH
        batch = header_of(data)
        size = batch.length + PREFIX
        if batch.magic != 2:
            return Error.INVALID_RECORD if batch.magic in (0, 1) else Error.CORRUPT_MESSAGE, batch
        if size < HEADER:
            return Error.CORRUPT_MESSAGE, batch
        if size != len(data):
            return Error.INVALID_RECORD, batch  # one whole batch a partition, since format 2
        if size > self.settings.max_message_bytes:
            return Error.MESSAGE_TOO_LARGE, batch
        if size > self.settings.segment_bytes:
            return Error.RECORD_LIST_TOO_LARGE, batch
        if crc32c(data[CHECKED:]) != batch.crc:
            return Error.CORRUPT_MESSAGE, batch
        error = self._sensible(batch, now_ms)
        if not error and self.settings.compact and (keyless(data) if keyed is None else not keyed):
            error = Error.INVALID_RECORD
        return error, batch

    def _sensible(self, batch: Batch, now_ms: int) -> Error:
        if batch.attributes & CODEC > ZSTD:
            return Error.UNSUPPORTED_COMPRESSION_TYPE
        if batch.base or batch.records < 1 or batch.last_delta != batch.records - 1 or batch.control:
            return Error.INVALID_RECORD
        if batch.producer_id >= 0 and (batch.sequence < 0 or batch.producer_epoch < 0):
            return Error.INVALID_RECORD
        settings, first = self.settings, batch.first_timestamp
        if settings.append_time:
            return Error.NONE
        late, early = batch.max_timestamp - now_ms, now_ms - first if first != NO_TIMESTAMP else 0
        timely = late <= settings.timestamp_after_ms and early <= settings.timestamp_before_ms
        return Error.NONE if timely else Error.INVALID_TIMESTAMP

    def _write(self, data: memoryview | bytearray, batch: Batch) -> tuple[Error, int]:
        base = self.end
        BASE.pack_into(data, 0, base)
        EPOCH.pack_into(data, 12, self.memo.epoch)
        try:
            self.active_for(len(data), batch.max_timestamp).append(data, base, batch.max_timestamp)
        except OSError:
            return Error.KAFKA_STORAGE_ERROR, FAILED
        self._unsnapped += len(data)
        self.end = base + batch.last_delta + 1
        if batch.producer_id >= 0:
            self._note_producer(header_of(data), data)
        return Error.NONE, base

    def copy(self, data: memoryview, batch: Batch) -> None:
        """Append a batch as a leader stored it, offsets and all; OSError if the disk refuses."""
        self.active_for(len(data), batch.max_timestamp).append(data, batch.base, batch.max_timestamp)
        self.note(batch, data)

    def mark(self, data: bytearray) -> tuple[Error, int]:
        """Append a transaction's marker."""
        return self._write(data, header_of(data))

    def active_for(self, size: int, timestamp: int) -> Segment:
        """The segment that the next `size` bytes go into: a new one if they do not fit, or come too late for it."""
        active = self.active
        if active.size and (
            active.size + size > self.settings.segment_bytes
            or (active.began_ms >= 0 and timestamp - active.began_ms > self.settings.segment_ms)
        ):
            return self.roll()
        return active

    def roll(self) -> Segment:
        """Begin a new segment at the end."""
        closed = self.active
        closed.close()
        segment = Segment(self.folder, self.end)
        closed.rest()  # not before: a disk that refuses a new one leaves all as it was
        self.segments.append(segment)
        return segment

    def trim(self) -> list[Segment]:
        """Take out the segments before the start; their files stay for the caller to remove.

        Fewer if what is known of the last ones' producers is not on its way to the disk yet: they go the next time.
        """
        count = self.segment_of(self.start) if not self.upkept else 0
        if count and self.snapped < self.segments[count].base:
            self.take_snapshot()
        while count and self.snapped < self.segments[count].base:
            count -= 1
        if not count:
            return []
        gone, self.segments = self.segments[:count], self.segments[count:]
        self.aborted.forget(self.start, self.end)
        return gone

    def note(self, batch: Batch, data: Buffer) -> None:
        """Keep what a stored batch says, when it is appended and when it is found again; `data` at least of a marker."""
        self.end = batch.last + 1
        self._unsnapped += PREFIX + batch.length
        if batch.producer_id >= 0:
            self._note_producer(batch, data)

    def _note_producer(self, batch: Batch, data: Buffer) -> None:
        if not batch.control:
            self.producers.appended(batch)
            return
        if not batch.records:  # a compaction has emptied it: nothing of its transaction is left, but its epoch
            self.producers.ended(batch, UNKNOWN)
            return
        first = self.producers.ended(batch, coordinator_epoch(data))
        if first is not None and not commits(data):
            home = self.segments[self.segment_of(batch.base)].base
            self.aborted.add(AbortedTransaction(batch.producer_id, first, batch.base), home)

    # Becoming durable

    def unflushed(self) -> list[tuple[Segment, int]]:
        """The segments of which something is not durable in their own files, and how far they go; the oldest first."""
        files = []
        for segment in reversed(self.segments):
            if segment.settled < segment.size or segment.closing:
                files.append((segment, segment.size))
            elif segment.size:
                break  # all before it is durable too
        return files[::-1]

    def flushed_ahead(self, end: int, segment: Segment, size: int) -> None:
        """Everything before offset `end` is durable: the write-ahead log has a segment up to byte `size`."""
        segment.flushed(size)
        if segment is not self.active:
            segment.rest()
        self._durable_to(end)

    def flushed(self, end: int, files: list[tuple[Segment, int]]) -> None:
        """Everything before offset `end` is durable, and so are `files` as far as they went."""
        for segment, size in files:
            segment.settle(size)
            segment.flushed(size)
            if segment is not self.active:
                segment.rest()
        self._durable_to(end)

    def _durable_to(self, end: int) -> None:
        if end > self.durable:
            self.durable = end
            self.aborted.save(self.segments, end)
        if self._unsnapped >= self._snapshot_every and self._snapshot is None:
            self._dump()
        if self._snapshot is not None and self._snapshot[0] <= self.durable:
            self._write_snapshot()

    def take_snapshot(self) -> None:
        """Keep the producers as they stand: from here on a start need not read what was before."""
        self._dump()
        if self.durable == self.end:
            self._write_snapshot()

    def _dump(self) -> None:
        data = packed(self.producers.dump(), self.aborted.vouched(self.segments[0].base))
        self._snapshot, self._unsnapped = (self.end, data), 0
        self._snapshot_every = max(self._snapshot_at_least, SNAPSHOT_SHARE * len(data))

    def _write_snapshot(self) -> None:
        """Have it written; if that cannot be the next one is tried: a start reads more, no more is lost."""
        assert self._snapshot is not None
        (offset, data), self._snapshot = self._snapshot, None
        rows = self.aborted.unsettled(offset)
        if rows is not None:
            self.snapped = offset
            # the next flush makes its name durable; `write` has dealt with a disk that refuses
            self.do(partial(self._snapshots.write, offset, data, rows), lambda error: self.active.name_anew())

    def lose_undurable(self) -> None:
        """Drop what its own files may not have: nobody can say that it would have survived a power cut there."""
        whole = True
        for segment in self.segments:
            if not whole:
                segment.delete()
            elif segment.settled < segment.size:
                segment.cut(segment.settled)
                whole = False

    # Reading

    def is_news(self, damage: LogDamaged) -> bool:
        """Whether nobody has said that yet: readers ask again and again."""
        news = str(damage) not in self._said
        self._said.add(str(damage))
        return news

    def segment_of(self, offset: int) -> int:
        """The index in `segments` of the one that holds `offset`, or of the first if it lies before."""
        return max(0, bisect_right(self.segments, offset, key=lambda s: s.base) - 1)

    def latest_in(self, segment: Segment) -> int:
        """The latest timestamp of a segment's records, in ms; -1 if they have none."""
        return segment.latest if segment is self.active else segment.tail.latest

    def read(self, offset: int, limit: int, upto: int) -> Slice | None:
        """Whole batches from the one that holds `offset`: at most `limit` bytes, at least one batch, all before `upto`.

        None if there is nothing before `upto`, the end of a batch.
        """
        for segment in self.segments[self.segment_of(offset) :]:
            if segment.base >= upto:
                return None
            stop = segment.durable if upto >= self.durable else self.bytes_before(upto, segment)
            at, first = segment.locate(offset) if self._holds(segment, offset) else (stop, 0)
            if at < stop:
                size = max(first, self._fitting(segment, at, stop, limit))
                if at < segment.unread or segment.damages:
                    size = sound_bytes(segment, at, size)
                return Slice(segment, at, size)
        return None

    def resumes_at(self, offset: int) -> int | None:
        """Where the log goes on, if nothing is left from `offset` to its end; None if something is, or it is the end."""
        active = self.active
        lost = not active.size and offset < active.base and self.read(offset, 1, self.durable) is None
        return active.base if lost else None

    def resume(self, offset: int) -> None:
        """Go on at `offset`, behind the end of what is durable; before it nothing is left at the leader either."""
        if len(self.segments) == 1 and not self.active.size:
            # the log begins with what is lost, and readers may stand there. It says nothing until a segment begins so
            self.memo.lost = self.start, offset
            self.memo.save()
        self.active.close()
        following = Segment(self.folder, offset)  # first: a full disk leaves all as it was
        if self.active.size:
            self.active.rest()
        else:  # an empty segment has no next one
            self.segments.pop().delete()
        self.segments.append(following)
        self.end = self.durable = offset

    def bytes_before(self, offset: int, segment: Segment) -> int:
        """How many bytes of the segment lie before `offset`, a batch's first or the end."""
        if offset <= segment.base:
            return 0
        return segment.locate(offset)[0] if self._holds(segment, offset) else segment.size

    def _holds(self, segment: Segment, offset: int) -> bool:
        """Whether a batch at or after `offset` lies in the segment: a compacted one may end early."""
        if segment is self.active:
            return offset < self.end
        try:
            return segment.size > 0 and segment.tail.end > offset
        except LogDamaged:  # its last batches: who asks for those gets an error where they are looked for
            return True

    def bound(self, records: Slice) -> int:
        """An offset that everything in `records` lies before, not far behind it: for its aborted transactions."""
        segment = records.segment
        assert isinstance(segment, Segment)
        after = segment.lookup.offset_after(records.at + records.size)
        following = self.segment_of(segment.base) + 1
        if after is None and following < len(self.segments):
            return self.segments[following].base
        return self.end if after is None else after

    def _fitting(self, segment: Segment, at: int, stop: int, limit: int) -> int:
        """How many bytes of whole batches lie between `at` and `stop` and are not more than `limit`."""
        if stop - at <= limit:
            return stop - at
        fits = max(at, segment.lookup.before_byte(at + limit))
        with suppress(LogDamaged):  # what lies before it is handed out
            for byte, batch in segment.headers(fits):
                if byte + PREFIX + batch.length - at > limit:
                    break
                fits = byte + PREFIX + batch.length
        return fits - at


_NO_BATCH: Final = Batch(*([0] * len(Batch._fields)))
