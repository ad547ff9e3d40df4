"""From an outbox's rows to the relay's input, in the order of their commits, each once; and out of the table.

    1. the database's log brings rows, in whole transactions          (cdc/door: a slot of PostgreSQL, a binlog)
    2. one Kafka transaction has them, and the place behind them       (log.py)
    3. the database hears of the place
    4. the rows are removed from the table, in portions

A crash before 2 brings the rows again; behind 2 they do not come again, and 4 is done at the next start: of the rows that
are there when it begins, those that the log has not brought when it brings a mark that was written then were taken before.

Rows that are older than the slot, of a first start: they are asked for, in portions, before there is a slot, and once more
when there is one. Those of the last time may come by the log too: Kafka keeps their numbers, with the place from which the
log is read, and they are passed over.

By polling, where neither slot nor binlog may be had: a portion is asked for, in the order of numbers; one Kafka transaction
has it and its numbers; it is removed, and only then the next one is asked for. A crash leaves one portion, whose numbers
Kafka has: a start removes it first. A row whose transaction is open while a later one's is taken comes behind it.

Rule 1: who owns partition 0 of the input takes the rows: so of several relays one does, and another when it dies.
Rule 2: whatever is lost is connected to again, after a pause that grows, and said. The relay goes on delivering meanwhile.
Rule 3: a row that somebody updates is not taken again, nor removed: it is put aside, and that is said.
Rule 4: a fault of ours ends the relay: it is raised where it is asked whether all is well.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from typing import Any, Final

from waterclock.cdc import changes
from waterclock.cdc.door.batch import Change
from waterclock.cdc.door.stream import ChangeStream
from waterclock.clock import SystemClock
from waterclock.errors import ConnectionLost, EnvironmentMissing, UsageError, WaterclockError
from waterclock.kafka.patience import RECONNECTING_S, Backoff
from waterclock.outbox.log import FROM, OutboxLog
from waterclock.outbox.table import MARK, PORTION, OutboxTable, StoredRow, values_of
from waterclock.outside import threading, uuid
from waterclock.relay.wire.topics import Topics

log = logging.getLogger("waterclock.relay")
SAID_AFTER_S: Final = 60.0  # a relay that starts, or was shut out, is given its partitions by then
_IDLE_S: Final = 0.2
_END_S: Final = 10.0


class OutboxTaker:
    """Takes the rows at `url` for the relay of these topics, by a thread, while `owns` says so. `poll_s`: every so many
    seconds they are asked for instead; `lost` hears of what is tried again. UsageError if the table cannot be had."""

    def __init__(
        self,
        url: str,
        topics: Topics,
        settings: Mapping[str, Any],
        poll_s: float | None,
        lost: Callable[[WaterclockError], object],
    ) -> None:
        self._url, self._poll_s, self._lost = url, poll_s, lost
        self._log = OutboxLog(settings, topics, (self._before_the_log, self._beside_the_place))
        self._table = OutboxTable(url, topics.input, self._log.name)
        self._relay = topics.input
        self._stream: ChangeStream | None = None
        self._clock = SystemClock()
        self._owned_s, self._has_said = self._clock.monotonic_s(), False
        self._owns, self._ended = threading.Event(), threading.Event()
        self._error: BaseException | None = None
        try:
            self._table.make()
        except (ConnectionLost, EnvironmentMissing) as error:  # rule 2
            lost(error)
        self._thread = threading.Thread(target=self._work, name="waterclock-outbox", daemon=True)
        self._thread.start()

    def owns(self, does: bool) -> None:
        """Rule 1; from the relay's thread. Rule 4."""
        if self._error is not None:
            raise self._error
        now_s = self._clock.monotonic_s()
        if does:
            self._owns.set()
            self._owned_s = now_s
            return
        if self._owns.is_set():
            self._owns.clear()
            self._stop()
        if now_s - self._owned_s > SAID_AFTER_S and not self._has_said:
            self._has_said = True
            log.warning(
                "%s-0 belongs to another relay, and who has it takes the outbox's rows: start that one with --outbox too",
                self._relay,
            )

    def close(self) -> None:
        """End it; what was not committed is taken by the next one. PostgreSQL may make a slot for as long as others have
        transactions open: that is not waited for."""
        self._ended.set()
        self._stop()
        self._thread.join(_END_S)

    def _stop(self) -> None:
        if (stream := self._stream) is not None:
            stream.stop()

    def _goes_on(self) -> bool:
        return self._owns.is_set() and not self._ended.is_set()

    def _work(self) -> None:
        backoff = Backoff(RECONNECTING_S, self._clock)
        try:
            while not self._ended.is_set():
                if not self._owns.wait(_IDLE_S):
                    continue
                try:
                    self._table.make()
                    self._follow(backoff) if self._poll_s is None else self._poll(self._poll_s, backoff)
                except WaterclockError as error:  # rule 2
                    self._lost(reworded(error, self._log.state, self._table.name))
                    self._ended.wait(backoff.failed())
        except BaseException as error:
            self._error = error

    # By the database's log

    def _follow(self, backoff: Backoff) -> None:
        self._stream = changes(
            self._url, position=self._log, tables=[self._table.name], most=PORTION, begin="now", snapshot="never"
        )
        if not self._goes_on():  # who says so from here on finds the stream
            return
        with closing(self._stream) as stream:  # what keeps the first place may fail when the source is open
            stream.open()
            removal = Removal(self._table, self._log.numbers)
            for batch in stream:
                rows = removal.new(batch, self._relay)
                self._log.send(rows)
                while removal.updated:
                    self._log.aside.append(number := removal.updated.pop())
                    log.warning(
                        "row %d of %s was changed by an UPDATE, which is not taken: it stays, and is nobody's. "
                        "To have the message delivered: %s",
                        number,
                        self._table.name,
                        self._table.inserted_anew(number),
                    )
                for number in self._log.aside:  # before the commit: behind it nobody would know of them
                    self._table.put_aside(number)
                if removal.passed and self._log.numbers:
                    self._log.remember(())  # none of them can come any more
                batch.commit()  # 2 and 3
                removal.done(self._log.aside)  # 4
                self._log.aside.clear()
                backoff.succeeded()

    def _before_the_log(self) -> None:
        """Of each start; and of a first one: what there is, before there is a slot behind which it could come again."""
        self._table.remove(self._log.numbers)
        if not self._log.has_place and not self._table.has_slot():
            while self._goes_on() and self._portion() == PORTION:
                pass

    def _beside_the_place(self) -> None:
        """In the transaction that stores where the log begins: what is there now, which may come by the log too."""
        rows = self._table.rows(all=True)
        self._log.send(rows)
        self._log.remember({row.number for row in rows})

    # By polling

    def _poll(self, every_s: float, backoff: Backoff) -> None:
        self._log.open()
        try:
            if self._log.has_place:
                raise UsageError(
                    f"The rows of {self._table.name} were taken by the database's log before, and some that are there may "
                    f"have been taken. Leave --outbox-poll out; or delete those, and then the topic {self._log.state}."
                )
            self._table.remove(self._log.numbers)
            while self._goes_on():
                if self._portion() < PORTION:
                    self._ended.wait(every_s)
                backoff.succeeded()
        finally:
            self._log.release()

    def _portion(self) -> int:
        """One portion, asked for, taken and removed; how many rows it had."""
        rows = self._table.rows()
        if rows:
            self._log.send(rows)
            taken = {row.number for row in rows}.difference(self._log.aside)
            self._log.remember(taken)
            self._log.finish()
            self._table.remove(taken)
            while self._log.aside:
                self._table.put_aside(self._log.aside.pop())
        return len(rows)


_ANEW: Final = re.compile(
    r"[Bb]ring the target up to date by hand, and start anew under another position( with begin=\"now\")?"
)


def reworded(error: WaterclockError, state: str, table: str) -> WaterclockError:
    """An error of the capture, its advice for an outbox: that keeps its rows until they are taken. So a place of the log
    that is lost loses none of them.

    >>> lost = "The slot delays is gone. Bring the target up to date by hand, and start anew under another position."
    >>> str(reworded(UsageError(lost), "delays.outbox", "waterclock_outbox")).partition(" is gone. ")[2][:76]
    'Stop the relay, delete the topic delays.outbox, and start it again: the rows'
    """
    advice = (
        f"top the relay, delete the topic {state}, and start it again: the rows that are still in {table} come then. "
        f"One that was taken and not removed would come twice: delete those before whose numbers stand in {FROM} of the "
        "last records of the input"
    )
    said = _ANEW.sub(lambda found: ("S" if found[0][0] == "B" else "s") + advice, str(error))
    if said == str(error):
        return error
    return type(error)(said)


class Removal:
    """Which rows of the table were taken, and go: those that the log brings, and once it has brought the mark that is
    written here, those from before that it has not. `polled`: numbers that are passed over when they come."""

    def __init__(self, table: OutboxTable, polled: Collection[int]) -> None:
        self._table, self._polled = table, frozenset(polled)
        self._before, self._mark = table.numbers(), str(uuid.uuid4())
        self._taken: set[int] = set()
        self.updated: list[int] = []  # by somebody else: nobody knows what is to become of them, and they stay
        self.passed = False
        table.mark(self._mark)

    def new(self, batch: Iterable[Change], relay: str) -> list[StoredRow]:
        """The rows for a relay that are inserted in a batch."""
        rows = []
        for change in batch:
            if change.type == "update" and change.data["relay"] == relay:
                self.updated.append(change.data["number"])
            data: dict[str, Any] = change.data if change.type == "insert" else {"relay": None}
            if data["relay"] == MARK:
                self._taken.add(data["number"])
                self.passed = self.passed or data["headers"] == self._mark
            elif data["relay"] == relay:
                self._before.discard(data["number"])
                self._taken.add(data["number"])
                if data["number"] not in self._polled:
                    rows.append(StoredRow.read(change.transaction, values_of(data)))
        return rows

    def done(self, stay: Collection[int]) -> None:
        """They are in Kafka: remove them, but for those that stay."""
        self._before.difference_update(stay)
        if self.passed:
            self._taken |= self._before
            self._before.clear()
        self._table.remove(self._taken.difference(stay))
        self._taken.clear()
