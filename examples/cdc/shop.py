"""The shop's writes: random transactions with a seed, and a record of what each of them committed.

A transaction writes to one or several tables: inserts, updates, deletes, rows that get another key. Some are large, some
are rolled back, some are rolled back in part, to a savepoint.

Rule 1: one connection writes, so the transactions' order is known: the k-th one that committed something is `history[k]`.
Rule 2: what is in `history` is what has to come out at the other end, no more and no less: (table, operation, key, rev).
Rule 3: rows that are to be there before anything is written lie in binlogs that are thrown away: no log has them any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from threading import Condition
from typing import Any, NamedTuple

import pymysql
from pymysql.constants import CLIENT

from .tables import Column, ShopTable, tables

DATABASE = "shop"
Key = tuple[int | str, ...]
_LARGE = 300  # rows of a large transaction
_AT_ONCE = 500  # rows of a statement that fills a table
_ZERO_DATES = "set session sql_mode = 'STRICT_TRANS_TABLES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00'"


class Version(NamedTuple):
    """A change as it has to come out: for a delete, `rev` is the last one the row had."""

    table: str
    operation: str
    key: Key
    rev: int


class Rows:
    """The live rows of a table: their keys, each with its rev; any of them at once."""

    def __init__(self, table: ShopTable) -> None:
        self.table = table
        self.revs = dict[Key, int]()
        self._keys = list[Key]()
        self._places = dict[Key, int]()
        self._next = 0

    def put(self, key: Key, rev: int) -> None:
        if key not in self.revs:
            self._places[key] = len(self._keys)
            self._keys.append(key)
        self.revs[key] = rev

    def take(self, key: Key) -> int:
        place, last = self._places.pop(key), self._keys.pop()
        if last != key:
            self._keys[place], self._places[last] = last, place
        return self.revs.pop(key)

    def any(self, chance: Random) -> Key:
        return chance.choice(self._keys)

    def fresh(self) -> Key:
        """A key that no row ever had."""
        self._next += 1
        if self.table.key[0].how == "text":
            return (f"code-{self._next}",)
        return (self._next // 3, self._next % 3) if len(self.table.key) == 2 else (self._next,)


class Shop:
    """Writes `changes` row changes to four or more `of` the tables; `history` grows with every commit."""

    def __init__(
        self,
        connect: Callable[..., pymysql.connections.Connection],
        seed: int,
        changes: int,
        of: Sequence[ShopTable] | None = None,
    ) -> None:
        self._connect = connect
        self._chance = Random(seed)
        self.wanted = changes
        self.rows = [Rows(table) for table in of or tables()]
        self.history: list[list[Version]] = []
        self.written = self.rolled_back = 0
        self.stopped = False
        self.older: dict[str, list[Key]] = {}  # of each table the rows that are older than the log
        self._gate, self._until = Condition(), changes

    def make(self) -> None:
        """The database and its tables."""
        with self._connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"create database {DATABASE} character set utf8mb4")
            for rows in self.rows:
                cursor.execute(f"use {DATABASE}")
                cursor.execute(rows.table.definition())

    def fill(self, count: int) -> None:
        """So many rows, spread over the tables; rule 3."""
        with self._connect(database=DATABASE) as connection, connection.cursor() as cursor:
            cursor.execute(_ZERO_DATES)
            for number, rows in enumerate(self.rows):
                keys = [rows.fresh() for _ in range(number, count, len(self.rows))]
                self.older[rows.table.name] = keys
                for start in range(0, len(keys), _AT_ONCE):
                    cursor.execute(self._insert(cursor, rows.table, keys[start : start + _AT_ONCE]))
                for key in keys:
                    rows.put(key, 1)
            cursor.execute("flush binary logs")
            while cursor.execute("show binary logs") > 1:  # one that InnoDB may still need stays, without an error
                cursor.execute("purge binary logs to %s", (cursor.fetchall()[-1][0],))
                cursor.execute("select sleep(0.1)")

    def write(self) -> None:
        """All transactions, one after the other."""
        settings = {"database": DATABASE, "client_flag": CLIENT.MULTI_STATEMENTS}
        with self._connect(**settings) as connection, connection.cursor() as cursor:
            cursor.execute(_ZERO_DATES)
            while self._goes_on():
                self._transaction(cursor)

    def may_write(self, until: int) -> None:
        """Write so many changes, to the end of a transaction, and no more for now."""
        with self._gate:
            self._until = until
            self._gate.notify_all()

    def stop(self) -> None:
        """Write no more."""
        with self._gate:
            self.stopped = True
            self._gate.notify_all()

    def _goes_on(self) -> bool:
        with self._gate:
            self._gate.wait_for(lambda: self.stopped or not self._until <= self.written < self.wanted)
        return self.written < self.wanted and not self.stopped

    def _transaction(self, cursor: Any) -> None:
        chance = self._chance
        if chance.random() < 0.06:
            self._run(cursor, ["begin", *self._in_vain(cursor, chance.randrange(1, 6)), "rollback"])
            self.rolled_back += 1
            return
        count = _LARGE if chance.random() < 0.002 else chance.choice((1, 1, 2, 3, 5, 8, 13))
        versions: list[Version] = []
        statements = ["begin"]
        some = chance.sample(self.rows, chance.randrange(1, 5))
        while len(versions) < min(count, self.wanted - self.written):
            statements += self._change(cursor, chance.choice(some), versions)
        if chance.random() < 0.05:
            statements += ["savepoint s", *self._in_vain(cursor, 2), "rollback to s"]
        self._run(cursor, [*statements, "commit"])
        self.history.append(versions)
        self.written += len(versions)

    def _run(self, cursor: Any, statements: list[str]) -> None:
        """All in one go: a round trip a statement would be most of the time."""
        cursor.execute(";".join(statements))
        while cursor.nextset():
            pass

    # One change ------------------------------------------------------------------------------------------------

    def _change(self, cursor: Any, rows: Rows, versions: list[Version]) -> Iterator[str]:
        word, name = self._chance.random(), rows.table.name
        if word < 0.45 or not rows.revs:
            key = rows.fresh()
            rows.put(key, 1)
            versions.append(Version(name, "insert", key, 1))
            yield self._insert(cursor, rows.table, [key])
            return
        key = rows.any(self._chance)
        if word < 0.8:
            rev = rows.revs[key] + 1
            rows.put(key, rev)
            versions.append(Version(name, "update", key, rev))
            yield self._update(cursor, rows.table, key)
        elif word < 0.95:
            versions.append(Version(name, "delete", key, rows.take(key)))
            yield f"delete from {name} where {self._where(cursor, rows.table, key)}"
        else:
            yield self._other_key(cursor, rows, key, versions)

    def _other_key(self, cursor: Any, rows: Rows, key: Key, versions: list[Version]) -> str:
        """An update of the key is a delete and an insert for whoever looks at keys."""
        new, rev = rows.fresh(), rows.take(key)
        rows.put(new, rev + 1)
        versions += [
            Version(rows.table.name, "delete", key, rev),
            Version(rows.table.name, "insert", new, rev + 1),
        ]
        pairs = zip(rows.table.key, new, strict=True)
        names = ", ".join(cursor.mogrify(f"{column.name} = %s", (value,)) for column, value in pairs)
        return f"update {rows.table.name} set {names}, rev = rev + 1 where {self._where(cursor, rows.table, key)}"

    def _in_vain(self, cursor: Any, count: int) -> Iterator[str]:
        """Statements that are rolled back: the record knows nothing of them."""
        for rows in self._chance.sample(self.rows, min(count, len(self.rows))):
            yield self._insert(cursor, rows.table, [rows.fresh()])
            if rows.revs:
                key = self._where(cursor, rows.table, rows.any(self._chance))
                yield self._chance.choice(
                    [f"delete from {rows.table.name}", f"update {rows.table.name} set rev = -1"]
                ) + (f" where {key}")

    # SQL -------------------------------------------------------------------------------------------------------

    def _insert(self, cursor: Any, table: ShopTable, keys: Sequence[Key]) -> str:
        rows = [[*key, 1, *map(self._value, table.columns)] for key in keys]
        marks = f"({', '.join(['%s'] * len(rows[0]))})"
        values = ", ".join(cursor.mogrify(marks, row) for row in rows)
        return f"insert into {table.name} values {values}"

    def _update(self, cursor: Any, table: ShopTable, key: Key) -> str:
        some = self._chance.sample(table.columns, self._chance.randrange(0, 3))
        names = "".join(f", {column.name} = %s" for column in some)
        values = [self._value(column) for column in some]
        where = self._where(cursor, table, key)
        return f"{cursor.mogrify(f'update {table.name} set rev = rev + 1{names}', values)} where {where}"

    def _where(self, cursor: Any, table: ShopTable, key: Key) -> str:
        pairs = zip(table.key, key, strict=True)
        return " and ".join(cursor.mogrify(f"{column.name} = %s", (value,)) for column, value in pairs)

    def _value(self, column: Column) -> Any:
        return None if self._chance.random() < 0.15 else column.make(self._chance)
