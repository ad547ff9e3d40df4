"""A program that keeps copies of the tables of snapshot_load.py in a database of its own, by key, beside its position.

python -m tests.cdc.door_copy URL OPTIONS TARGET

OPTIONS are JSON. TARGET is a file of SQLite (*.sqlite) or of DuckDB (*.duckdb), or the address of a PostgreSQL. It runs
until it is killed; with "once" in OPTIONS, up to what is there now.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from typing import Any

import psycopg

from waterclock.cdc import Change, PositionStore, SqlPosition, changes
from waterclock.cdc.position import Position

COPY = "create table if not exists copy (name varchar, k varchar, row_of varchar, primary key (name, k))"
PUT = "insert into copy values (?, ?, ?) on conflict (name, k) do update set row_of = excluded.row_of"
GET, GONE = "select row_of from copy where name = ? and k = ?", "delete from copy where name = ? and k = ?"


class DuckPosition:
    """A position in DuckDB, in the transaction of what is written: DuckDB has no savepoints, and begins none by itself."""

    name = "copy"

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def claim(self) -> Position | None:
        self._connection.execute("create table if not exists place (text varchar)")
        found = self._connection.execute("select text from place").fetchone()
        self._connection.execute("begin")
        return Position.parsed(found[0].encode()) if found else None

    def commit(self, position: Position) -> None:
        self._connection.execute("delete from place")
        self._connection.execute("insert into place values (?)", [position.as_json().decode()])
        self._connection.execute("commit")
        self._connection.execute("begin")

    def abandon(self) -> None:
        self._connection.execute("rollback")

    def release(self) -> None:
        """The file is this process's alone."""


def connected(target: str) -> tuple[Any, PositionStore, str]:
    """The connection, the store of its position, and how a parameter is marked."""
    if target.endswith(".duckdb"):
        import duckdb

        duck = duckdb.connect(target)
        return duck, DuckPosition(duck), "?"
    if target.endswith(".sqlite"):
        lite = sqlite3.connect(target)
        return lite, SqlPosition(lite, "copy"), "?"
    post = psycopg.connect(target)
    return post, SqlPosition(post, "copy"), "%s"


def main(url: str, options: str, target: str) -> None:
    connection, store, mark = connected(target)
    connection.execute(COPY)
    connection.commit()

    def run(statement: str, *values: str) -> Any:
        return connection.execute(statement.replace("?", mark), values)

    def put(change: Change) -> None:
        table, key = change.table.rpartition(".")[2], json.dumps(change.key, default=str)
        if change.type == "delete":
            run(GONE, table, key)
            return
        row = {name: None if value is None else str(value) for name, value in change.data.items()}
        if change.type == "update" and (held := run(GET, table, key).fetchone()):  # a large value may be left out
            row = {**json.loads(held[0]), **row}
        run(PUT, table, key, json.dumps(row))

    with changes(url, position=store, **json.loads(options)) as stream:
        for batch in stream:
            for change in batch:
                put(change)
            batch.commit()


if __name__ == "__main__":
    main(*sys.argv[1:])
