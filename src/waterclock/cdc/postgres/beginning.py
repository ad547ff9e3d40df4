"""Where a capture of PostgreSQL begins that has no position yet: its publication and its slot, made if they are missing.

Rule 1: a slot that is made now brings none of the rows that are there: it is made once that was said, and the database is
        looked at by the very snapshot with which it begins. One that is there already says no more about them.
Rule 2: PostgreSQL makes a slot when all transactions have ended that are open: that may take as long as somebody likes. It
        is said who is waited for. Ctrl-C is heard meanwhile, and leaves no slot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import psycopg
from psycopg import sql

from waterclock.cdc.position import Position
from waterclock.cdc.postgres.publication import Publication, looked_at
from waterclock.cdc.postgres.session import ReplicationSlot, connected, errors_of_postgres, walsender
from waterclock.cdc.source import COUNTED, OlderRows, check, sized
from waterclock.errors import UsageError
from waterclock.outside import threading

log = logging.getLogger("waterclock.cdc")
SAID_AFTER_S, SAID_AGAIN_S = 1.0, 60.0
_PLACE = "select confirmed_flush_lsn::text from pg_replication_slots where slot_name = %s"
_TABLES = (  # those of the publication, or if there is none yet, all
    "select n.nspname, c.relname, c.reltuples, has_table_privilege(c.oid, 'select') and not "
    "row_security_active(c.oid), c.relkind = 'p' or pg_relation_size(c.oid) > 0 "
    "from pg_class c join pg_namespace n on n.oid = c.relnamespace where case when exists "
    "(select 1 from pg_publication where pubname = %(publication)s) then (n.nspname, c.relname) in (select schemaname, "
    "tablename from pg_publication_tables where pubname = %(publication)s) else c.relkind = 'r' and c.relpersistence = "
    "'p' end and n.nspname !~ '^(pg_|information_schema$)' order by 1, 2"
)
_OPEN = (
    "select format('of %%s (pid %%s%%s), open since %%s', coalesce(usename, 'somebody'), pid, "
    "coalesce(', ' || nullif(application_name, ''), ''), "
    "coalesce(date_trunc('second', xact_start)::text, 'an unknown time')) "
    "from pg_stat_activity where backend_xid is not null and pid <> %s union all "
    "select format('of %%s, prepared as %%s at %%s', owner, gid, date_trunc('second', prepared)) from pg_prepared_xacts"
)


class Older(NamedTuple):
    """Whose rows count, and what raises if there are some: it is given the place of a slot that was there before, or ""."""

    wanted: Callable[[str, str], bool]
    check: Callable[[Sequence[OlderRows], str], None]


def refuse_older(slot: ReplicationSlot, rows: Sequence[OlderRows], there: str, accepted: bool) -> None:
    """UsageError for rows that would be missing, unless that is `accepted`; `there`: the place of a slot that was there."""
    why = "A slot that is made now brings none of the rows that are there"
    if there:
        why = (
            f"The slot {slot.name} is there already, at {there}, and this capture has no position: up to so many rows may "
            "be older (if nobody knows the slot, a first start that was killed left it: drop it)"
        )
    check(rows, why, accepted)


def begun(
    slot: ReplicationSlot,
    tables: list[str],
    older: Older | None = None,
    published: Callable[[Publication], object] = lambda publication: None,
) -> Position:
    """Where a capture begins that has no position yet: the slot's place. Slot and publication are made if missing.

    `older` is what to do about rows that are there: it is called before the slot is made, and once more of what the
    database held in the moment in which the slot began; if it raises, there is no slot that was not there before. The same
    goes for `published`, which is given a publication that is there.
    """
    with errors_of_postgres(slot), connected(slot) as connection:
        (level,) = connection.execute("show wal_level").fetchone() or ("",)
        if level != "logical":
            raise UsageError(f"wal_level is {level}: set it to logical in postgresql.conf, and start PostgreSQL anew.")
        is_published = connection.execute(
            "select 1 from pg_publication where pubname = %s", (slot.publication,)
        ).fetchone()
        if is_published:
            published(looked_at(connection, slot.publication))
        found = connection.execute(_PLACE, (slot.name,)).fetchone()
        if found and older is not None:
            log.warning("The slot %s is there already: the capture begins at its place, %s.", slot.name, found[0])
        if older is not None and (rows := older_rows(connection, slot, older.wanted)):
            older.check(rows, found[0] if found else "")
            older = None  # accepted
        if not is_published:
            which = sql.SQL("for all tables")
            if tables:
                listed = sql.SQL(", ").join(sql.Identifier(*table.split(".", 1)) for table in tables)
                which = sql.SQL("for table {}").format(listed)
            with _superuser_wanted_for_all_tables():
                connection.execute(sql.SQL("create publication {} {}").format(sql.Identifier(slot.publication), which))
        return Position(str(found[0]) if found else _made_and_looked_at(connection, slot, older))


def _made_and_looked_at(connection: psycopg.Connection[Any], slot: ReplicationSlot, older: Older | None) -> str:
    """Make the slot, and look at the database by the snapshot with which it begins; only a walsender gives that away."""
    with walsender(slot) as making:
        with _said_who_is_waited_for(slot, making.info.backend_pid):
            place, snapshot = _with_snapshot(making, slot.name)
        try:
            if older is not None:
                with connected(slot) as looking:
                    looking.execute("begin isolation level repeatable read read only")
                    looking.execute(sql.SQL("set transaction snapshot {}").format(sql.Literal(snapshot)))
                    if rows := older_rows(looking, slot, older.wanted):
                        older.check(rows, "")
        except BaseException:
            connection.execute("select pg_drop_replication_slot(%s)", (slot.name,))
            raise
    return place


def _with_snapshot(making: psycopg.Connection[Any], name: str) -> tuple[str, str]:
    """The place at which a new slot begins, and the snapshot that has what was committed before it."""
    command = sql.SQL("CREATE_REPLICATION_SLOT {} LOGICAL pgoutput EXPORT_SNAPSHOT").format(sql.Identifier(name))
    found = making.execute(command).fetchone()  # a client cursor: walsenders take the simple protocol only
    assert found is not None
    return str(found[1]), str(found[2])


@contextmanager
def _said_who_is_waited_for(slot: ReplicationSlot, own_pid: int) -> Iterator[None]:
    """Rule 2, by a thread and connections of its own: this one waits."""
    over = threading.Event()

    def say() -> None:
        pause_s = SAID_AFTER_S
        while not over.wait(pause_s):
            pause_s = SAID_AGAIN_S
            with suppress(psycopg.Error), connected(slot) as asking:
                log.warning(
                    "The slot %s waits until every transaction has ended that is open: %s. Ctrl-C gives up.",
                    slot.name,
                    "; ".join(row[0] for row in asking.execute(_OPEN, (own_pid,))) or "which one is not seen",
                )

    saying = threading.Thread(target=say, daemon=True)
    saying.start()
    try:
        yield
    finally:
        over.set()
        saying.join()


def older_rows(
    connection: psycopg.Connection[Any], slot: ReplicationSlot, wanted: Callable[[str, str], bool]
) -> list[OlderRows]:
    """Wanted tables with rows, of those that the publication brings."""
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
