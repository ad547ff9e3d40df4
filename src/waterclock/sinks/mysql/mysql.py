"""Results in MySQL or MariaDB: rows, and offsets in the same transaction. What a sink does stands in sql_sink.py.

Rule 1: tables are InnoDB's, whose transactions undo, and their texts are utf8mb4, which holds every one. A table that is
        there and is otherwise is refused.
Rule 2: rows of a batch stand in no order in MySQL; `batch_row` counts them, from 0, as they came.
Rule 3: times are DATETIME(6), in UTC. A row with a time outside of the years 1000 to 9999, or with a number that is none
        (NaN, infinite), is a dead letter: MySQL keeps none of these.
Rule 4: MySQL commits with each CREATE and DROP. A kill between two leaves some tables, and the same command goes on.
Rule 5: who begins takes a lock of the server's (GET_LOCK), which ends with the connection. So does the transaction.
Rule 6: in a transaction a lost connection is an error and never replaced: what came after would stand outside of it.
Rule 7: the password comes from MYSQL_PWD. The URL holds none, so it may be shown.
Rule 8: a connection that is idle for 90 s is closed by the server: a run that stands still, or vanished without a word,
        keeps nobody waiting for longer. Between two transactions the next one comes by a new connection.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from waterclock.errors import CommitUnknown, SinkLost, UsageError, unstopped
from waterclock.sinks.base import Batch
from waterclock.sinks.mysql.destination import address_of, mysql_column, mysql_table
from waterclock.sinks.sql.dialect import Columns, ServerDialect, text_times
from waterclock.sinks.sql.sql_sink import SqlSink
from waterclock.sinks.tables import Table, far_times, flat, put_aside, quoted

log = logging.getLogger(__name__)
_TYPES = {
    pa.string(): "longtext",
    pa.bool_(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
}
_COLUMNS = """
    SELECT column_name, column_type, column_key FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = %s ORDER BY ordinal_position
"""
_ENGINE = "SELECT engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s"
_OTHER_TEXTS = """
    SELECT column_name, character_set_name FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = %s AND character_set_name <> 'utf8mb4' ORDER BY ordinal_position
"""
_YEAR_1000_US = -30_610_224_000_000_000
_FAR = "a time outside of the years 1000 to 9999, which MySQL does not keep"
_CONNECT_S = 10
_SMALLEST_LIMIT = 1 << 20  # of a statement, if a server says nothing else
_PATIENCE_S = 90  # for another writer's transaction, and for one that stands still
# by the standard's quotes; what does not fit is an error, and times are those that are given
_SESSION = (
    "SET SESSION sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', "
    f"wait_timeout = {_PATIENCE_S}, innodb_lock_wait_timeout = {_PATIENCE_S}"
)
# the server's and PyMySQL's words for a connection that is gone: shut down, killed, idle for too long, no answer
_GONE = (0, 1053, 1152, 1158, 1159, 1160, 1161, 1927, 2006, 2013, 2014, 2055, 3169, 4031)


class MySQLSink(SqlSink):
    """A `Sink` in the database at `url`, of MySQL or MariaDB.

    >>> MySQLSink("mysql://reports@localhost/shop", "orders").describe()
    "the table 'orders' in mysql://reports@localhost/shop"
    """

    def __init__(self, url: str, table: str = "results") -> None:
        super().__init__(MySQLDialect(MySQLSession(url)), mysql_table(table))


class MySQLDialect(ServerDialect):
    """MySQL and MariaDB, by a session."""

    numbers = (("batch_id", "bigint"), ("batch_row", "int"))
    dead = ("longtext", "bigint", "longtext", "longtext")
    batch = ("varchar(255)", "bigint", "longtext", "longtext", "datetime(6)", "double")
    owner = ("varchar(255)", "bigint")

    def __init__(self, session: MySQLSession) -> None:
        super().__init__(session)
        self.session = session

    def columns_of(self, schema: pa.Schema) -> Columns:
        """See `SqlDialect`."""
        return tuple((mysql_column(field.name), _type_of(field)) for field in schema)

    def found(self, table: str) -> Table:
        """See `SqlDialect`. What MariaDB says of a whole number's width is left out: it means nothing."""
        rows = self.run(_COLUMNS, table)
        columns = tuple((name, re.sub(r"^(\w*int)\(\d+\)", r"\1", _text(kind))) for name, kind, _ in rows)
        return Table("", columns, tuple(name for name, _, key in rows if key == "PRI"))

    def faults_of(self, table: str) -> list[str]:
        """See `SqlDialect`."""
        faults = [
            f"the table {table!r} in {self.place} has the engine {engine}, whose rows no transaction undoes: make it "
            "one of InnoDB, or name another table in [sink]"
            for (engine,) in self.run(_ENGINE, table)
            if engine != "InnoDB"
        ]
        others = self.run(_OTHER_TEXTS, table)
        faults += [
            f"the column {name!r} of the table {table!r} in {self.place} has texts of {kind}, which does not hold every "
            "text: make it utf8mb4, or name another table in [sink]"
            for name, kind in others
        ]
        return faults

    def make(self, table: Table, name: str) -> None:
        """See `SqlDialect`."""
        columns = table.definition()
        self.run(f"CREATE TABLE {quoted(name)} ({columns}) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")

    def insert(self, table: str, rows: pa.Table) -> None:
        """See `SqlDialect`."""
        plain = [text_times(each) if pa.types.is_timestamp(each.type) else each for each in rows.columns]
        texts = [each for each in plain if pa.types.is_string(each.type)]
        sizes = [pc.cast(pc.fill_null(pc.binary_length(each), 0), pa.int64()) for each in texts]
        largest = pc.max(reduce(pc.add, sizes)).as_py() if sizes else 0
        marks = ", ".join(["%s"] * rows.num_columns)
        values = list(zip(*(each.to_pylist() for each in plain), strict=True))
        self.session.run_many(f"INSERT INTO {table} VALUES ({marks})", values, largest)

    def storable(self, batch: Batch) -> Batch:
        """See `SqlDialect`."""
        rows = flat(batch.results)
        reasons = far_times(rows, _FAR, _YEAR_1000_US)
        if reasons is None:
            reasons = pa.chunked_array([pa.nulls(rows.num_rows, pa.string())])
        for field in rows.schema:
            if pa.types.is_floating(field.type):
                is_none = pc.fill_null(pc.invert(pc.is_finite(rows.column(field.name))), False)
                reasons = pc.if_else(is_none, f"{field.name!r} is no number that MySQL keeps", reasons)
        return put_aside(batch, rows, reasons)

    def time(self, us: int) -> object:
        """See `SqlDialect`."""
        return text_times(pa.array([us]))[0].as_py()


def _type_of(field: pa.Field) -> str:
    if pa.types.is_timestamp(field.type) and field.type.unit == "us":
        return "datetime(6)"
    if field.type not in _TYPES:
        raise UsageError(f"the column {field.name!r} is of the type {field.type}, which is not kept in MySQL")
    return _TYPES[field.type]


def _text(value: Any) -> str:
    """MySQL 8 gives some words of its catalog as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


# The connection ------------------------------------------------------------------------------------------------


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
                f"cannot connect to {self.url}: {unstopped(_said(error))}. "
                "Is the server there, and are user and database its own? "
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
                f"{self.url} refused what was to be written: {unstopped(_said(error))}. "
                "What was committed stays; the same command "
                "goes on from there when the cause is mended."
            ) from error

    def _lost(self, error: Exception) -> SinkLost:
        return SinkLost(
            f"the connection to {self.url} went away: {unstopped(_said(error))}. "
            "What was committed stays; the same command goes on "
            "from there when the server is back."
        )


def _said(error: Exception) -> object:
    """Its words alone, without the number in front."""
    return error.args[1] if len(error.args) > 1 else error
