"""What becomes of old records: retention, compaction, deletion on request.

    every, while there may be work     is done
    log.retention.check.interval.ms    segments go that are too old, too many or before the start (log/removal.py)
    log.cleaner.backoff.ms             the partition with most to compact is compacted, one at a time (log/compaction.py)

Rule 1: both sleep while nothing can be due, and are woken by `news` (rhythm.py).
Rule 2: what takes long is done by the upkeep's thread (worker.py); the loop's thread alone swaps segments.
Rule 3: a partition whose compaction failed halfway is left alone until the next start, which finishes it. One whose log is
    damaged is not compacted until then: it would be tried, and said, again and again before all others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.errors import LogDamaged
from waterclock.broker.log import compaction, snapshot
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.removal import due_in_ms, retire
from waterclock.broker.log.segment import Segment
from waterclock.broker.log.swap import abandon
from waterclock.broker.rhythm import Rhythm

if TYPE_CHECKING:
    from waterclock.broker.settings import Settings
    from waterclock.broker.topics import Topics
    from waterclock.broker.worker import Worker
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
        now_ms, moved, dues = self._wall_ms(), [], []
        for partition in self._topics.partitions():
            try:
                gone = retire(partition, now_ms)
                dues.append(due_in_ms(partition, now_ms))
            except (OSError, LogDamaged) as error:
                log.error("retention of %s-%d failed: %s", partition.topic, partition.number, error)
                dues.append(0)
                continue
            if gone:
                moved.append(partition)
                self.retired += len(gone)
                self.worker.do(partial(_remove, partition.folder, gone), _log_error_of("removing old files"))
        if moved:
            self._changed(moved)
        due_ms = min((due for due in dues if due is not None), default=None)
        return None if due_ms is None else min(due_ms / 1000, LONGEST_S)

    # Deletion on request

    def begin_at(self, partition: Partition, offset: int, then: Callable[[bool], Any]) -> None:
        """Hide what lies before `offset`; `then(True)` once that is durable, `then(False)` if the disk refuses it."""
        partition.memo.start = moved = max(partition.start, offset)

        def kept(error: Exception | None) -> None:
            if error is not None and partition.start == moved:  # taken back, but not to where no file is any more
                partition.memo.start = max(partition.memo.saved, partition.segments[0].base)
            then(error is None)

        self.worker.do(partition.memo.save, kept)
        self._changed([partition])

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


def _remove(folder: str, segments: list[Segment]) -> None:
    with suppress(FileNotFoundError):  # the topic was deleted meanwhile
        snapshot.flush_last(folder)  # what they said of producers
    for segment in segments:
        segment.delete()


def _log_error_of(deed: str) -> Callable[[Exception | None], None]:
    def then(error: Exception | None) -> None:
        if error is not None:
            log.error("%s failed: %s", deed, error)

    return then
