"""Group commit: what is appended while one flush runs goes to the disk with the next, for all producers at once.

Small appends of all partitions go into the write-ahead log together, with one flush; what is large, or the first of its
file, is flushed in its own file, several files at a time.

Rule 1: only the event loop's thread touches partitions. A flushing thread gets a list of files and hands it back.
Rule 2: a partition is in one flush at a time: the appends of its file never wait behind two.
Rule 3: a flush that failed ends the process: log/durable.py.
Rule 4: one thread at a time writes ahead. What comes meanwhile waits for the next: it is a fraction of a millisecond.
    One append alone, with no flush under way, is written by the loop's thread, while that takes less than ALONE_NS: to wake
    two threads takes longer than a quick disk. A request that comes meanwhile waits for it.
Rule 5: after a flush producers are answered before readers: a hundred long polls do not make one producer wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from waterclock.broker.knobs import Knobs, knobs
from waterclock.broker.log.durable import flush_files
from waterclock.broker.log.write_ahead import SegmentBytes, WriteAheadLog
from waterclock.broker.statistics import FlushStatistics
from waterclock.outside import queue, threading

if TYPE_CHECKING:
    from waterclock.broker.log.partition import Partition
    from waterclock.broker.log.segment import Segment
    from waterclock.broker.net.outgoing import Ready
    from waterclock.broker.worker import Do
    from waterclock.purgatory import Purgatory

ALONE_NS: Final = 500_000
THREADS: Final = 4  # a hundred files one after the other fell from 41k to 16k requests/s with one


class FlushWork(NamedTuple):
    """One partition's part of a flush: its end when the flush began, and the files with bytes to flush.

    `ahead`: the bytes that are new go into the write-ahead log, as `small` allows.
    """

    partition: Partition
    end: int
    files: list[tuple[Segment, int]]
    ahead: bool = False

    def small(self, most: int) -> int:
        """How many bytes are new, if they may be written ahead: few, in one file, whose name is durable; else 0."""
        if len(self.files) != 1:
            return 0
        (segment, size), *_ = self.files
        new = size - segment.durable
        return new if new <= most and segment.named else 0

    def appended(self) -> SegmentBytes:
        """The bytes that are new."""
        (segment, size), *_ = self.files
        return SegmentBytes(segment, segment.durable, size - segment.durable)

    def note(self) -> None:
        """Have the partition know what is durable."""
        if self.ahead:
            self.partition.flushed_ahead(self.end, *self.files[0])
        else:
            self.partition.flushed(self.end, self.files)


class Flusher:
    """Flushes partitions that were marked, and calls `on_flushed(work)` in the loop's thread.

    `ahead` is the write-ahead log. `do` does what is slow, as `Worker.do`.
    """

    def __init__(
        self,
        loop: Any,
        now_ns: Callable[[], int],
        ahead: WriteAheadLog,
        do: Do,
        on_flushed: Callable[[list[FlushWork]], None],
    ) -> None:
        self._loop = loop
        self._now_ns = now_ns
        self._ahead = ahead
        self._do = do
        self._on_flushed = on_flushed
        self._count = self._partitions = self._last_ns = self._worst_ns = 0
        self._dirty: dict[Partition, None] = {}
        self._flushing: set[Partition] = set()
        self.frozen: set[Partition] = set()
        self._free, self._knobs = THREADS, knobs()
        self._scheduled = False  # to `_start`
        self._alone = False  # one append is what it is scheduled for
        self._writing = False  # a thread writes ahead
        self._settling = False  # the worker flushes what the log stands in for
        self._queue: queue.SimpleQueue[list[FlushWork] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._flush_forever, name="flusher", daemon=True) for _ in range(THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def mark(self, partition: Partition) -> None:
        """Something was appended; it is flushed after all that the loop reads in this turn."""
        self._dirty[partition] = None
        if self._scheduled:
            self._alone = False
        elif self._free and not self._writing:
            self._scheduled = self._alone = True
            self._loop.call_soon(self._start)

    def freeze(self, partition: Partition, frozen: bool) -> None:
        """Hold back the flushes of a partition, as a slow disk would, or let them go on."""
        if frozen:
            self.frozen.add(partition)
        else:
            self.frozen.discard(partition)
            self.mark(partition)

    def forget(self, partition: Partition) -> None:
        """A partition was deleted."""
        self._dirty.pop(partition, None)
        self.frozen.discard(partition)

    def close(self) -> None:
        """Let the threads finish what they have and wait for them."""
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def statistics(self) -> FlushStatistics:
        last_ms, worst_ms = (self._last_ns / 1e6, self._worst_ns / 1e6) if self._count else (None, None)
        return FlushStatistics(self._count, self._partitions, last_ms, worst_ms)

    def _start(self) -> None:
        """Hand what is dirty to the free threads: what is small to one of them, the rest to the others."""
        alone, self._scheduled, self._alone = self._alone and self._is_quick, False, False
        if not self._free or self._writing:
            return
        small, large = _parted(self._take(), self._knobs)
        if small:
            self._writing = True
            if alone:
                self._free -= 1
                self._flushed(*self._flush(small))
            else:
                self._begin(small)
        share = -(-len(large) // max(1, self._free))
        for first in range(0, len(large), share or 1):
            self._begin(large[first : first + share])

    @property
    def _is_quick(self) -> bool:
        """Whether a frame by the loop's thread is expected to be over at once: nothing else is to do, and the last was."""
        ready = self._ahead.is_open and not self._ahead.unsettled
        return ready and self._free == THREADS and self._last_ns < ALONE_NS

    def _begin(self, work: list[FlushWork]) -> None:
        self._free -= 1
        self._queue.put(work)

    def _take(self) -> list[FlushWork]:
        if not self._flushing and not self.frozen:
            taken, self._dirty = self._dirty, {}
        else:
            taken = {p: None for p in self._dirty if p not in self._flushing and p not in self.frozen}
            self._dirty = {p: None for p in self._dirty if p not in taken}
        self._flushing.update(taken)
        return [FlushWork(p, p.end, p.unflushed()) for p in taken]

    def _flush_forever(self) -> None:
        while (work := self._queue.get()) is not None:
            self._loop.call_soon_threadsafe(self._flushed, *self._flush(work))

    def _flush(self, work: list[FlushWork]) -> tuple[bool, list[FlushWork], int]:
        began_ns, ahead = self._now_ns(), work[0].ahead
        if ahead:
            try:
                self._ahead.write([one.appended() for one in work])
            except OSError:  # there is no room for a log: into its own files
                work = [one._replace(ahead=False) for one in work]
        if not work[0].ahead:
            for one in work:
                flush_files(one.files)
        return ahead, work, self._now_ns() - began_ns

    def _flushed(self, ahead: bool, work: list[FlushWork], took_ns: int) -> None:
        self._free += 1
        self._count += 1
        self._partitions += len(work)
        self._last_ns, self._worst_ns = took_ns, max(took_ns, self._worst_ns)
        self._flushing.difference_update(w.partition for w in work)
        if ahead:
            self._writing = False
        if self._dirty:
            self._start()  # the disk first, then the answers
        self._on_flushed(work)
        self._settle()

    def _settle(self) -> None:
        """Have the files flushed that the full half of the log stands in for."""
        if self._settling or not self._ahead.unsettled:
            return
        self._settling = True

        def settled(error: Exception | None) -> None:
            self._settling = False
            self._settle()  # the other half may be full by now

        self._do(self._ahead.settle, settled)


def _parted(work: list[FlushWork], knobs: Knobs) -> tuple[list[FlushWork], list[FlushWork]]:
    """What is written ahead, and what is flushed in its own files."""
    small: list[FlushWork] = []
    large: list[FlushWork] = []
    room, small_most = knobs.ahead_most, knobs.ahead_small
    for one in work:
        new = one.small(small_most)
        if 0 < new <= room:
            room -= new
            small.append(one._replace(ahead=True))
        else:
            large.append(one)
    return small, large


class HighWatermarks:
    """Raises high watermarks, and asks the operations that wait in `produces` and `fetches`; `news()` hears of it."""

    def __init__(self, ready: Ready, produces: Purgatory, fetches: Purgatory, news: Callable[[], object]) -> None:
        self._ready = ready
        self._produces = produces
        self._fetches = fetches
        self._news = news

    def flushed(self, work: list[FlushWork], raise_high: Callable[[Partition], None]) -> None:
        """The flusher has made this durable; `raise_high` raises a partition's high watermark as far as it may be."""
        for one in work:
            if not one.partition.deleted:
                one.note()
                raise_high(one.partition)
        self.changed([w.partition for w in work])

    def changed(self, partitions: Iterable[Partition]) -> None:
        """Something about these partitions may answer who waits: a high watermark, an epoch, a deletion."""
        for partition in partitions:
            self._produces.check_and_complete(partition)
        self._ready.send()
        for partition in partitions:
            self._fetches.check_and_complete(partition)
        self._ready.send()
        self._news()
