"""A connection to PostgreSQL: transactions of ours, what goes wrong in a sentence, a new connection after a lost one.

Rule 1: transactions are begun and ended by statements of ours. In between a lost connection is an error and never
    replaced: what came after would stand outside of the transaction.
Rule 2: nothing is set or prepared beyond a transaction, so that a pooler of connections may stand between.
Rule 3: the password comes from PGPASSWORD or a file of passwords. The URL holds none, so it may be shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from waterclock.errors import CommitUnknown, SinkLost, UsageError, unstopped
from waterclock.postgres.url import postgres_url

_PATIENCE = "90s"  # for another writer's transaction; longer than the server needs to notice that one has vanished
# A server that vanished without a word is noticed after about a minute; the URL may say otherwise.
_DEFAULTS = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
    "fallback_application_name": "waterclock",
}
# A writer that vanished without a word is noticed by the server likewise: until then it would hold the lock.
_IN_A_TRANSACTION = {
    "lock_timeout": _PATIENCE,
    "tcp_keepalives_idle": "30",
    "tcp_keepalives_interval": "10",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "60s",
}
# Class 08: the connection; 57P: the server ends it; 25P03 and 25P04: it was idle, or in a transaction, for too long.
_GONE = ("08", "57P", "25P03", "25P04")


class PostgresSession:
    """One connection at a time, made when it is first needed. Called by one thread at a time."""

    def __init__(self, url: str) -> None:
        self.url = postgres_url(url)
        self._db: Any = None
        self._begun = False

    def begin(self, lock: str) -> None:
        """Begin a transaction, alone among those that name the same `lock`; it survives a crash once committed."""
        self.ask("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        self._begun = True
        self.run("; ".join(f"SET LOCAL {name} = '{value}'" for name, value in _IN_A_TRANSACTION.items()))
        self.run(
            "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
        )
        self.run("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", f"waterclock {lock}")

    def commit(self) -> None:
        """End the transaction. CommitUnknown if the answer did not come."""
        try:
            with self._errors_of_postgres():
                done = self._connected().execute("COMMIT").statusmessage
        except SinkLost as error:
            raise CommitUnknown(f"{error} A commit was not answered; it may have got through.") from error
        finally:
            self._begun = False
        if done != "COMMIT":  # PostgreSQL answers so, and with no error, if a statement before had failed
            raise RuntimeError("a transaction was committed that had failed: it was undone")

    def rollback(self) -> None:
        """Undo the transaction; nothing if none was begun, or if the connection is gone."""
        begun, self._begun = self._begun, False
        if not begun or self._db.closed:
            return
        try:
            self._db.execute("ROLLBACK")
        except psycopg.Error:  # then the server undoes it when the connection ends
            self._db.close()

    @property
    def connection(self) -> Any:
        """psycopg's connection, for statements of a user's within a transaction that was begun here."""
        return self._connected()

    def run(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """The rows that a statement gives, if any. A percent sign is itself if there are no parameters."""
        with self._errors_of_postgres():
            cursor = self._connected().execute(statement, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def ask(self, query: str, *parameters: object) -> list[tuple[Any, ...]]:
        """`run` outside of a transaction, once more if the connection had gone away since it was last used."""
        try:
            return self.run(query, *parameters)
        except SinkLost:
            return self.run(query, *parameters)

    @contextmanager
    def copy(self, statement: str) -> Iterator[Any]:
        """What takes the bytes of a COPY FROM STDIN; with its end they are in the table, with an error none is."""
        with self._errors_of_postgres(), self._connected().cursor() as cursor, cursor.copy(statement) as copy:
            yield copy

    def close(self) -> None:
        """Close the connection; a transaction that is open is undone."""
        if self._db is not None:
            self._db.close()

    # The connection --------------------------------------------------------------------------------------------

    def _connected(self) -> Any:
        if self._db is None or (self._db.closed and not self._begun):
            self._db = self._connect()
        return self._db

    def _connect(self) -> Any:
        try:
            given = conninfo_to_dict(self.url)
            more = {name: value for name, value in _DEFAULTS.items() if name not in given}
            more["client_encoding"] = "utf8"
            db = psycopg.connect(self.url, autocommit=True, prepare_threshold=None, **more)
        except psycopg.Error as error:
            if self._db is not None:
                raise self._lost(error) from error
            raise UsageError(
                f"cannot connect to {self.url}: {unstopped(error)}. "
                "Is the server there, and are user and database its own? "
                "A password is taken from PGPASSWORD, or from the file that PGPASSFILE names."
            ) from error
        encoding = db.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            db.close()
            raise UsageError(
                f"the database at {self.url} has the encoding {encoding}, which does not hold every text: make one "
                "with CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0, and name it in url of [sink]"
            )
        return db

    @contextmanager
    def _errors_of_postgres(self) -> Iterator[None]:
        """What PostgreSQL says, as an error of ours."""
        try:
            yield
        except errors.LockNotAvailable as error:
            raise UsageError(
                f"another transaction has held the tables in {self.url} for {_PATIENCE}: is a second pipeline writing "
                "there? Stop one of the two. What was committed stays."
            ) from error
        except psycopg.Error as error:
            if self._db.closed or (error.sqlstate or "").startswith(_GONE):
                self._db.close()
                raise self._lost(error) from error
            raise UsageError(
                f"{self.url} refused what was to be written: {unstopped(error)}. What was committed stays; the same "
                "command goes on from there when the cause is mended."
            ) from error

    def _lost(self, error: Exception) -> SinkLost:
        return SinkLost(
            f"the connection to {self.url} went away: {unstopped(error)}. What was committed stays; the same command goes "
            "on from there when the server is back."
        )
