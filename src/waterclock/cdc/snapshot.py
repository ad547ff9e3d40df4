"""Tables that are older than the log come whole beside the running log, chunk by chunk.

    1. the place P0 from which the log is read is stored in Kafka
    2. between two transactions of the log the next chunk is read: rows behind the last key, in one short transaction with a
       view S; with a table's first chunk its largest key, the end of its part. So in the same view are small tables behind
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
Rule 2: a chunk's size follows the time: reading may take TARGET_S, or half as long as the chunk before waited for the log,
        up to LONGEST_S. It grows as much as that allows, up to GROWTH, and halves when it takes much longer, down to
        LEAST_ROWS: on a busy machine a few rows take as long, for each chunk asks for a view and the catalog. So a reader
        that lags far behind waits seldom, and for more rows: what several chunks in one view would bring, and no view is
        open for longer than it is read.
Rule 3: what was not accepted is read again after a pause that grows.
Rule 4: a chunk has no transaction's name, by which a later start would go on in the middle of it: it goes whole.
Rule 5: the log is looked at every LOOK_S: a server takes who reads nothing of it for gone, PostgreSQL after a minute.
Rule 6: a target may have rows of a table that are gone: of one that comes again, or was not held for a while. All that it
        has stood in Kafka before P0, with a sequence up to that of P0, `since`. Every row that is there comes with a later
        one, by a chunk or by the log. So behind the last chunk it is said that what has none is gone.
Rule 7: tables that are held come again when somebody asks, beside the changes (requests.py).
Rule 8: as many tables share a view as are thought to fit into the rows of a chunk, up to TABLES: a reader that lags waits
        once for all of them. Each is sent by itself, and nothing of the log comes between.
Rule 9: a chunk's rows have their schema before them, as those of the log have. One that waits while the log tells of other
        columns is read again: it would bring the former ones behind the new.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import NamedTuple

from waterclock.cdc.chunks import Chunk, ChunkReader, completed
from waterclock.cdc.held import OlderRest
from waterclock.cdc.part import OlderPart
from waterclock.cdc.position import Position
from waterclock.cdc.schemas import ColumnsAltered, SchemaAt
from waterclock.cdc.source import DeadLetter, Item, Recaller, Source, SourceMark, TablesRenewed
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.changes.table_schema import TableSchema
from waterclock.clock import WallClock
from waterclock.errors import Unreadable, UsageError
from waterclock.kafka.patience import Backoff

log = logging.getLogger("waterclock.cdc")
LEAST_ROWS, FIRST_ROWS, MOST_ROWS = 1000, 1000, 100_000
TARGET_S, LONGEST_S, LOOK_S = 0.25, 2.0, 5.0
GROWTH = 16
TABLES = 100
SAID_AT = 7  # attempts in a row: some ten seconds
_PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class WholePlace(str):
    """A place that is the end once all that is older has come too; "": once that has come, wherever the log stands."""

    __slots__ = ()


class SnapshotAnswer(NamedTuple):
    """To who asked for tables: those that come from `place` on, with about how many rows; why others do not."""

    place: str
    tables: dict[str, int]
    refused: dict[str, str]


def beside(
    source: Source, reader: Callable[[], ChunkReader], clock: WallClock, rate: int = 0, why_not: str = ""
) -> SnapshotSource:
    """The source, with what is older than its log of the tables of which that is still to come. `why_not`: no table comes
    again when it is asked for (rule 7)."""
    held = source.position().held
    if held is None or not held.older():
        return SnapshotSource(source, None, clock, rate, make=reader, why_not=why_not)
    with ExitStack() as opened:
        opened.callback(source.close)
        chunks = reader()
        opened.callback(chunks.close)
        sizes = chunks.look(held.older())
        opened.pop_all()
    return SnapshotSource(source, chunks, clock, rate, sizes, why_not=why_not)


class OlderLeft(NamedTuple):
    """What is still to come of older rows: of so many tables, about so many rows."""

    tables: int = 0
    rows: int = 0


def left_of(source: Source) -> OlderLeft:
    """Behind what `source` has given out."""
    return source.left() if isinstance(source, SnapshotSource) else OlderLeft()


def renew(source: Source, renewed: TablesRenewed) -> None:
    """Have the tables come again, once the position is stored and a source made anew of it."""
    if isinstance(source, SnapshotSource):
        source.renew(renewed)


def asked(source: Source, patterns: Sequence[str]) -> SnapshotAnswer | None:
    """See SnapshotSource.ask."""
    return source.ask(patterns) if isinstance(source, SnapshotSource) else None


class SnapshotSource:
    """A `Source`: the changes of `source`, and between them what is older. `rate`: rows a second at most, 0: no limit;
    `sizes`: about how many rows the tables have."""

    def __init__(
        self,
        source: Source,
        reader: ChunkReader | None,
        clock: WallClock,
        rate: int = 0,
        sizes: Mapping[str, int] = MappingProxyType({}),
        make: Callable[[], ChunkReader] | None = None,
        why_not: str = "",
    ) -> None:
        self._source, self._opened, self._clock, self._rate, self._sizes = source, reader, clock, rate, sizes
        self._make, self._why_not = make, why_not
        held = source.position().held
        self._rest = held.older() if held else {}
        self._chunks: dict[str, Chunk] = {}  # of one view, in the order in which they are sent
        self._rows = min(FIRST_ROWS, rate or FIRST_ROWS)
        self._view_rows, self._is_cut = 0, False  # of the latest view
        self._again = Backoff(_PAUSES_S, clock)
        self._read_s = self._since_s = self._not_before_s = 0.0

    @property
    def _reader(self) -> ChunkReader:
        if self._opened is None:
            assert self._make is not None
            self._opened = self._make()
        return self._opened

    def items(self) -> Iterator[Item]:
        """Changes and marks, without end."""
        return self._with_older() if self._rest else self._source.items()

    def _with_older(self) -> Iterator[Item]:
        items = self._source.items()
        for item in items:
            if self._rest and isinstance(item, MaxwellMessage | DeadLetter):
                self._reader.saw(item, self._chunks)
            elif isinstance(item, TableSchema | ColumnsAltered):
                self._compare(item)
            yield item
            if self._rest and isinstance(item, SourceMark) and self._reader.is_between():
                yield from self._brought()
            if not self._rest:
                break
        yield from items

    def _compare(self, said: TableSchema | ColumnsAltered) -> None:
        """Rule 9."""
        chunk = self._chunks.get(f"{said.database}.{said.table}")
        of = None if chunk is None else chunk.schema
        if of is not None and (isinstance(said, ColumnsAltered) or not said.is_like(of)):
            self._chunks.clear()

    def position(self) -> Position:
        position = self._source.position()
        held = position.held
        if held is None or (not self._rest and not held.older()):
            return position
        return position._replace(held=held.with_older(self._rest))

    def renew(self, renewed: TablesRenewed) -> None:
        """See `renew`."""
        names = ", ".join(renewed.tables)
        log.warning("%s: %s. All of it comes again, and rows that are gone go.", renewed.why, names)
        self._rest.update(dict.fromkeys(renewed.tables, OlderRest(since=renewed.since)))

    def ask(self, patterns: Sequence[str]) -> SnapshotAnswer | None:
        """Rule 7: have tables come again from here on, once the position is stored and a source made anew of it; None while
        the log's reader stands within a transaction."""
        position, comes, refused = self.position(), dict[str, int](), dict[str, str]()
        if self._why_not:
            return SnapshotAnswer(position.place, {}, dict.fromkeys(patterns, self._why_not))
        if not self._reader.is_between():
            return None
        there = [table for table in self._reader.there() if position.held is not None and position.held.holds(table)]
        for pattern in patterns:
            named = [table for table in there if fnmatchcase(table, pattern)]
            if not named:
                refused[pattern] = (
                    "This capture holds no such table. Mend the name, or ask for it at the start (--tables)."
                )
            for table in named:
                try:
                    comes[table] = self._reader.look([table]).get(table, 0)
                except (UsageError, Unreadable) as error:
                    refused[table] = str(error)
        self._rest.update(dict.fromkeys(comes, OlderRest(since=position.sequence)))
        return SnapshotAnswer(position.place, comes, refused)

    def recall(self, schema_at: SchemaAt) -> None:
        """See `Recaller`."""
        if isinstance(self._source, Recaller):
            self._source.recall(schema_at)

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
        if self._opened is not None:
            self._opened.close()
        self._source.close()

    def _brought(self) -> Iterator[Item]:
        """The chunks that can be sent where the log's reader stands now; rule 5."""
        until_s = self._clock.monotonic_s() + LOOK_S
        while self._rest and self._clock.monotonic_s() < until_s:
            if not self._chunks and not self._reads():
                return
            chunk = next(iter(self._chunks.values()))
            if self._reader.standing() < chunk.high:
                return
            if chunk.is_exact and self._reader.standing() > chunk.high:
                self._chunks.clear()
            else:
                yield from self._sent(chunk)

    def _reads(self) -> bool:
        """Steps 2 and 3: whether there are chunks now."""
        began_s = self._clock.monotonic_s()
        if not self._again.is_time or began_s < self._not_before_s:
            return False
        rests = self._together()
        chunks = self._reader.read(rests, self._rows)
        self._since_s = self._clock.monotonic_s()
        self._read_s = self._since_s - began_s
        if not chunks:
            self._again.failed()
            if self._again.attempts == SAID_AT:
                log.warning(
                    "The snapshot of %s waits until a query sees all that the log has given out, and nobody locks "
                    "the table.",
                    next(iter(rests)),
                )
            return False
        self._again.succeeded()
        self._chunks = {chunk.table: chunk for chunk in chunks}
        self._view_rows, self._is_cut = sum(chunk.size() for chunk in chunks), any(chunk.cut for chunk in chunks)
        return True

    def _together(self) -> dict[str, OlderRest]:
        """Rule 8: the next tables."""
        found, rows = dict[str, OlderRest](), 0
        for table, rest in self._rest.items():
            if rows >= self._rows or len(found) == TABLES:
                break
            found[table] = rest
            rows += max(0, self._sizes.get(table, 0) - rest.rows)
        return found

    def _sent(self, chunk: Chunk) -> Iterator[Item]:
        """Step 5."""
        seconds, since = self._clock.wall_ms() // 1000, self._rest[chunk.table].since
        sequence = self._reader.numbered(seconds)
        if chunk.schema is not None and chunk.size():
            yield chunk.schema._replace(since=(sequence, 0))
        if chunk.rows:
            yield OlderPart(chunk.of._replace(sequence=sequence), chunk.rows)
        messages = [*(chunk.whole or ())]
        if since and chunk.rest is None and not chunk.absent:
            messages.append(completed(chunk.of, since, seconds))
            sequence = self._reader.numbered(seconds) if chunk.rows else sequence  # a part is a transaction of its own
        elif since and chunk.rest is None:
            log.warning("%s %s: what a target has of it stays.", chunk.table, chunk.absent)
        for number, message in enumerate(messages):
            yield message._replace(gtid="", sequence=sequence, xoffset=number, commit=number == len(messages) - 1)
        if chunk.rest is None:
            del self._rest[chunk.table]
        else:
            self._rest[chunk.table] = chunk.rest._replace(rows=self._rest[chunk.table].rows + chunk.size())
        del self._chunks[chunk.table]
        if not self._chunks:
            self._adapt()
        yield SourceMark.COMMITTED

    def _adapt(self) -> None:
        """Rule 2, and the rate, behind a view's last chunk."""
        now_s = self._clock.monotonic_s()
        may_s = max(TARGET_S, min((now_s - self._since_s) / 2, LONGEST_S))
        if self._read_s > 2 * may_s:
            self._rows //= 2
        elif self._read_s < may_s:
            self._rows = int(self._rows * min(GROWTH, max(2, may_s / max(self._read_s, 0.001))))
        most = 2 * self._view_rows if self._is_cut else MOST_ROWS
        self._rows = max(LEAST_ROWS, min(self._rows, most))
        if self._rate:
            self._rows = min(self._rows, self._rate)
            self._not_before_s = now_s + self._view_rows / self._rate
