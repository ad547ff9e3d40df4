"""The loop: from a source's changes to Kafka's transactions, and again from the stored position after a break.

Rule 1: a source transaction is never torn over two Kafka transactions, unless it has more than LARGEST changes: Kafka
        ends a transaction that stays open for long. A larger one goes in parts of LARGEST, and each part's position
        says how many of its changes are there: they are not sent again.
Rule 2: many small source transactions go in one Kafka transaction, until it has MOST changes, is LONGEST_MS old, or
        the source has nothing more: what is written is never held back for the sake of a fuller transaction.
Rule 3: after a break everything is made anew: fence, position, source. What was sent and not committed is gone, and
        comes again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from waterclock.cdc.position import Position
from waterclock.cdc.produce import Publisher
from waterclock.cdc.source import Mark, Source
from waterclock.cdc.statistics import CaptureStatistics
from waterclock.changes.maxwell_message import MaxwellMessage
from waterclock.clock import Clock
from waterclock.errors import ConnectionLost, EnvironmentMissing, WaterclockError

LARGEST = 1_000_000
MOST = 20_000
LONGEST_MS = 200
POSITION_EVERY_MS = 1000  # where nobody asked for what was written, Kafka hears only so often how far that was
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 30.0, 30.0)


Report = Callable[[CaptureStatistics], object]


class Capture:
    """Copies a source's changes to Kafka.

    `publisher` and `source` make the two ends; they are called anew after a break. `start` is where to begin where
    Kafka holds no position yet: a position, or what asks the source for one. What was asked for is stored at once: the
    next time the answer (now, the oldest binlog) would be another one, and what lies between would be missed. `report`
    hears of every commit, `lost` of every break that is survived.
    """

    def __init__(
        self,
        publisher: Callable[[], Publisher],
        source: Callable[[Position], Source],
        clock: Clock,
        *,
        start: Position | Callable[[], Position],
        report: Report = lambda statistics: None,
        lost: Callable[[WaterclockError], object] = lambda error: None,
    ) -> None:
        self._publisher, self._source, self._clock, self._start = publisher, source, clock, start
        self._report, self._lost, self._statistics = report, lost, CaptureStatistics()
        self._began = False  # whether both ends were there once: one that is gone after that may come back

    def statistics(self) -> CaptureStatistics:
        return self._statistics

    def run(self, end: str | None = None) -> CaptureStatistics:
        """Until everything up to the place `end` is in Kafka; None: for ever. ConnectionLost after ten breaks in a row."""
        pauses_s = list(_PAUSES_S)
        while True:
            before = self._statistics.commits
            try:
                self._pass(end)
                return self._statistics
            except (ConnectionLost, EnvironmentMissing) as error:
                if not self._began:
                    raise
                pauses_s = list(_PAUSES_S) if self._statistics.commits > before else pauses_s
                if not pauses_s:
                    raise ConnectionLost(str(error)) from None
                self._lost(error)
            self._clock.sleep_s(pauses_s.pop(0))
            self._statistics = replace(self._statistics, breaks=self._statistics.breaks + 1)

    def _pass(self, end: str | None) -> None:
        publisher = self._publisher()
        try:
            position = publisher.stored or (self._start if isinstance(self._start, Position) else self._start())
            source = self._source(position)
            self._began = True
            try:
                if publisher.stored is None and not isinstance(self._start, Position):
                    publisher.commit(position)
                _Pass(publisher, source, self._clock, self._count).until(end)
            finally:
                source.close()
        finally:
            publisher.close()

    def _count(self, changes: int, transactions: int, place: str) -> None:
        now = self._statistics
        self._statistics = CaptureStatistics(
            now.changes + changes, now.transactions + transactions, now.commits + 1, now.breaks, place
        )
        self._report(self._statistics)


class _Pass:
    """From one position on, until the end or a break."""

    def __init__(
        self, publisher: Publisher, source: Source, clock: Clock, count: Callable[[int, int, str], None]
    ) -> None:
        self._publisher, self._source, self._clock, self._count = publisher, source, clock, count
        self._inside = False  # whether a part of a source transaction was sent, and not yet its end
        self._ended = 0  # source transactions since the last commit
        self._since_ns = clock.monotonic_ns()  # when the first thing came that is not committed yet

    def until(self, end: str | None) -> None:
        if end is not None and self._source.reached(end):
            return
        for item in self._source.items():
            if item is Mark.QUIET:
                self._quiet()
            elif item is not Mark.COMMITTED:
                self._change(item)
            elif self._committed(end):
                return

    def _change(self, change: MaxwellMessage) -> None:
        if not self._publisher.in_transaction and not self._ended:
            self._since_ns = self._clock.monotonic_ns()
        elif self._inside and change.xoffset % LARGEST == 0:
            self._commit(self._source.position()._replace(rows=change.xoffset, inside=change.gtid))
        self._publisher.send(change)
        self._inside = True

    def _committed(self, end: str | None) -> bool:
        """Whether this was the last one."""
        if not self._publisher.in_transaction and not self._ended:
            self._since_ns = self._clock.monotonic_ns()
        self._inside, self._ended = False, self._ended + 1
        last = end is not None and self._source.reached(end)
        if last or self._publisher.in_transaction >= MOST or self._age_ms() >= LONGEST_MS:
            self._commit(self._source.position())
        return last

    def _quiet(self) -> None:
        idle = not self._publisher.in_transaction and self._age_ms() < POSITION_EVERY_MS
        if not self._inside and self._ended and not idle:
            self._commit(self._source.position())

    def _age_ms(self) -> int:
        return (self._clock.monotonic_ns() - self._since_ns) // 1_000_000

    def _commit(self, position: Position) -> None:
        changes, self._ended, transactions = self._publisher.in_transaction, 0, self._ended
        self._publisher.commit(position)
        self._source.stored(position)
        self._count(changes, transactions, position.place)
