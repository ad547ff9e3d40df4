"""A connection to MySQL or MariaDB: transactions of ours, what goes wrong in a sentence, a new connection after a lost one.

Rule 1: who begins takes a lock of the server's (GET_LOCK), which ends with the connection. So does the transaction.
Rule 2: in a transaction a lost connection is an error and never replaced: what came after would stand outside of it.
Rule 3: the password comes from MYSQL_PWD. The URL holds none, so it may be shown.
Rule 4: a connection that is idle for 90 s is closed by the server: a run that stands still, or vanished without a word,
        keeps nobody waiting for longer. Between two transactions the next one comes by a new connection.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pymysql

from waterclock.errors import CommitUnknown, SinkLost, UsageError
from waterclock.sinks.mysql.destination import address_of

log = logging.getLogger(__name__)
_CONNECT_S = 10
_SMALLEST_LIMIT = 1 << 20  # of a statement, where a server says nothing else
_PATIENCE_S = 90  # for another writer's transaction, and for one that stands still
# by the standard's quotes; what does not fit is an error, and times are those that are given
_SESSION = (
    "SET SESSION sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', "
    f"wait_timeout = {_PATIENCE_S}, innodb_lock_wait_timeout = {_PATIENCE_S}"
)
# the server's and PyMySQL's words for a connection that is gone: shut down, killed, idle for too long, no answer
_GONE = (0, 1053, 1152, 1158, 1159, 1160, 1161, 1927, 2006, 2013, 2014, 2055, 3169, 4031)


class MySQLSession:
    """One connection at a time, made when it is first needed. Called by one thread at a time."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._address = address_of(url)
        self._db: Any = None
        self._lock: str | None = None  # held, with a transaction that was begun

    def begin(self, lock: str) -> None:
        """Begin a transaction, alone among those that name the same `lock`; it survives a crash once committed."""
        name = f"waterclock {hashlib.sha1(f'{self._address.database} {lock}'.encode()).hexdigest()}"
        ((taken,),) = self.ask("SELECT GET_LOCK(%s, %s)", name, _PATIENCE_S)
        if taken != 1:
            raise UsageError(
                f"another transaction has held the tables in {self.url} for {_PATIENCE_S} s: is a second pipeline writing "
                "there? Stop one of the two. What was committed stays."
            )
        self._lock = name
        self.run("START TRANSACTION")

    def commit(self) -> None:
        """End the transaction. CommitUnknown if the answer did not come."""
        try:
            self.run("COMMIT")
        except SinkLost as error:
            self._lock = None
            raise CommitUnknown(f"{error} A commit was not answered; it may have got through.") from error
        self._unlock()

    def rollback(self) -> None:
        """Undo the transaction; nothing if none was begun, or if the connection is gone."""
        if self._lock is None:
            return
        with suppress(SinkLost, UsageError):  # then the server undoes it when the connection ends
            if self._db.open:
                self.run("ROLLBACK")
        self._unlock()

    def _unlock(self) -> None:
        """Let the next one begin. What cannot be let go so goes with the connection."""
        name, self._lock = self._lock, None
        try:
            if self._db.open:
                self.run("SELECT RELEASE_LOCK(%s)", name)
        except (SinkLost, UsageError):
            self.close()

    def run(self, statement: str, *parameters: object) -> list[Any]:
        """The rows that a statement gives, if any. A percent sign is itself if there are no parameters."""
        with self._errors(), self._connected().cursor() as cursor:
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall())

    def run_many(self, statement: str, rows: Sequence[Sequence[object]], largest: int) -> None:
        """An INSERT of many rows, in statements of about 1 MB; `largest` are the bytes of the largest row."""
        ((limit,),) = self.run("SELECT @@max_allowed_packet") if largest > _SMALLEST_LIMIT else ((largest + 1,),)
        if largest >= limit:
            raise UsageError(
                f"a row of {largest} bytes is to be written, and {self.url} has max_allowed_packet = {limit}: raise it "
                "there. What was committed stays"
            )
        with self._errors(), self._connected().cursor() as cursor:
            cursor.executemany(statement, rows)

    def ask(self, query: str, *parameters: object) -> list[Any]:
        """`run` outside of a transaction, once more if the connection had gone away since it was last used."""
        try:
            return self.run(query, *parameters)
        except SinkLost:
            return self.run(query, *parameters)

    def close(self) -> None:
        """Close the connection; a transaction that is open is undone."""
        if self._db is not None and self._db.open:
            with suppress(pymysql.MySQLError, OSError):
                self._db.close()

    def _connected(self) -> Any:
        if self._db is not None and (self._db.open or self._lock is not None):
            return self._db
        where = self._address
        tls: dict[str, Any] = {"ssl": {"check_hostname": True}} if where.tls else {}
        try:
            db = pymysql.connect(
                host=where.host, port=where.port, user=where.user, password=os.environ.get("MYSQL_PWD", ""),
                database=where.database, charset="utf8mb4", autocommit=True, connect_timeout=_CONNECT_S,
                init_command=_SESSION, **tls,
            )  # fmt: skip
        except (pymysql.MySQLError, OSError) as error:
            if self._db is not None:
                raise self._lost(error) from error
            raise UsageError(
                f"cannot connect to {self.url}: {_words(error)}. Is the server there, and are user and database its own? "
                "A password is taken from MYSQL_PWD."
            ) from error
        if self._db is None:
            with db.cursor() as cursor:
                cursor.execute("SELECT @@innodb_flush_log_at_trx_commit")
                if cursor.fetchone() != (1,):
                    log.warning(
                        "%s has innodb_flush_log_at_trx_commit other than 1: after a power cut a commit that was answered "
                        "may be gone",
                        self.url,
                    )
        self._db = db
        return db

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """What MySQL says, as an error of ours."""
        try:
            yield
        except (pymysql.MySQLError, OSError) as error:
            code = error.args[0] if error.args else 0
            if code in _GONE or isinstance(error, OSError) or not self._db.open:
                self.close()
                raise self._lost(error) from error
            raise UsageError(
                f"{self.url} refused what was to be written: {_words(error)}. What was committed stays; the same command "
                "goes on from there when the cause is mended."
            ) from error

    def _lost(self, error: Exception) -> SinkLost:
        return SinkLost(
            f"the connection to {self.url} went away: {_words(error)}. What was committed stays; the same command goes on "
            "from there when the server is back."
        )


def _words(error: Exception) -> str:
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    return " ".join(text.split()).rstrip(".") or type(error).__name__
