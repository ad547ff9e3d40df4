"""PostgreSQL as a source of changes: a replication slot read by plain SQL. Peek, produce, advance.

    1. peek: read the changes after the slot's place, which leaves the slot where it is
    2. produce them to Kafka, with the place they lead to            (capture.py)
    3. advance the slot to that place: PostgreSQL may throw away its WAL before it

A crash between 2 and 3 leaves Kafka ahead of the slot: what Kafka holds is passed over, and 3 is done at the next start.

Rule 1: the slot is never ahead of Kafka. If it is, somebody else reads from it, or it was made anew: what lies
        between is lost, and that is said.
Rule 2: what is printed depends on the session: character set, time zone, date style and digits are set here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from waterclock.cdc.position import Position
from waterclock.cdc.postgres.catalog import TableCatalog
from waterclock.cdc.postgres.pgoutput import Decoder, lsn_number, lsn_text
from waterclock.cdc.source import COUNTED, Item, OlderRows, Refusal, SourceMark, TableFilter, sized, stop
from waterclock.clock import Clock
from waterclock.errors import ConnectionLost, EnvironmentMissing, UsageError, unstopped
from waterclock.kafka.patience import Backoff

log = logging.getLogger("waterclock.cdc")
OWN = frozenset({"pg_catalog", "information_schema"})
_AT_ONCE = 20_000  # messages of a peek; PostgreSQL ends it after the transaction in which they become so many
_PAUSES_S = (0.02, 0.05, 0.1, 0.2, 0.5)
_OPTIONS = (
    "-c client_encoding=UTF8 -c timezone=UTC -c datestyle=ISO -c intervalstyle=postgres -c extra_float_digits=1 "
    "-c bytea_output=hex"
)
_REFUSALS = ("authentication failed", "no password supplied", "no pg_hba.conf entry", "does not exist")
_PEEK = (
    "select data from pg_logical_slot_peek_binary_changes(%s, null, %s, 'proto_version', '1', 'publication_names', %s)"
)
_UNPUBLISHED = (
    "select to_regclass(format('%%I.%%I', %s::text, %s::text)) is not null and not exists "
    "(select 1 from pg_publication_tables where pubname = %s and schemaname = %s and tablename = %s)"
)
_PLACE = "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s"
_TABLES = (  # those of the publication, or if there is none yet, all
    "select n.nspname, c.relname, c.reltuples, has_table_privilege(c.oid, 'select'), c.relkind = 'p' or "
    "pg_relation_size(c.oid) > 0 from pg_class c join pg_namespace n on n.oid = c.relnamespace where case when exists "
    "(select 1 from pg_publication where pubname = %(publication)s) then (n.nspname, c.relname) in (select schemaname, "
    "tablename from pg_publication_tables where pubname = %(publication)s) else c.relkind = 'r' and c.relpersistence = "
    "'p' end and n.nspname !~ '^(pg_|information_schema$)' order by 1, 2"
)
_NAMES = (
    "select nspname::text, '' from pg_catalog.pg_namespace union all "
    "select schemaname::text, tablename::text from pg_catalog.pg_tables"
)


@dataclass(frozen=True, slots=True)
class ReplicationSlot:
    """Which database (`conninfo`, as libpq takes it), by which slot, of which publication."""

    conninfo: str
    name: str
    publication: str


class Older(NamedTuple):
    """Whose rows count, and what raises if there are some."""

    wanted: Callable[[str, str], bool]
    check: Callable[[Sequence[OlderRows]], None]


class SlotReader:
    """A `Source` over one slot. `skip` names transactions that are left out, by their commit's LSN; `refusal` says what is
    done about a row that cannot be read."""

    def __init__(
        self,
        slot: ReplicationSlot,
        position: Position,
        wanted: TableFilter,
        clock: Clock,
        *,
        skip: frozenset[str] = frozenset(),
        refusal: Refusal = stop,
    ) -> None:
        self._slot, self._clock = slot, clock
        with ExitStack() as opened, _errors_of_postgres(slot):
            self._reading = opened.enter_context(_connected(slot))
            self._asking = opened.enter_context(_connected(slot))
            self._decoding = Decoder(position, wanted, TableCatalog(self._asking), skip=skip, refusal=refusal)
            if self._reading.info.parameter_status("server_encoding") == "SQL_ASCII":
                self._reading.execute(
                    "set client_encoding to 'SQL_ASCII'"
                )  # PostgreSQL would refuse all that is no UTF-8
            self._check(position)
            self._check_published(wanted)
            self.stored(position)  # 3 of the last time, which a crash may have left undone
            self._opened = opened.pop_all()

    def items(self) -> Iterator[Item]:
        """Changes and marks, without end."""
        backoff, most = Backoff(_PAUSES_S, self._clock), _AT_ONCE
        while True:
            count, before = 0, self._decoding.lsn
            with _errors_of_postgres(self._slot):
                written = self._written()
                for message in self._peeked(most):
                    count += 1
                    if count == 1:
                        self._check_slot(self._stored)
                    yield from self._decoding.take(message)
                if not count:
                    self._check_slot(self._stored)
            if self._decoding.lsn != before:
                backoff.succeeded()
                most = _AT_ONCE
                continue
            if count >= most:  # all of it was read before, and the slot is not there yet: what is new lies behind it
                most *= 2
                continue
            if written > before:
                self._decoding.lsn = written  # nothing that the capture wants lies before it
                yield SourceMark.COMMITTED
            yield SourceMark.QUIET
            backoff.sleep()

    def position(self) -> Position:
        return self._decoding.position()

    def reached(self, end: str) -> bool:
        return self._decoding.lsn >= lsn_number(end)

    def stored(self, position: Position) -> None:
        """Step 3."""
        self._stored = position.place
        with _errors_of_postgres(self._slot):
            self._asking.execute(
                "select pg_replication_slot_advance(slot_name, %s::pg_lsn) from pg_replication_slots "
                "where slot_name = %s and confirmed_flush_lsn < %s::pg_lsn",
                (position.place, self._slot.name, position.place),
            )

    def close(self) -> None:
        self._opened.close()

    def _written(self) -> int:
        """A place before which every record is whole and on disk, so that the next peek sees each commit before it.

        A flush alone may end in the middle of a record: a commit that begins before such a place and ends behind it
        would be taken for one that was read. So the end of the last record is taken, and only once it was flushed.
        """
        inserted, flushed = self._one("select pg_current_wal_insert_lsn()::text, pg_current_wal_flush_lsn()::text")
        return lsn_number(inserted) if lsn_number(flushed) >= lsn_number(inserted) else 0

    def _peeked(self, most: int) -> Iterator[bytes]:
        """Step 1, in pieces: a transaction of a million rows is not held here as a whole."""
        with self._reading.transaction(), self._reading.cursor(name="peeked", binary=True) as cursor:
            cursor.itersize = 2000
            cursor.execute(_PEEK, (self._slot.name, most, self._slot.publication))
            for (message,) in cursor:
                yield bytes(message)

    def _one(self, query: str, *arguments: Any) -> Any:
        return self._asking.execute(query, arguments).fetchone()

    def _check_slot(self, place: str) -> None:
        """Rule 1; also after a peek has begun, for somebody else may read from the slot at any time."""
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

    def _check_published(self, wanted: TableFilter) -> None:
        """A publication that was made for other tables is never changed; what it lacks would be missed without a word."""
        for schema, table in wanted.names():
            (missing,) = self._one(_UNPUBLISHED, schema, table, self._slot.publication, schema, table)
            if missing:
                raise UsageError(
                    f"The publication {self._slot.publication} does not bring {schema}.{table}: ALTER PUBLICATION "
                    f"{self._slot.publication} ADD TABLE {schema}.{table}. Of a partitioned table, ask for its partitions."
                )


def begun(slot: ReplicationSlot, tables: list[str], older: Older | None = None) -> Position:
    """Where a capture begins that has no position yet: the slot's place. Slot and publication are made if missing.

    `older` is what to do about rows that a new slot does not bring: it is called before the slot is made, and once more of
    what the database held in the moment in which the slot began; if it raises, there is no slot.
    """
    with _errors_of_postgres(slot), _connected(slot) as connection:
        (level,) = connection.execute("show wal_level").fetchone() or ("",)
        if level != "logical":
            raise UsageError(f"wal_level is {level}: set it to logical in postgresql.conf, and start PostgreSQL anew.")
        if found := connection.execute(_PLACE, (slot.name,)).fetchone():
            if older is not None:  # who made it knows what it has not
                log.warning("The slot %s is there already: the capture begins at its place, %s.", slot.name, found[0])
        elif older is not None and (rows := _older(connection, slot, older.wanted)):
            older.check(rows)
            older = None  # accepted
        if not connection.execute("select 1 from pg_publication where pubname = %s", (slot.publication,)).fetchone():
            which = sql.SQL("for all tables")
            if tables:
                listed = sql.SQL(", ").join(sql.Identifier(*table.split(".", 1)) for table in tables)
                which = sql.SQL("for table {}").format(listed)
            with _superuser_wanted_for_all_tables():
                connection.execute(sql.SQL("create publication {} {}").format(sql.Identifier(slot.publication), which))
        if found is None and older is not None:
            return Position(_made_and_looked_at(connection, slot, older))
        if found is None:
            query = "select lsn::text from pg_create_logical_replication_slot(%s, 'pgoutput')"
            found = connection.execute(query, (slot.name,)).fetchone()
        return Position(str(found[0]) if found else lsn_text(0))


def _made_and_looked_at(connection: psycopg.Connection[Any], slot: ReplicationSlot, older: Older) -> str:
    """Make the slot, and look at the database by the snapshot with which it begins; only a walsender gives that away."""
    with psycopg.connect(slot.conninfo, autocommit=True, connect_timeout=10, replication="database") as making:
        place, snapshot = _with_snapshot(making, slot.name)
        try:
            with _connected(slot) as looking:
                looking.execute("begin isolation level repeatable read read only")
                looking.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot)))
                older.check(_older(looking, slot, older.wanted))
        except BaseException:
            connection.execute("select pg_drop_replication_slot(%s)", (slot.name,))
            raise
    return place


def _with_snapshot(making: psycopg.Connection[Any], name: str) -> tuple[str, str]:
    """The place at which a new slot begins, and the snapshot that has what was committed before it."""
    command = sql.SQL("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput EXPORT_SNAPSHOT").format(sql.Identifier(name))
    result = making.pgconn.exec_(command.as_bytes(making))  # walsenders take the simple protocol only
    if result.status != psycopg.pq.ExecStatus.TUPLES_OK:
        raise psycopg.errors.error_from_result(result)
    place, snapshot = result.get_value(0, 1), result.get_value(0, 2)
    assert place is not None
    assert snapshot is not None
    return place.decode(), snapshot.decode()


def _older(
    connection: psycopg.Connection[Any], slot: ReplicationSlot, wanted: Callable[[str, str], bool]
) -> list[OlderRows]:
    """Wanted tables with rows: a slot that is made now brings none of them."""
    found = []
    for schema, table, estimate, allowed, size in connection.execute(
        _TABLES, {"publication": slot.publication}
    ).fetchall():
        if not wanted(schema, table) or not size:
            continue
        name = f"{schema}.{table}"
        if not allowed:
            found.append(OlderRows(name, int(estimate), True) if estimate > 0 else OlderRows(name, None))
            continue
        counting = sql.SQL("select count(*) from (select 1 from {} limit {}) as counted")
        (counted,) = connection.execute(counting.format(sql.Identifier(schema, table), COUNTED + 1)).fetchone() or (0,)
        if counted:
            found.append(sized(name, int(counted), int(estimate)))
    return found


def tables(slot: ReplicationSlot) -> list[tuple[str, str]]:
    """Schema and name of each table of the database; each schema with "" too, as `public.*` may have no table."""
    with _errors_of_postgres(slot), _connected(slot) as connection:
        found = connection.execute(_NAMES).fetchall()
    return [(str(schema), str(table)) for schema, table in found]


def current(slot: ReplicationSlot) -> str:
    """The place up to which everything that is committed now has been written."""
    with _errors_of_postgres(slot), _connected(slot) as connection:
        found = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone()
    return str(found[0]) if found else lsn_text(0)


def _connected(slot: ReplicationSlot) -> psycopg.Connection[Any]:
    return psycopg.connect(
        slot.conninfo, autocommit=True, options=_OPTIONS, connect_timeout=10, application_name="waterclock"
    )


@contextmanager
def _superuser_wanted_for_all_tables() -> Iterator[None]:
    try:
        yield
    except psycopg.errors.InsufficientPrivilege as error:
        if "FOR ALL TABLES" not in str(error):
            raise
        raise UsageError(
            "Only a superuser may publish all tables, and this role is none. Name the tables: --tables SCHEMA.TABLE for "
            "each, which the role must own; or have a superuser make the publication (--publication)."
        ) from None


@contextmanager
def _errors_of_postgres(slot: ReplicationSlot) -> Iterator[None]:
    """PostgreSQL's errors by whose doing; what it says has no password in it."""
    try:
        yield
    except psycopg.OperationalError as error:
        if error.sqlstate is None and any(word in str(error) for word in _REFUSALS):
            raise UsageError(
                f"PostgreSQL does not let this role in: {unstopped(error)}. Give the right role, database and password "
                "(--password-file, or PGPASSWORD)."
            ) from None
        if isinstance(error, psycopg.errors.ObjectNotInPrerequisiteState):
            raise UsageError(
                f"The slot {slot.name} cannot be read: {unstopped(error)}. If its WAL is gone (max_slot_wal_keep_size), "
                "bring the target up to date by hand, and start anew under another --name."
            ) from None
        if error.sqlstate is None and "connection failed" in str(error):
            raise EnvironmentMissing(
                f"There is no PostgreSQL to talk to: {unstopped(error)}. Is it running there?"
            ) from None
        raise ConnectionLost(f"The connection to PostgreSQL broke: {unstopped(error)}.") from None
    except psycopg.DataError as error:
        raise UsageError(
            f"PostgreSQL cannot send its changes as UTF-8: {unstopped(error)}. "
            "A database with the encoding SQL_ASCII holds "
            "bytes of which nobody knows the character set: leave such tables out (--publication)."
        ) from None
    except psycopg.Error as error:
        raise UsageError(
            f"PostgreSQL does not let its changes be read: {unstopped(error)}. The role needs REPLICATION, and must own "
            "the tables or be given a publication that exists (--publication)."
        ) from None
