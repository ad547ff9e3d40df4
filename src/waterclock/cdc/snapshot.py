"""Tables that are older than the log come whole beside the running log, chunk by chunk.

    1. the place P0 from which the log is read is stored in Kafka
    2. between two transactions of the log the next chunk is read: rows behind the last key, in one short transaction with a
       view S; with a table's first chunk its largest key, the end of its part
    3. accept: if the log has given out a transaction that S does not show, the chunk is thrown away, and read again later
    4. wait: the log is read on until all that S shows was given out. What is given out meanwhile and S does NOT show takes
       its keys out of the chunk
    5. send: what is left, as one transaction with a sequence of its own, from which the log counts on; with the place, and
       with where the next chunk begins

Why it is right, for one row, when the log's reader stands where its chunk is sent:
(a) nothing given out is lost under it: S shows all that had been given out (3); what came later took its key out (4);
(b) nothing older comes after it: all that S shows was given out before (4), what comes is newer for the row;
(c) a row that is in no chunk, for it came or moved later, comes by the log, for S of its range does not show it;
(d) a row beyond the largest key came with a transaction behind P0;
(e) a kill: rows, place and key are one Kafka transaction; what is not there is as if it had never been read.
So the row is exactly what it is at that point of the log: no state from the future, none from the past.

Rule 1: it is a Source in front of the log's: a chunk is one more transaction of it. Nothing behind it knows of chunks.
Rule 2: a chunk's size follows the time: it doubles while reading takes less than TARGET_S or than the wait for the log,
        and halves when it takes much longer, down to LEAST_ROWS: on a busy machine a few rows take as long, for each chunk
        asks for a view and the catalog. So a reader that lags far behind waits seldom, and for more rows.
Rule 3: what was not accepted is read again after a pause that grows.
Rule 4: a chunk has no transaction's name, by which a later start would go on in the middle of it: it goes whole.
Rule 5: the log is looked at every LOOK_S: a server takes who reads nothing of it for gone, PostgreSQL after a minute.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import NamedTuple

from waterclock.cdc.chunks import Chunk, ChunkReader
from waterclock.cdc.part import OlderPart
from waterclock.cdc.position import Position
from waterclock.cdc.source import DeadLetter, Item, Source, SourceMark
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.clock import Clock
from waterclock.kafka.patience import Backoff

log = logging.getLogger("waterclock.cdc")
LEAST_ROWS, FIRST_ROWS, MOST_ROWS = 1000, 1000, 100_000
TARGET_S, LOOK_S = 0.25, 5.0
SAID_AT = 7  # attempts in a row: some ten seconds
_PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class WholePlace(str):
    """A place that is the end once all that is older has come too; "": once that has come, wherever the log stands."""

    __slots__ = ()


def beside(source: Source, reader: Callable[[], ChunkReader], clock: Clock, rate: int = 0) -> Source:
    """The source, with what is older than its log if it holds a table of which that is still to come."""
    held = source.position().held
    if held is None or not held.older():
        return source
    with ExitStack() as opened:
        opened.callback(source.close)
        chunks = reader()
        opened.callback(chunks.close)
        sizes = chunks.look(held.older())
        opened.pop_all()
    return SnapshotSource(source, chunks, clock, rate, sizes)


class OlderLeft(NamedTuple):
    """What is still to come of older rows: of so many tables, about so many rows."""

    tables: int = 0
    rows: int = 0


def left_of(source: Source) -> OlderLeft:
    """Behind what `source` has given out."""
    return source.left() if isinstance(source, SnapshotSource) else OlderLeft()


class SnapshotSource:
    """A `Source`: the changes of `source`, and between them what is older. `rate`: rows a second at most, 0: no limit;
    `sizes`: about how many rows the tables have."""

    def __init__(
        self,
        source: Source,
        reader: ChunkReader,
        clock: Clock,
        rate: int = 0,
        sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._source, self._reader, self._clock, self._rate, self._sizes = source, reader, clock, rate, sizes
        held = source.position().held
        self._rest = held.older() if held else {}
        self._chunk: Chunk | None = None
        self._rows = min(FIRST_ROWS, rate or FIRST_ROWS)
        self._again = Backoff(_PAUSES_S, clock)
        self._read_s = self._since_s = self._not_before_s = 0.0

    def items(self) -> Iterator[Item]:
        """Changes and marks, without end."""
        items = self._source.items()
        for item in items:
            if self._rest and isinstance(item, MaxwellMessage | DeadLetter):
                self._reader.saw(item, self._chunk)
            yield item
            if self._rest and isinstance(item, SourceMark) and self._reader.is_between():
                yield from self._brought()
            if not self._rest:
                break
        yield from items

    def position(self) -> Position:
        position = self._source.position()
        return position if position.held is None else position._replace(held=position.held.with_older(self._rest))

    def left(self) -> OlderLeft:
        """See `left_of`."""
        rows = sum(max(0, self._sizes.get(table, 0) - rest.rows) for table, rest in self._rest.items())
        return OlderLeft(len(self._rest), rows)

    def reached(self, end: str) -> bool:
        if isinstance(end, WholePlace) and (self._rest or not end):
            return not self._rest
        return self._source.reached(end)

    def stored(self, position: Position) -> None:
        self._source.stored(position)

    def close(self) -> None:
        self._reader.close()
        self._source.close()

    def _brought(self) -> Iterator[Item]:
        """The chunks that can be sent where the log's reader stands now; rule 5."""
        until_s = self._clock.monotonic_s() + LOOK_S
        while self._rest and self._clock.monotonic_s() < until_s:
            if self._chunk is None and not self._reads():
                return
            assert self._chunk is not None
            if self._reader.standing() < self._chunk.high:
                return
            yield from self._sent(self._chunk)

    def _reads(self) -> bool:
        """Steps 2 and 3: whether there is a chunk now."""
        began_s = self._clock.monotonic_s()
        if not self._again.is_time or began_s < self._not_before_s:
            return False
        table, rest = next(iter(self._rest.items()))
        self._chunk = self._reader.read(table, rest, self._rows)
        self._since_s = self._clock.monotonic_s()
        self._read_s = self._since_s - began_s
        if self._chunk is None:
            self._again.failed()
            if self._again.attempts == SAID_AT:
                log.warning("The snapshot of %s waits until a query sees all that the log has given out.", table)
            return False
        self._again.succeeded()
        return True

    def _sent(self, chunk: Chunk) -> Iterator[Item]:
        """Step 5."""
        sequence = self._reader.numbered()
        if chunk.rows:
            yield OlderPart(chunk.of._replace(sequence=sequence), chunk.rows)
        for number, message in enumerate(chunk.whole or ()):
            yield message._replace(gtid="", sequence=sequence, xoffset=number, commit=number == chunk.size() - 1)
        if chunk.rest is None:
            del self._rest[chunk.table]
        else:
            self._rest[chunk.table] = chunk.rest._replace(rows=self._rest[chunk.table].rows + chunk.size())
        self._chunk = None
        self._adapt(chunk)
        yield SourceMark.COMMITTED

    def _adapt(self, chunk: Chunk) -> None:
        """Rule 2, and the rate."""
        now_s = self._clock.monotonic_s()
        if self._read_s > 2 * TARGET_S:
            self._rows //= 2
        elif self._read_s < max(TARGET_S, now_s - self._since_s):
            self._rows *= 2
        most = 2 * chunk.size() if chunk.cut else MOST_ROWS
        self._rows = max(LEAST_ROWS, min(self._rows, most))
        if self._rate:
            self._rows = min(self._rows, self._rate)
            self._not_before_s = now_s + chunk.size() / self._rate
