"""Results in MySQL or MariaDB: rows, and offsets in the same transaction. What a sink does stands in sql_sink.py.

Rule 1: tables are InnoDB's, whose transactions undo, and their texts are utf8mb4, which holds every one. A table that is
        there and is otherwise is refused.
Rule 2: rows of a batch stand in no order in MySQL; `batch_row` counts them, from 0, as they came.
Rule 3: times are DATETIME(6), in UTC. A row with a time outside of the years 1000 to 9999, or with a number that is none
        (NaN, infinite), is a dead letter: MySQL keeps none of these.
Rule 4: MySQL commits with each CREATE and DROP. A kill between two leaves some tables, and the same command goes on.
"""

from __future__ import annotations

import re
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.errors import UsageError
from waterclock.sinks.base import Batch
from waterclock.sinks.files.side_rows import far_times
from waterclock.sinks.mysql.destination import mysql_column, mysql_table
from waterclock.sinks.mysql.session import MySQLSession
from waterclock.sinks.sql.dialect import Columns, ServerDialect, text_times
from waterclock.sinks.sql.sql_sink import SqlSink
from waterclock.sinks.tables import letters
from waterclock.sinks.tables.results import flat
from waterclock.sinks.tables.tables import Table, quoted

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
        """See `Dialect`."""
        return tuple((mysql_column(field.name), _type_of(field)) for field in schema)

    def found(self, table: str) -> Table:
        """See `Dialect`. What MariaDB says of a whole number's width is left out: it means nothing."""
        rows = self.run(_COLUMNS, table)
        columns = tuple((name, re.sub(r"^(\w*int)\(\d+\)", r"\1", _text(kind))) for name, kind, _ in rows)
        return Table("", columns, tuple(name for name, _, key in rows if key == "PRI"))

    def faults_of(self, table: str) -> list[str]:
        """See `Dialect`."""
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
        """See `Dialect`."""
        columns = table.definition()
        self.run(f"CREATE TABLE {quoted(name)} ({columns}) ENGINE=InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin")

    def insert(self, table: str, rows: pa.Table) -> None:
        """See `Dialect`."""
        plain = [text_times(each) if pa.types.is_timestamp(each.type) else each for each in rows.columns]
        texts = [each for each in plain if pa.types.is_string(each.type)]
        sizes = [pc.cast(pc.fill_null(pc.binary_length(each), 0), pa.int64()) for each in texts]
        largest = pc.max(reduce(pc.add, sizes)).as_py() if sizes else 0
        marks = ", ".join(["%s"] * rows.num_columns)
        values = list(zip(*(each.to_pylist() for each in plain), strict=True))
        self.session.run_many(f"INSERT INTO {table} VALUES ({marks})", values, largest)

    def fitting(self, batch: Batch) -> Batch:
        """See `Dialect`."""
        rows = flat(batch.results)
        reasons = far_times(rows, _FAR, _YEAR_1000_US)
        if reasons is None:
            reasons = pa.chunked_array([pa.nulls(rows.num_rows, pa.string())])
        for field in rows.schema:
            if pa.types.is_floating(field.type):
                is_none = pc.fill_null(pc.invert(pc.is_finite(rows.column(field.name))), False)
                reasons = pc.if_else(is_none, f"{field.name!r} is no number that MySQL keeps", reasons)
        return letters.put_aside(batch, rows, reasons)

    def time(self, us: int) -> object:
        """See `Dialect`."""
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
