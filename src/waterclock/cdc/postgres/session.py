"""Connections to PostgreSQL, and what it says when it refuses, in our words: by whose doing.

Rule 1: what is printed depends on the session: character set, time zone, date style and digits are set here.
Rule 2: row-level security hides rows without an error: here it is one.
Rule 3: a limit of time that the role has (statement_timeout, lock_timeout) is none of ours: what is waited for is said.
Rule 4: an operator is looked for where its name is seen. A key's type may be an extension's in a schema that the role
        does not see: then `>` would be the one of text, and another order. So all schemas are seen that have such.
Rule 5: a standby has no changes to give: one that answers for a primary, while another takes over, is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg

from waterclock.errors import ConnectionLost, EnvironmentMissing, UsageError, unstopped

_OPTIONS = (
    "-c client_encoding=UTF8 -c timezone=UTC -c datestyle=ISO -c intervalstyle=postgres -c extra_float_digits=1 "
    "-c bytea_output=hex -c row_security=off"
)
_SESSION = (  # rules 3 and 4; the options of a connection must be known to each version of PostgreSQL
    "select set_config(name, '0', false) from pg_settings where name in ('statement_timeout', 'lock_timeout', "
    "'idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout') union all "
    "select set_config('search_path', concat_ws(', ', nullif(current_setting('search_path'), ''), "
    "string_agg(distinct quote_ident(nspname), ', ')), false) from pg_opclass join pg_namespace n on n.oid = opcnamespace "
    "where nspname <> 'pg_catalog'"
)
_REFUSALS = ("authentication failed", "no password supplied", "no pg_hba.conf entry", "does not exist")


@dataclass(frozen=True, slots=True)
class ReplicationSlot:
    """Which database (`conninfo`, as libpq takes it), by which slot, of which publication."""

    conninfo: str
    name: str
    publication: str


def connected(slot: ReplicationSlot) -> psycopg.Connection[Any]:
    return _opened(slot, application_name="waterclock")


def walsender(slot: ReplicationSlot) -> psycopg.Connection[Any]:
    """A connection that takes the commands of replication; by a client cursor, for it knows the simple protocol only. The
    server's pg_stat_replication shows it by the slot's name, which has the capture's in it."""
    return _opened(slot, application_name=slot.name, replication="database", cursor_factory=psycopg.ClientCursor)


def _opened(slot: ReplicationSlot, **given: Any) -> psycopg.Connection[Any]:
    connection: psycopg.Connection[Any] = psycopg.connect(
        slot.conninfo,
        autocommit=True,
        options=_OPTIONS,
        connect_timeout=10,
        target_session_attrs="primary",  # rule 5
        **given,
    )
    try:
        connection.execute(_SESSION)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def errors_of_postgres(slot: ReplicationSlot) -> Iterator[None]:
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
        if error.sqlstate is None and "hot standby" in str(error):
            raise EnvironmentMissing(
                f"A standby answers in place of the primary, whose changes are read: {unstopped(error)}. Name the primary, "
                "or wait until this one is promoted."
            ) from None
        if error.sqlstate is None and "connection failed" in str(error):
            raise EnvironmentMissing(
                f"There is no PostgreSQL to talk to: {unstopped(error)}. Is it running there?"
            ) from None
        raise ConnectionLost(f"The connection to PostgreSQL broke: {unstopped(error)}.") from None
    except psycopg.DataError as error:
        raise UsageError(
            f"PostgreSQL cannot send its changes as UTF-8: {unstopped(error)}. A database with the encoding SQL_ASCII "
            "holds bytes of which nobody knows the character set: leave such tables out (--publication)."
        ) from None
    except psycopg.Error as error:
        raise UsageError(
            f"PostgreSQL does not let its changes be read: {unstopped(error)}. The role needs REPLICATION, and must own "
            "the tables or be given a publication that exists (--publication)."
        ) from None
