"""The scrub: every segment is read again, once after a start and then every week, before a reader meets its damage.

Rule 1: the worker's thread reads, a portion at a time, and rests after each: RATE bytes a second at most, and a fifth of a
    processor. Nothing waits for it, and a stop leaves it where it is.
Rule 2: what it finds is looked at in the loop's thread: a segment that is the log's no more, or a log that was opened anew,
    says nothing.
Rule 3: damage is an error in the log with the file, the bytes and the offsets that are lost. Nothing is mended or removed;
    from then on who asks for those offsets gets an error, and the rest is read as ever (log/segment.py, log/scrubbing.py).
Rule 4: a segment that is written to is read as far as it is durable.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.log.partition import Partition
from waterclock.broker.log.scrubbing import SegmentScrub
from waterclock.broker.log.segment import Segment
from waterclock.broker.statistics import ScrubStatistics
from waterclock.errors import TimerClosed

if TYPE_CHECKING:
    from waterclock.broker.worker import Worker
    from waterclock.clock import WallClock
    from waterclock.timer import AsyncTimer

PORTION: Final = 4 << 20  # bytes at a time
RATE: Final = 32 << 20  # bytes a second
REST: Final = 4  # times as long as a portion took
EVERY_S: Final = 7 * 24 * 3600.0  # from the beginning of a pass to the next one's
SHOWN: Final = 10  # places of one file that are said
log = logging.getLogger("waterclock.broker")


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
    """Whether a segment is still one of the log's (rule 2)."""
    return not home.deleted and segment in home.segments


def _end(segment: Segment, home: Partition) -> int:
    """The offset after the durable part of a segment."""
    if segment is home.active:
        return home.durable
    return home.segments[home.segments.index(segment) + 1].base


def _nothing(value: object) -> None:
    """Its steps have no values."""
