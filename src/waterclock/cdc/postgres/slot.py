"""PostgreSQL as a source of changes: a replication slot, read as a stream. Read, produce, confirm.

    1. read what the slot has after its place (stream.py), large transactions once they are committed (streamed.py)
    2. produce it, with the place it leads to                                        (capture.py, door/)
    3. confirm that place: PostgreSQL may throw away its WAL before it

A crash between 2 and 3 leaves the stored position ahead of the slot: the server is asked to begin there, and 3 is done.

Rule 1: the slot is never ahead of the stored position. If it is, somebody else reads from it, or it was made anew: what
        lies between is lost, and that is said. While a stream reads it nobody else can.
Rule 2: what PostgreSQL cannot decode, because its publication was not there when it was written, is left where it is: what
        was committed before it has come by then, and the way past it is told (--skip-to).
Rule 3: where nothing wanted is written the place moves on with the server's word, so that its WAL does not pile up.
Rule 4: a table that was made anew, and has no row yet, is not in the log: the catalog is asked at each start, and every
        LOOK_S (pgoutput.py, rule 5). Nor is what a publication leaves out since it was altered: that is told as soon.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import psycopg

from waterclock.cdc.agreement import FROM_NOW, NEVER, WHEN_NEEDED, Terms, agreed
from waterclock.cdc.held import Held, HeldTable
from waterclock.cdc.position import Position
from waterclock.cdc.postgres.beginning import older_rows
from waterclock.cdc.postgres.catalog import TableCatalog
from waterclock.cdc.postgres.history import history
from waterclock.cdc.postgres.pgoutput import Decoder, lsn_number, lsn_text
from waterclock.cdc.postgres.publication import looked_at
from waterclock.cdc.postgres.session import ReplicationSlot, connected, errors_of_postgres
from waterclock.cdc.postgres.stream import ReplicationStream
from waterclock.cdc.postgres.streamed import StreamedTransactions
from waterclock.cdc.source import Item, OlderRows, Refusal, SourceMark, TableFilter, stop
from waterclock.clock import WallClock
from waterclock.errors import ConnectionLost, Unreadable, UsageError, unstopped

log = logging.getLogger("waterclock.cdc")
OWN = frozenset({"pg_catalog", "information_schema"})
LOOK_S = 10.0
_QUIET_S, _SILENT_S = 0.02, 1.0  # so long nothing came: what was gathered is committed; and from then on
_COMMITS = b"Cc"
_SHORT_HEADER, _LONG_HEADER = 24, 40  # of a page of the log, and of a segment's first one
_NUMBERS = (
    "select n.nspname || '.' || c.relname, c.oid::bigint from pg_get_publication_tables(%s) p join pg_class c on c.oid = "
    "p.relid join pg_namespace n on n.oid = c.relnamespace"
)
_NAMES = (
    "select nspname::text, '' from pg_catalog.pg_namespace union all "
    "select schemaname::text, tablename::text from pg_catalog.pg_tables"
)


class SlotReader:
    """A `Source` over one slot. `skip` names transactions that are left out, by their commit's LSN; `refusal` says what is
    done about a row that cannot be read."""

    def __init__(
        self,
        slot: ReplicationSlot,
        position: Position,
        wanted: TableFilter,
        clock: WallClock,
        *,
        skip: frozenset[str] = frozenset(),
        refusal: Refusal = stop,
        terms: Terms | None = None,
    ) -> None:
        self._slot, self._terms, self._clock, self._wanted = slot, terms or Terms(), clock, wanted
        self._lacks = list[str]()  # what does not come, as it was told last
        with ExitStack() as opened, errors_of_postgres(slot):
            self._asking = opened.enter_context(connected(slot))
            self._check(position)
            self._before = position.held
            begun = self._skipped(position._replace(held=self._agreed(position, wanted)))
            self._decoding = Decoder(
                begun,
                wanted,
                TableCatalog(self._asking),
                skip=skip,
                refusal=refusal,
                unknown=self._unknown,
                renews=self._terms.snapshot != NEVER,
            )
            self._streamed = opened.enter_context(closing(StreamedTransactions()))
            self._stream = opened.enter_context(closing(ReplicationStream(slot, begun.place, clock)))
            self._check_slot(position.place)  # nobody else can move it from here on
            self.stored(position)  # 3 of the last time, which a crash may have left undone
            self._look()
            self._opened = opened.pop_all()

    def items(self) -> Iterator[Item]:
        """Changes and marks, without end."""
        wait_s = _QUIET_S
        following, decoded = self._stream.next, self._decoding.take
        with errors_of_postgres(self._slot):
            while True:
                try:
                    came = following(wait_s)
                except psycopg.errors.UndefinedObject as error:
                    raise self._undecoded(unstopped(error)) from None
                if isinstance(came, bytes):
                    if self._streamed.passes(came):
                        yield from decoded(came)
                    else:
                        for message in self._streamed.take(came):
                            yield from decoded(message)
                elif came is None:
                    yield SourceMark.QUIET
                else:
                    yield from self._decoding.moved(came)
                if not isinstance(came, bytes) or came[0] in _COMMITS:
                    yield from self._unlogged()
                wait_s = _SILENT_S if came is None else _QUIET_S

    def _look(self) -> None:
        """Rule 4: which tables are unlike, and how far the log is by now, which has what became of them."""
        self._looks_s = self._clock.monotonic_s() + LOOK_S
        self._compare()
        self._unlike = self._decoding.unlike(dict(self._asking.execute(_NUMBERS, (self._slot.publication,)).fetchall()))
        self._unlike_at = lsn_number(end_of_log(self._asking)) if self._unlike else 0

    def _compare(self) -> None:
        """Tell what does not come any more since the publication was looked at last."""
        with suppress(UsageError):  # there is none now: the stream says so where something is written without it
            publication, held = looked_at(self._asking, self._slot.publication), self._decoding.position().held
            if (lacks := publication.lacks(self._wanted, held)) != self._lacks:
                self._lacks = lacks
                publication.tell(self._wanted, held)

    def _unlogged(self) -> Iterator[Item]:
        """What rule 4 brings, where the reader stands."""
        if not self._unlike and self._clock.monotonic_s() >= self._looks_s:
            self._look()
        if self._unlike and self._decoding.is_between() and self._decoding.lsn >= self._unlike_at:
            unlike, self._unlike = self._unlike, {}
            yield from self._decoding.became(unlike)

    def _undecoded(self, why: str) -> Unreadable:
        """Rule 2."""
        (now,) = self._one("select pg_current_wal_insert_lsn()::text")
        return Unreadable(
            f"What was committed after {self.position().place} cannot be decoded: {why}. Something was written while there "
            "was none (it was dropped, and made anew). To leave out all that was committed until now, and bring the "
            f"target up to date by hand: --skip-to {now} --as-published"
        )

    def position(self) -> Position:
        return self._decoding.position()

    def is_between(self) -> bool:
        """Whether it stands between two transactions."""
        return self._decoding.is_between()

    def numbered(self, seconds: int) -> int:
        """Between two transactions: a sequence of its own, from which the next one counts on."""
        return self._decoding.numbered(seconds)

    def lsn(self) -> int:
        """All that was committed before it was given out."""
        return self._decoding.lsn

    def xid(self) -> int:
        """The number, in 32 bits, of the transaction that is given out."""
        return self._decoding.xid

    def reached(self, end: str) -> bool:
        return not end or (self._decoding.lsn >= lsn_number(end) and not self._unlike)

    def stored(self, position: Position) -> None:
        """Step 3."""
        with errors_of_postgres(self._slot):
            self._stream.confirm(lsn_number(position.place))

    def close(self) -> None:
        self._opened.close()

    def _one(self, query: str, *arguments: Any) -> Any:
        return self._asking.execute(query, arguments).fetchone()

    def _check_slot(self, place: str) -> None:
        """Rule 1."""
        found = self._one(
            "select confirmed_flush_lsn::text, plugin from pg_replication_slots where slot_name = %s", self._slot.name
        )
        if found is None or found[1] != "pgoutput" or lsn_number(found[0]) > lsn_number(place):
            now = "is gone" if found is None else f"reads by {found[1]} and stands at {found[0]}"
            raise UsageError(
                f"The slot {self._slot.name} {now}, and Kafka has the changes up to {place}: what lies between is "
                "lost. Bring the target up to date by hand, and start anew under another --name."
            )

    def _check(self, position: Position) -> None:
        if "/" not in position.place:
            raise UsageError(
                f"The position {position.place} is none of PostgreSQL: it holds for a MySQL or MariaDB. Name the database "
                "that the capture began with, or give this one another --name."
            )
        self._check_slot(position.place)
        (end,) = self._one("select pg_current_wal_flush_lsn()::text")
        if lsn_number(end) < lsn_number(position.place):
            where = self._asking.info
            raise UsageError(
                f"Kafka has the changes up to {position.place}, and the server at {where.host}:{where.port} has "
                f"written no further than {end}: the position holds for another server, or for this one before it was "
                "copied back. Name the server that the capture began with; or bring the target up to date by hand, and "
                "start anew under another --name."
            )

    def _agreed(self, position: Position, wanted: TableFilter) -> Held:
        """See agreement.py, and publication.py for what is brought of what is asked for."""
        server = history(self._slot, self._asking, position)
        publication = looked_at(self._asking, self._slot.publication)
        publication.refuse(wanted, position.held, self._terms.as_published)
        publication.tell(wanted, position.held)

        def older(names: Collection[str]) -> list[OlderRows]:
            return older_rows(self._asking, self._slot, lambda schema, table: f"{schema}.{table}" in names)

        there = [table.name for table in publication.there if table.schema not in OWN]
        asked = publication.asked(wanted, server)
        first = [name for name in publication.tables if wanted(*name.split(".", 1))]
        held = agreed(position, asked, there, older, self._terms, lambda: first)
        now, former = {table.name: table.number for table in publication.there}, position.held or Held()
        # the log has not told yet what became of those that were met; a table of a list that was made anew is agreed to
        own = HeldTable()
        kept = {
            name: number
            for name, number in former.numbers.items()
            if former.tables.get(name, own).mark == held.tables.get(name, own).mark
        }
        met = set(kept.values())  # one of these under a new name is not met under that one yet
        held = held.with_numbers({name: number for name, number in now.items() if number not in met} | kept)
        self._lacks = publication.lacks(wanted, held)
        return held

    def _unknown(self, schema: str, name: str) -> str:
        """Why the rows of a table that the log brings must not be passed on: nobody has said that it begins here."""
        table, held = f"{schema}.{name}", self._decoding.position().held
        if held is None or held.holds(table) or (self._before is not None and self._before.holds(table)):
            return ""
        goes_on = self._terms.new_tables == FROM_NOW or self._terms.snapshot == WHEN_NEEDED
        if goes_on and table in looked_at(self._asking, self._slot.publication).tables:
            raise ConnectionLost(f"{table} came into the publication {self._slot.publication}: it is looked at anew.")
        return (
            f"it came into the publication {self._slot.publication} while it was read: what it had before would not come. "
            "Start again: its rows are counted, and what can be done is named."
        )

    def _skipped(self, position: Position) -> Position:
        """`--skip-to`: the position behind all that is left out, which is told."""
        place = self._terms.skip_to
        if not place or lsn_number(place) <= lsn_number(position.place):
            return position
        end, size = self._one(
            "select pg_current_wal_flush_lsn()::text, pg_size_pretty(%s::pg_lsn - %s::pg_lsn)", place, position.place
        )
        if lsn_number(place) > lsn_number(end):
            raise UsageError(f"--skip-to {place}: the server has written no further than {end}.")
        held = position.held or Held()
        log.warning(
            "Left out: all that was committed between %s and %s (%s of log, of all tables of the server)%s. What it was "
            "nobody knows: bring the target up to date by hand. It may be of %s.",
            position.place,
            place,
            size,
            f", the rest of the transaction {position.inside} with it" if position.inside else "",
            ", ".join(held.tables) or "every table that is asked for",
        )
        return Position(lsn_text(lsn_number(place)), position.sequence, held=position.held)


def tables(slot: ReplicationSlot) -> list[tuple[str, str]]:
    """Schema and name of each table of the database; each schema with "" too, as `public.*` may have no table."""
    with errors_of_postgres(slot), connected(slot) as connection:
        found = connection.execute(_NAMES).fetchall()
    return [(str(schema), str(table)) for schema, table in found]


def stands_by(slot: ReplicationSlot) -> list[str]:
    """A sentence, if the server would count a capture among its synchronous standbys: a `*` names every connection."""
    with errors_of_postgres(slot), connected(slot) as connection:
        found = connection.execute("select current_setting('synchronous_standby_names')").fetchone()
    setting = str(found[0]) if found else ""
    if not {"*", slot.name} & set(re.findall(r'[^\s,()"]+', setting)):
        return []
    return [
        f"synchronous_standby_names = {setting!r} counts this capture ({slot.name}) as a standby: commits of the database "
        "may wait for it, and be confirmed by it in place of a real one. Name the standbys there."
    ]


def current(slot: ReplicationSlot) -> str:
    """The place up to which everything that is committed now has been written."""
    with errors_of_postgres(slot), connected(slot) as connection:
        return end_of_log(connection)


def end_of_log(connection: psycopg.Connection[Any]) -> str:
    """Where the log's last record ends. The server names where the next one begins, which is behind a page's header if the
    last one filled its page."""
    asked = "select pg_current_wal_insert_lsn()::text, current_setting('wal_block_size')::bigint, setting::bigint from "
    found = connection.execute(asked + "pg_settings where name = 'wal_segment_size'").fetchone()
    if found is None:
        return lsn_text(0)
    lsn, page, segment = lsn_number(found[0]), int(found[1]), int(found[2])
    header = _LONG_HEADER if lsn % segment < page else _SHORT_HEADER
    return lsn_text(lsn - header if lsn % page == header else lsn)
