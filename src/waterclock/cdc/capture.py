"""The loop: from a source's changes to Kafka's transactions, and again from the stored position after a break.

Rule 1: a source transaction is never torn over two Kafka transactions, unless it has more than LARGEST changes: Kafka
        ends a transaction that stays open for long. A larger one goes in parts of LARGEST, and each part's position
        says how many of its records are there: they are not sent again. A chunk of older rows is smaller, and whole.
Rule 2: many small source transactions go in one Kafka transaction, until it has MOST changes, is LONGEST_MS old, or
        the source has nothing more: what is written is never held back for the sake of a fuller transaction.
Rule 3: if the source cannot be read any further, what it committed before that is delivered first; if the beginning
        of the bad transaction was sent with it, that is thrown away and the rest is read once more.
Rule 4: after a break everything is made anew: fence, position, source. What was sent and not committed is gone, and
        comes again.
Rule 5: who is fenced waits and looks once more whether another one captures under the name: that one has a new position in
        Kafka by then. Else a transaction was open for too long, and this capture goes on as after a break. So does who is
        refused by the source: it may be for a position that another one has gone on from.
Rule 6: a signal is heard between two items of the source: the source transaction in hand is delivered whole, with those
        before it. While nothing is in hand, it ends the capture at once.
Rule 7: what a start agreed to, for which tables the position holds or that it stands elsewhere, is stored before anything
        is read: the next start is to know of it.
Rule 8: while no end is set, tables come again when somebody asks (requests.py): answer and position are one transaction,
        and the source is made anew of that position.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace

from waterclock.cdc.part import OlderPart
from waterclock.cdc.position import Position
from waterclock.cdc.produce import NameLost, Publisher
from waterclock.cdc.requests import Requests
from waterclock.cdc.schemas import ColumnsAltered
from waterclock.cdc.snapshot import asked, left_of, renew
from waterclock.cdc.source import DeadLetter, Recaller, Record, Source, SourceMark, TablesRenewed
from waterclock.cdc.statistics import CaptureStatistics
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.changes.table_schema import TableSchema
from waterclock.clock import Clock
from waterclock.errors import ConnectionLost, EnvironmentMissing, Unreadable, UsageError, WaterclockError
from waterclock.kafka.patience import Backoff
from waterclock.letters import LETTERS, LetterStatistics, newest, shortened
from waterclock.signals import StopSignal
from waterclock.wording import counted

log = logging.getLogger("waterclock.cdc")
LARGEST = 1_000_000
MOST = 20_000
LONGEST_MS = 200
POSITION_EVERY_MS = 1000  # if nobody wants what was written, Kafka hears only so often how far that was
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 30.0, 30.0)
_LATE = "A transaction was open for longer than Kafka waits, or another process captures under the same name."

Report = Callable[[CaptureStatistics], object]


class Capture:
    """Copies a source's changes to Kafka.

    `publisher` and `source` make the two ends; they are called anew after a break. `start` is where to begin if
    Kafka holds no position yet: a position, or what gets one from the source. That one is stored at once: the
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
        self._publisher = publisher
        self._source = source
        self._clock = clock
        self._start = start
        self._report = report
        self._lost = lost
        self._statistics = CaptureStatistics()
        # rule 3: the last whole transaction's end, if the one that cannot be read was begun in Kafka behind it: all up to
        # there is read and committed once more, and then the error is raised
        self._undelivered: str | None = None
        self._fenced: Publisher | None = None  # rule 5: whose transaction Kafka took no more
        self._began = False  # whether both ends were there once: one that is gone after that may come back

    def statistics(self) -> CaptureStatistics:
        return self._statistics

    def run(self, end: str | None = None) -> CaptureStatistics:
        """Until everything up to the place `end` is in Kafka; None: until a signal comes. ConnectionLost after ten breaks
        in a row; KeyboardInterrupt for a signal before the end, or before both ends were there."""
        try:
            return self._run(end)
        except KeyboardInterrupt:
            if end is not None or not self._began:
                raise
            return self._statistics

    def _run(self, end: str | None) -> CaptureStatistics:
        backoff = self._backoff = Backoff(_PAUSES_S, self._clock)
        refusal = None
        while True:
            try:
                if not self._pass(end):
                    continue
            except (ConnectionLost, EnvironmentMissing, NameLost) as raised:
                if not self._began:
                    raise
                error = ConnectionLost(_LATE) if isinstance(raised, NameLost) else raised
                if backoff.attempts == len(_PAUSES_S):
                    raise ConnectionLost(str(error)) from None
                self._lost(error)
            except Unreadable as error:
                if self._undelivered is None:
                    raise
                refusal, end, self._undelivered = error, self._undelivered, None
                continue
            else:
                if refusal is not None:
                    raise refusal
                return self._statistics
            backoff.sleep()
            self._statistics = replace(self._statistics, breaks=self._statistics.breaks + 1)

    def _pass(self, end: str | None) -> bool:
        """Whether that is the end; if not, the source is to be made anew (rule 8)."""
        if self._fenced is not None:
            self._fenced.refuse_if_overtaken()
            self._fenced = None
        publisher = self._publisher()
        try:
            position = publisher.stored or (self._start if isinstance(self._start, Position) else self._start())
            source = self._source(position)
            self._began = True
            if isinstance(source, Recaller):
                source.recall(publisher.schema_at)
            try:
                begun = source.position()  # rule 7
                position = position._replace(held=begun.held) if begun.place == position.place else begun
                asked = publisher.stored is not None or not isinstance(self._start, Position)
                if asked and position != publisher.stored:
                    publisher.commit(position)
                    self._backoff.succeeded()
                    source.stored(position)
                return self._through(publisher, source, position.rows, end)
            finally:
                source.close()
        except NameLost:
            self._fenced = publisher
            raise
        except UsageError as error:  # rule 5
            with suppress(ConnectionLost, EnvironmentMissing):
                publisher.refuse_if_overtaken()
            raise error from None
        finally:
            publisher.close()

    def _through(self, publisher: Publisher, source: Source, rows: int, end: str | None) -> bool:
        """What the source has, from where both ends are; `rows` and the answer as in `_Pass`."""
        with closing(Requests(publisher, end is None)) as requests:
            running = _Pass(publisher, source, self._clock, self._count, rows, requests)
            try:
                with StopSignal(second_raises=True) as stop:
                    return running.until(end, stop)
            except Unreadable:
                self._undelivered = running.place_before()
                raise

    def _count(self, more: CaptureStatistics) -> None:
        self._backoff.succeeded()
        now = self._statistics
        self._statistics = replace(
            more,
            changes=now.changes + more.changes,
            transactions=now.transactions + more.transactions,
            commits=now.commits + 1,
            breaks=now.breaks,
            dead_letters=now.dead_letters + more.dead_letters,
            older_rows=now.older_rows + more.older_rows,
            letters=newest(more.letters, now.letters),
        )
        self._report(self._statistics)


class _Pass:
    """From one position on, until the end or a break; `rows` records of the first transaction are in Kafka already."""

    def __init__(
        self,
        publisher: Publisher,
        source: Source,
        clock: Clock,
        count: Callable[[CaptureStatistics], None],
        rows: int = 0,
        requests: Requests | None = None,
    ) -> None:
        self._publisher, self._requests = publisher, requests
        self._source = source
        self._clock = clock
        self._count = count
        self._is_renewed = False  # whether the source is to be made anew behind the transaction in hand
        self._inside = False  # whether a part of a source transaction was sent, and not yet its end
        self._rows = rows  # records of that transaction that were sent, in this start or before
        self._moved, self._ended = False, 0  # since the last commit: whether the place did; source transactions
        self._letters: list[DeadLetter] = []  # of the records that are not committed yet
        self._older = 0  # rows of them
        self._since_ns = clock.monotonic_ns()  # when the first thing came that is not committed yet

    def until(self, end: str | None, stop: StopSignal) -> bool:
        """Whether the end was reached; if not, the source is to be made anew (rule 8). KeyboardInterrupt for a signal
        (rule 6)."""
        if end is not None and self._source.reached(end):
            return True
        for item in self._source.items():
            if isinstance(item, MaxwellMessage):
                self._record(item)
                continue  # rule 6
            if not isinstance(item, SourceMark):
                self._take(item)
            elif item is not SourceMark.QUIET:
                if self._passed(end, item is SourceMark.COMMITTED):
                    return True
            elif self._publisher.uncommitted or self._age_ms() >= POSITION_EVERY_MS:  # a position alone may wait
                self._deliver()
            if stop and (item is SourceMark.QUIET or not self._inside):
                self._deliver()
                raise KeyboardInterrupt
            if isinstance(item, SourceMark) and self._comes_again(item):
                return False
        return True

    def _take(self, item: DeadLetter | OlderPart | TableSchema | ColumnsAltered | TablesRenewed) -> None:
        if isinstance(item, DeadLetter):
            self._record(item)
            self._letters.append(item)
        elif isinstance(item, OlderPart):
            self._part(item)
        elif isinstance(item, TablesRenewed):
            renew(self._source, item)
            self._is_renewed = True
        else:
            self._publisher.learn(item)

    def _deliver(self) -> None:
        """Commit what came since the last time, if no transaction is in hand."""
        if self._moved and not self._inside:
            self._commit(self._source.position())

    def _comes_again(self, item: SourceMark) -> bool:
        """Rule 8, looked at behind a commit or while nothing comes: whether tables come again, asked for or told of by the
        source itself."""
        if self._is_renewed and item is SourceMark.COMMITTED:
            return True
        may = item is SourceMark.QUIET or not self._moved
        if self._requests is None or not may or self._inside or self._rows or self._publisher.uncommitted:
            return False
        answers = [(key, asked(self._source, tables)) for key, tables in self._requests.pending().items()]
        for key, answer in answers:
            if answer is not None:
                self._publisher.tell(*self._requests.answer(key, answer))
        if any(answer is not None for _, answer in answers):
            self._commit(self._source.position())
        return any(answer is not None and answer.tables for _, answer in answers)

    def place_before(self) -> str | None:
        """Rule 3, once the source has refused to go on: deliver what can be, and say up to where the rest is to be read.

        None if everything that was committed before is delivered.
        """
        if not self._moved:
            return None
        if self._inside:
            return self._source.position().place
        self._commit(self._source.position())
        return None

    def _record(self, record: Record) -> None:
        if not self._publisher.uncommitted and not self._moved:
            self._since_ns = self._clock.monotonic_ns()
        elif self._inside and self._rows % LARGEST == 0 and record.gtid:
            self._commit(self._source.position()._replace(rows=self._rows, inside=record.gtid))
        self._publisher.send(record)
        self._inside = True
        self._rows += 1

    def _part(self, part: OlderPart) -> None:
        """A transaction that is not torn: it has far less than LARGEST rows."""
        if not self._publisher.uncommitted and not self._moved:
            self._since_ns = self._clock.monotonic_ns()
        self._publisher.send_part(part)
        self._older += len(part.rows)
        self._inside = True
        self._rows += len(part.rows)

    def _passed(self, end: str | None, is_transaction: bool) -> bool:
        """Whether this was the last one."""
        if not self._publisher.uncommitted and not self._moved:
            self._since_ns = self._clock.monotonic_ns()
        self._inside, self._moved = False, True
        self._rows = 0
        self._ended += is_transaction
        last = end is not None and self._source.reached(end)
        if last or self._is_renewed or self._publisher.uncommitted >= MOST or self._age_ms() >= LONGEST_MS:
            self._commit(self._source.position())
        return last

    def _age_ms(self) -> int:
        return (self._clock.monotonic_ns() - self._since_ns) // 1_000_000

    def _commit(self, position: Position) -> None:
        letters, self._letters, older, self._older = self._letters, [], self._older, 0
        transactions, self._ended, self._moved = self._ended, 0, False
        changes = self._publisher.uncommitted - len(letters)
        self._publisher.commit(position)
        if letters:
            log.warning("%s put aside, unreadable; the last: %s", counted(len(letters), "record"), letters[-1].reason)
        left = left_of(self._source)
        counts = changes, transactions, 1, 0, position.place, len(letters), older, left.tables, left.rows
        shown = [
            LetterStatistics(
                f"{one.database}.{one.table} {one.gtid} {one.xoffset}".lstrip(". "),
                1000 * one.ts,
                one.reason,
                shortened(one.record),
            )
            for one in letters[-LETTERS:]
        ]
        self._count(CaptureStatistics(*counts, tuple(shown)))
        self._source.stored(position)  # last: it may break, and Kafka has it all
