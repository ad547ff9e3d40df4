"""A request as a row of the caller's database, in the caller's own transaction: it exists if and only if that commits.

    send, cancel, replace   INSERT INTO waterclock_outbox, over the caller's connection
    the caller's commit     the row is there; its rollback: it never was
    a relay with --outbox   takes it into its input, and removes the row (outbox/taker.py)

Rule 1: nothing is begun, ended or made here: a statement that makes a table would end MySQL's transaction.
Rule 2: a connection that would commit the row by itself is refused: it would be there whatever becomes of the rest.
Rule 3: a row names the moment at which it is due: a delay counts from the call, and not from when a relay takes the row.
Rule 4: headers are JSON, a list of pairs. Bytes that are no UTF-8 stand in it as lone surrogates, and come back the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from waterclock.errors import UsageError
from waterclock.relay.wire.request import AT, DELAY, Header

TABLE: Final = "waterclock_outbox"
COLUMNS: Final = ("relay", "place", "message_key", "message_value", "headers")
ANYWHERE: Final = -1  # the partition of a receipt whose row no relay has taken yet
_MAKE: Final = {
    "postgresql": f"""CREATE TABLE {TABLE} (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    relay text NOT NULL, place integer, message_key bytea, message_value bytea, headers text NOT NULL)""",
    "mysql": f"""CREATE TABLE {TABLE} (
    number bigint AUTO_INCREMENT PRIMARY KEY,
    relay varchar(249) NOT NULL, place integer, message_key longblob, message_value longblob, headers longtext NOT NULL
) ENGINE=InnoDB CHARACTER SET utf8mb4""",
}
_NO_TABLE: Final = ("42P01", 1146)  # PostgreSQL's state, MySQL's number
_IDLE: Final = 0  # libpq's PQTRANS_IDLE
_IN_TRANSACTION: Final = 1  # MySQL's SERVER_STATUS_IN_TRANS


def outbox_table(kind: str = "postgresql") -> str:
    """The statement that makes the table, for a migration: `kind` is postgresql or mysql (MariaDB too)."""
    if kind not in _MAKE:
        raise ValueError(f"kind must be {' or '.join(_MAKE)}, got {kind!r}")
    return _MAKE[kind]


class OutboxRow(NamedTuple):
    """A request to the relay of the topic `relay`. `place`: its partition; None: the key's, else the id's, and of a cancel
    without a key every one."""

    relay: str
    place: int | None
    key: bytes | None
    value: bytes | None
    headers: list[Header]

    def columns(self) -> tuple[object, ...]:
        """In the order of COLUMNS."""
        return self.relay, self.place, self.key, self.value, headers_text(self.headers)

    @classmethod
    def made(
        cls,
        relay: str,
        place: int | None,
        key: str | bytes | None,
        value: str | bytes | None,
        headers: Sequence[Header],
        now_ms: int,
    ) -> OutboxRow:
        """Rule 3. TypeError for a key or a value that is neither text nor bytes: each driver takes others, each its own.

        >>> OutboxRow.made("delays", None, "k", None, [("deliver-to", b"t"), ("delay", b"500")], 1_000).headers
        [('deliver-to', b't'), ('deliver-at', b'1500')]
        """
        due = [
            (AT, str(int(text or b"0") + now_ms).encode()) if name == DELAY else (name, text) for name, text in headers
        ]
        return cls(relay, place, _bytes("key", key), _bytes("value", value), due)


def headers_text(headers: Sequence[Header]) -> str:
    """Rule 4.

    >>> headers_text([("trace", b"x"), ("odd", b"\\xff")])
    '[["trace", "x"], ["odd", "\\\\udcff"]]'
    """
    return json.dumps(
        [[name, None if text is None else text.decode("utf-8", "surrogateescape")] for name, text in headers]
    )


def headers_of_text(text: str) -> list[Header]:
    """The headers; ValueError for a text that has none.

    >>> headers_of_text('[["trace", "x"], ["odd", "\\\\udcff"]]')
    [('trace', b'x'), ('odd', b'\\xff')]
    """
    try:
        found = json.loads(text)
        pairs = [(name, value) for name, value in found]
        if isinstance(found, list) and all(
            isinstance(name, str) and isinstance(value, str | None) for name, value in pairs
        ):
            return [
                (name, None if value is None else value.encode("utf-8", "surrogateescape")) for name, value in pairs
            ]
    except (ValueError, TypeError, RecursionError):
        pass
    raise ValueError(f"its headers are no list of pairs of texts: {text[:80]!r}")


def write(db: Any, row: OutboxRow) -> int:
    """Write the row over a connection of psycopg, PyMySQL or MySQLdb, a session or connection of SQLAlchemy's, or Django's
    `connection`; its number. UsageError if it would be committed by itself, or if there is no table."""
    if isinstance(db, CaughtRow):
        db.row = row
        return 0
    connection, kind = _connection_of(db)
    if _commits_itself(connection):
        raise _alone(db)
    cursor = connection.cursor()
    try:
        cursor.execute(_insert(["%s"] * len(COLUMNS), kind), row.columns())
        return _number(cursor.fetchone()) if kind == "postgresql" else int(cursor.lastrowid)
    except Exception as error:
        _say_if_missing(error, kind)
        raise
    finally:
        cursor.close()


async def write_awaited(db: Any, row: OutboxRow) -> int:
    """The same over an asynchronous connection of psycopg or asyncpg."""
    packages = _packages(db)
    try:
        if "asyncpg" in packages:
            if not db.is_in_transaction():
                raise _alone(db)
            marks = [f"${number}" for number in range(1, len(COLUMNS) + 1)]
            return int(await db.fetchval(_insert(marks, "postgresql"), *row.columns()))
        if "psycopg" in packages and hasattr(db, "__aenter__"):
            if _commits_itself(db):
                raise _alone(db)
            cursor = await db.execute(_insert(["%s"] * len(COLUMNS), "postgresql"), row.columns())
            return _number(await cursor.fetchone())
    except Exception as error:
        _say_if_missing(error, "postgresql")
        raise
    raise TypeError(f"db must be an asynchronous connection of psycopg or asyncpg, got {db!r}")


class CaughtRow:
    """Stands for a connection, and keeps the row that was to be written over it."""

    row: OutboxRow


def _number(row: Any) -> int:
    """What a row of one column says, whatever the connection makes of its rows (`dict_row`)."""
    (number,) = row.values() if isinstance(row, Mapping) else row
    return int(number)


def _insert(marks: Sequence[str], kind: str) -> str:
    back = " RETURNING number" if kind == "postgresql" else ""
    return f"INSERT INTO {TABLE} ({', '.join(COLUMNS)}) VALUES ({', '.join(marks)}){back}"


def _connection_of(db: Any) -> tuple[Any, str]:
    """What has a DB-API cursor, and the kind of its database; TypeError for anything else."""
    packages = _packages(db)
    if "sqlalchemy" in packages:
        found = db.connection() if callable(db.connection) else db  # of a session, which begins its transaction by that
        db = found.connection.dbapi_connection
        packages = _packages(db)
    if "django" in packages:
        db.ensure_connection()
        packages = {"postgresql": {"psycopg"}, "mysql": {"pymysql"}}.get(db.vendor, set())
    if "psycopg" in packages and not hasattr(db, "__aenter__"):
        return db, "postgresql"
    if packages & {"pymysql", "MySQLdb"}:
        return db, "mysql"
    raise TypeError(
        f"db must be a connection of psycopg or PyMySQL, a session of SQLAlchemy's or Django's connection, got {db!r}; "
        "asynchronous ones are for AsyncDelays"
    )


def _packages(db: object) -> set[str]:
    """Those that the classes of an object are from: a user's own class too has a driver's below it."""
    return {each.__module__.partition(".")[0] for each in type(db).__mro__}


def _commits_itself(connection: Any) -> bool:
    """Rule 2."""
    if hasattr(connection, "in_atomic_block"):  # Django
        return not (connection.in_atomic_block or not connection.get_autocommit())
    if hasattr(connection, "get_autocommit"):  # PyMySQL, MySQLdb
        return bool(connection.get_autocommit()) and not getattr(connection, "server_status", 0) & _IN_TRANSACTION
    return bool(connection.autocommit) and int(connection.info.transaction_status) == _IDLE


def _alone(db: object) -> UsageError:
    return UsageError(
        f"{type(db).__name__} commits each statement by itself here, so the message would not depend on your transaction. "
        "Begin one first (connection.transaction(), transaction.atomic(), begin()), or turn autocommit off."
    )


def _say_if_missing(error: Exception, kind: str) -> None:
    """UsageError if there is no table, whoever wrapped what the driver says."""
    said: BaseException | None = error
    while said is not None:
        if getattr(said, "sqlstate", None) in _NO_TABLE or said.args[:1] == (_NO_TABLE[1],):
            raise UsageError(
                f"There is no table {TABLE} in this database: `waterclock relay --outbox` makes it when it starts, or a "
                f"migration of yours: {' '.join(_MAKE[kind].split())}"
            ) from error
        said = said.__cause__


def _bytes(name: str, given: object) -> bytes | None:
    if isinstance(given, str):
        return given.encode()
    if given is None or isinstance(given, bytes | bytearray | memoryview):
        return None if given is None else bytes(given)
    raise TypeError(f"{name} must be a text, bytes or None, got {given!r} of type {type(given).__name__}")
