"""What the broker does by itself with its logs: retention, compaction, deletion on request, and the scrub.

    every, while there may be work     is done
    log.retention.check.interval.ms    segments go that are too old, too many or before the start (log/removal.py)
    log.cleaner.backoff.ms             the partition with most to compact is compacted, one at a time (log/compaction.py)
    a week, and once after a start     the scrub reads every segment again, before a reader meets its damage

Rule 1: the first two sleep while nothing can be due, and are woken by `news` (rhythm.py).
Rule 2: what takes long is done by the upkeep's thread (worker.py); the loop's thread alone swaps segments.
Rule 3: a partition whose compaction failed halfway is left alone until the next start, which finishes it. One whose log is
    damaged is not compacted until then: it would be tried, and said, again and again before all others.
Rule 4: for the scrub the worker's thread reads, a portion at a time, and rests after each: RATE bytes a second at most, and
    a fifth of a processor. Nothing waits for it, and a stop leaves it where it is.
Rule 5: what it finds is looked at in the loop's thread: a segment that is the log's no more, or a log that was opened anew,
    says nothing.
Rule 6: damage is an error in the log with the file, the bytes and the offsets that are lost. Nothing is mended or removed;
    from then on who asks for those offsets gets an error, and the rest is read as ever (log/segment.py, log/scrubbing.py).
Rule 7: a segment that is written to is read as far as it is durable.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.errors import LogDamaged
from waterclock.broker.log import compaction
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.removal import due_in_ms, first_kept, remove
from waterclock.broker.log.scrubbing import SegmentScrub
from waterclock.broker.log.segment import Segment
from waterclock.broker.log.swap import abandon
from waterclock.broker.rhythm import Rhythm
from waterclock.broker.statistics import ScrubStatistics
from waterclock.errors import TimerClosed

if TYPE_CHECKING:
    from waterclock.broker.folder.topics import Topics
    from waterclock.broker.settings import Settings
    from waterclock.broker.worker import OnEnd, Worker
    from waterclock.clock import WallClock
    from waterclock.timer import AsyncTimer

LONGEST_S: Final = 3600.0  # the date may be set, and machines sleep: neither moves the timer's clock
log = logging.getLogger("waterclock.broker")


class Upkeep:
    """`changed(partitions)` is called when a partition's start has moved, `stands(segments)` before segments are rewritten:
    from then on nothing puts back what was in them."""

    def __init__(
        self,
        topics: Topics,
        settings: Settings,
        worker: Worker,
        wall_ms: Callable[[], int],
        changed: Callable[[list[Partition]], Any],
        stands: Callable[[list[Segment]], Any],
    ) -> None:
        self._topics = topics
        self._settings = settings
        self.worker = worker
        self._wall_ms = wall_ms
        self._changed = changed
        self._stands = stands
        self.compacting: Partition | None = None
        self.compactions = self.retired = 0
        self._beginning: set[Partition] = set()
        """Whose start retention moves on just now."""
        self._damaged: set[Partition] = set()
        self._rhythms: list[Rhythm] = []

    def begin(self, timer: AsyncTimer) -> None:
        """From now on, by the timer."""
        self._rhythms = [
            Rhythm(timer, self._settings["log.retention.check.interval.ms"] / 1000, self.retain),
            Rhythm(timer, self._settings["log.cleaner.backoff.ms"] / 1000, self.compact),
        ]
        self.news()

    def news(self) -> None:
        """Something has been written, a start or a high watermark has moved, or settings are others now."""
        for rhythm in self._rhythms:
            rhythm.wake()

    # Retention

    def retain(self) -> float | None:
        """Let go of what retention says; in how many seconds there may be more, or None if nothing grows too old."""
        now_ms, dues = self._wall_ms(), []
        for partition in self._topics.partitions():
            try:
                start = first_kept(partition, now_ms)
                dues.append(due_in_ms(partition, now_ms))
            except (OSError, LogDamaged) as error:
                log.error("retention of %s-%d failed: %s", partition.topic, partition.number, error)
                dues.append(0)
                continue
            if partition in self._beginning:  # on a slow disk the next look comes before its start is durable
                continue
            if start > partition.start:
                self._beginning.add(partition)
                self.begin_at(partition, start, partial(self._retire, partition))
            else:
                self._retire(partition)
        due_ms = min((due for due in dues if due is not None), default=None)
        return None if due_ms is None else min(due_ms / 1000, LONGEST_S)

    def _retire(self, partition: Partition, error: Exception | None = None) -> None:
        self._beginning.discard(partition)
        if partition.deleted:
            return
        if error is not None:
            log.error("retention of %s-%d failed: %s", partition.topic, partition.number, error)
        elif gone := partition.trim():
            self.retired += len(gone)
            self.worker.do(partial(remove, partition, gone), _log_error_of("removing old files"))

    # Deletion on request

    def begin_at(self, partition: Partition, offset: int, then: OnEnd) -> None:
        """Hide what lies before `offset` once that is durable; `then(None)` after it, `then(error)` if the disk refuses."""

        def kept(error: Exception | None) -> None:
            if error is None and partition.start < offset:
                partition.memo.start = offset
                self._changed([partition])
            then(error)

        self.worker.do(partial(partition.memo.save, offset), kept)

    # Compaction

    def compact(self) -> float | None:
        """Begin the compaction that has most to do, unless one is at work; None if no log has anything to compact."""
        if self.compacting is None:
            self._begin_compaction()
        some = any(_compactable(partition) for partition in self._topics.partitions())
        return 0.0 if some else None

    def _begin_compaction(self) -> None:
        partition, plan = max(self._plans(), key=lambda found: found[1].share, default=(None, None))
        if partition is None or plan is None:
            return
        self.compacting, partition.upkept = partition, True
        work = compaction.Compaction(plan)

        def steps() -> Iterator[compaction.Swap | None]:
            self._stands(plan.segments)
            yield from work.steps()

        self.worker.do_in_steps(
            steps(),
            lambda swapped: compaction.adopt(partition, swapped),
            lambda error: self._compacted(partition, work, error),
        )

    def _plans(self) -> Iterator[tuple[Partition, compaction.CompactionPlan]]:
        now_ms = self._wall_ms()
        for partition in self._topics.partitions():
            free = not partition.upkept and partition not in self._damaged
            if free and _compactable(partition):
                try:
                    plan = compaction.plan(partition, now_ms)
                except (OSError, LogDamaged) as error:
                    log.error("%s-%d cannot be compacted: %s", partition.topic, partition.number, error)
                    self._leave_damaged(partition, error)
                    continue
                if plan is not None:
                    yield partition, plan

    def _compacted(self, partition: Partition, work: compaction.Compaction, error: Exception | None) -> None:
        self.compacting = None
        if partition.deleted:
            return
        if error is None:
            self.compactions += work.done
            partition.upkept = False
            if work.done:
                partition.memo.cleaned = work.covered
                if partition.aborted:
                    partition.take_snapshot()  # the last one vouches for files that are gone
                self.worker.do(partition.memo.save, _log_error_of("keeping a memo"))
            return
        log.error("the compaction of %s-%d failed: %s", partition.topic, partition.number, error)
        self._leave_damaged(partition, error)
        partition.upkept = not abandon(partition.folder)
        if not partition.upkept:
            work.leave()

    def _leave_damaged(self, partition: Partition, error: Exception) -> None:
        if isinstance(error, LogDamaged):
            self._damaged = {known for known in self._damaged if not known.deleted} | {partition}


def _compactable(partition: Partition) -> bool:
    """Whether its policy is to be compacted, and a segment is closed."""
    return partition.settings.compact and len(partition.segments) > 1


def _log_error_of(deed: str) -> Callable[[Exception | None], None]:
    def then(error: Exception | None) -> None:
        if error is not None:
            log.error("%s failed: %s", deed, error)

    return then


PORTION: Final = 4 << 20  # bytes at a time
RATE: Final = 32 << 20  # bytes a second
REST: Final = 4  # times as long as a portion took
EVERY_S: Final = 7 * 24 * 3600.0  # from the beginning of a pass to the next one's
SHOWN: Final = 10  # places of one file that are said


class Scrub:
    """Reads the segments of `partitions()` again, with `worker`."""

    def __init__(self, partitions: Callable[[], Iterable[Partition]], worker: Worker, clock: WallClock) -> None:
        self._partitions = partitions
        self._worker = worker
        self._clock = clock
        self._timer: AsyncTimer | None = None
        self._ahead: deque[Partition] = deque()
        self._segments: deque[Segment] = deque()  # of the partition at work
        self._partition: Partition | None = None
        self._at_work: SegmentScrub[Segment] | None = None
        self._bytes = self._passes = self._began_ns = 0
        self._damaged: dict[Segment, Partition] = {}
        self._idle = True

    def begin(self, timer: AsyncTimer, delay_s: float) -> None:
        """From now on, by the timer, the first time after a while."""
        self._timer = timer
        self._later(delay_s, self._begin_pass)

    def close(self) -> None:
        """Begin nothing more; before the worker is closed."""
        self._timer = None

    def statistics(self) -> ScrubStatistics:
        """What was read, what is ahead and what is damaged."""
        here = int(self._at_work is not None) + len(self._segments)
        left = sum(len(partition.segments) for partition in self._ahead) + here
        places = sum(len(segment.damages) for segment, home in self._damaged.items() if _is_of(segment, home))
        return ScrubStatistics(self._bytes, left if self._passes else None, places)

    def _later(self, delay_s: float, deed: Callable[[], Any]) -> None:
        if self._timer is not None:
            with suppress(TimerClosed):
                self._timer.call_later(delay_s, deed)

    def _begin_pass(self) -> None:
        self._passes += 1
        self._later(EVERY_S, self._begin_pass)
        self._damaged = {segment: home for segment, home in self._damaged.items() if _is_of(segment, home)}
        if not (self._ahead or self._segments or self._at_work):  # one that takes longer than that goes on
            self._ahead.extend(self._partitions())
            if self._idle:  # otherwise it goes on when it has rested
                self._go_on()

    def _go_on(self) -> None:
        """The next portion; nothing more if the pass is over."""
        self._idle = self._timer is None or not (self._at_work or self._next())
        if self._idle:
            return
        assert self._at_work is not None
        self._began_ns, before = self._clock.monotonic_ns(), self._at_work.at
        self._worker.do_in_steps(self._at_work.steps(PORTION), _nothing, lambda error: self._read(before, error))

    def _next(self) -> bool:
        """Take the next segment; False if there is none."""
        while self._segments or self._ahead:
            if not self._segments:
                self._partition = self._ahead.popleft()
                self._segments.extend(self._partition.segments)
                continue  # it may have none: it was cut meanwhile, and another has its place
            segment, home = self._segments.popleft(), self._partition
            if home is not None and segment.durable and _is_of(segment, home):
                self._at_work = SegmentScrub(segment, segment.durable, _end(segment, home))
                return True
        return False

    def _read(self, before: int, error: Exception | None) -> None:
        work = self._at_work
        assert work is not None
        read = work.at - before
        self._bytes += read
        if error is not None:
            log.error("%s.log cannot be checked: %s", work.segment.path, error)
        if error is not None or work.done:
            self._at_work = None
        if error is None and work.done:
            self._found(work)
        took_s = (self._clock.monotonic_ns() - self._began_ns) / 1e9
        self._later(max(read / RATE, REST * took_s), self._go_on)

    def _found(self, work: SegmentScrub[Segment]) -> None:
        """A segment was read to its end."""
        segment, home = work.segment, self._partition
        self._damaged.pop(segment, None)
        if home is None or not _is_of(segment, home):
            return
        segment.know(work.damages, work.latest, grows=segment is home.active)
        if work.damages:
            self._damaged[segment] = home
        for damage in work.damages[:SHOWN]:
            log.error("%s-%d: %s", home.topic, home.number, segment.lost(damage))
        if len(work.damages) > SHOWN:
            log.error("%s.log is damaged in %d places more", segment.path, len(work.damages) - SHOWN)


def _is_of(segment: Segment, home: Partition) -> bool:
    """Whether a segment is still one of the log's (rule 5)."""
    return not home.deleted and segment in home.segments


def _end(segment: Segment, home: Partition) -> int:
    """The offset after the durable part of a segment."""
    if segment is home.active:
        return home.durable
    return home.segments[home.segments.index(segment) + 1].base


def _nothing(value: object) -> None:
    """Its steps have no values."""
