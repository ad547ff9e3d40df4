"""Where a caller's position is kept: in a file, or in a database, in the very transaction of what the caller writes.

                      one process at a time                        exactly once
    FilePosition      a lock of the file, on this machine:         no: a crash between what the caller does and the commit
                      another start is refused                     brings the batch again
    SqlPosition       the later start has it: the earlier one's    yes, of what is written over the same connection
                      next commit is refused, wherever it runs

Rule 1: a position moves forward, and only by a commit of the caller's; what was handed out and not committed comes again.
Rule 2: a file is replaced whole and flushed. A damaged one gets another name, is never removed, and is said.
Rule 3: between two commits the connection's transaction is the batch's: what stands in it goes with the position or not at
        all. So a connection that commits each statement by itself is refused.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from waterclock.cdc.position import Position
from waterclock.cdc.source import POSITIONS
from waterclock.disk import AnyPath, FileLock, WithoutLocks, make_folder, read_sealed, set_aside, write_sealed
from waterclock.errors import UsageError
from waterclock.outside import os, uuid


@runtime_checkable
class PositionStore(Protocol):
    """`name` is the capture's, of which slot, publication and server id are made if they are not given."""

    name: str

    def claim(self) -> Position | None:
        """Take the position, and say what it is; None: there is none yet. UsageError if another process has it."""

    def commit(self, position: Position) -> None:
        """Keep it, and with it what the caller wrote. UsageError if another process has it by now."""

    def abandon(self) -> None:
        """A batch was handed out that is not committed: what was written of it is to go."""

    def release(self) -> None:
        """Nobody reads any more."""


class FilePosition:
    """In the file at `path`, which is made if it is missing; the lock lies beside it."""

    def __init__(self, path: AnyPath, name: str = "") -> None:
        self._path = os.path.abspath(path)
        self.name = name or Path(self._path).stem
        self._lock = FileLock(f"{self._path}.lock", WithoutLocks.REFUSE)

    def claim(self) -> Position | None:
        make_folder(os.path.dirname(self._path))
        try:
            self._lock.take()
        except BlockingIOError:
            raise UsageError(
                f"Another process reads changes with the position in {self._path}. End it first, or keep this one's in "
                "another file."
            ) from None
        try:
            return self._read()
        except BaseException:
            self._lock.release()
            raise

    def _read(self) -> Position | None:
        try:
            return Position.parsed(json.dumps(read_sealed(self._path)).encode())
        except FileNotFoundError:
            return None
        except (ValueError, LookupError, TypeError) as error:
            aside = set_aside(self._path, f"{self._path}.damaged")
            raise UsageError(
                f"The position in {self._path} is damaged ({error}); it is {aside} now, nothing of it was removed. Put a "
                "copy back; or begin anew, and compare what was written until now with the database."
            ) from None

    def commit(self, position: Position) -> None:
        write_sealed(self._path, json.loads(position.as_json()))

    def abandon(self) -> None:
        """Nothing was written here."""

    def release(self) -> None:
        self._lock.release()


class SqlPosition:
    """In the table `waterclock_position` of the caller's database, by a DB-API connection: of sqlite3, psycopg, PyMySQL, or
    SQLAlchemy's raw_connection(). The table is made if it is missing."""

    def __init__(self, connection: Any, name: str = "changes") -> None:
        self.name, self._connection, self._owner = name, connection, str(uuid.uuid4())
        real = getattr(connection, "dbapi_connection", connection)
        module = type(real).__module__.partition(".")[0]
        self._errors: type[Exception] = sys.modules[module].Error
        style = sys.modules[module].paramstyle
        if style not in ("qmark", "format", "pyformat"):
            raise UsageError(f"{module} marks parameters by {style}: use sqlite3, psycopg or PyMySQL.")
        self._mark = "?" if style == "qmark" else "%s"
        self._is_mysql = any(word in module.lower() for word in ("mysql", "maria"))
        if _commits_itself(real):
            raise UsageError(
                "This connection commits each statement by itself, so rows could stay without their position. Open it "
                "without autocommit (sqlite3: not with isolation_level=None)."
            )

    def claim(self) -> Position | None:
        taken = f"update {POSITIONS} set owner = ?, commits = commits + 1 where name = ?"
        self._run("savepoint waterclock_claim").close()  # what the caller has written before stays
        try:
            is_there = self._changed(taken, self._owner, self.name)
        except self._errors:
            self._run("rollback to savepoint waterclock_claim").close()
            long, engine = ("longtext", " engine=InnoDB") if self._is_mysql else ("text", "")
            self._run(
                f"create table if not exists {POSITIONS} (name varchar(190) primary key, place {long} not null, "
                f"owner varchar(40) not null, commits bigint not null){engine}"
            ).close()
            is_there = self._changed(taken, self._owner, self.name)
        if not is_there:
            try:
                self._run(f"insert into {POSITIONS} values (?, '', ?, 0)", self.name, self._owner).close()
            except self._errors:
                self._connection.rollback()
                raise self._overtaken() from None
        self._connection.commit()
        cursor = self._run(f"select place from {POSITIONS} where name = ?", self.name)
        found = cursor.fetchone()
        (place,) = (
            found.values() if isinstance(found, Mapping) else found
        )  # PyMySQL has a DictCursor, psycopg a dict_row
        cursor.close()
        self._connection.commit()
        return Position.parsed(place.encode()) if place else None

    def commit(self, position: Position) -> None:
        """1. write the position beside what the caller wrote, if this start still has it    2. commit both."""
        stored = f"update {POSITIONS} set place = ?, commits = commits + 1 where name = ? and owner = ?"
        if not self._changed(stored, position.as_json().decode(), self.name, self._owner):  # 1
            self._connection.rollback()
            raise self._overtaken()
        self._connection.commit()  # 2

    def abandon(self) -> None:
        with suppress(self._errors):  # it may be gone, and with it what was not committed
            self._connection.rollback()

    def release(self) -> None:
        """Nothing to do: the connection is the caller's, and the next start takes the position over."""

    def _overtaken(self) -> UsageError:
        return UsageError(
            f"Another process has taken over the position {self.name!r} in this database; what this one wrote since its "
            "last commit is rolled back. Let one of them go, or give them different names: SqlPosition(connection, name)."
        )

    def _changed(self, statement: str, *arguments: str) -> bool:
        """Whether it found its row; `commits` rises with each, for MySQL counts only what became different."""
        cursor = self._run(statement, *arguments)
        found = cursor.rowcount
        cursor.close()
        return bool(found)

    def _run(self, statement: str, *arguments: str) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(statement.replace("?", self._mark), arguments)
        return cursor


def _commits_itself(connection: Any) -> bool:
    if hasattr(connection, "get_autocommit"):  # PyMySQL
        return bool(connection.get_autocommit())
    if isinstance(itself := getattr(connection, "autocommit", None), bool):  # psycopg, and sqlite3 since Python 3.12
        return itself
    return getattr(connection, "isolation_level", "") is None
