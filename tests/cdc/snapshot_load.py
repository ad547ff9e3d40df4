"""A full database, writers beside it, and the topic of its capture folded and compared with it.

Three tables: one key of a number, one of a text and a number, one with large values. Writers insert, update, delete, move
keys into and out of ranges that were read, write large transactions, and roll back.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import psycopg
import pymysql

from tests.kafka.reader import committed
from waterclock.testing import Broker

TABLES = {"a": ("id", "v", "s"), "b": ("x", "y", "v"), "c": ("id", "big", "v")}
KEYS = {"a": ("id",), "b": ("y", "x"), "c": ("id",)}


@dataclass
class FullDatabase:
    """`connected` gives a connection to it; `kind` is mariadb, mysql or postgres."""

    connected: Callable[[], Any]
    kind: str
    rows: int

    @property
    def maria(self) -> bool:
        """Whether it speaks MariaDB's SQL, as MySQL does."""
        return self.kind != "postgres"

    def series(self, count: int) -> str:
        """The numbers from 1 on, as the column g of a table."""
        if self.kind == "mysql":
            return (
                f"(with recursive r(g) as (select 1 union all select g + 1 from r where g < {count}) select g from r) s"
            )
        return f"(select seq g from seq_1_to_{count}) s" if self.maria else f"generate_series(1, {count}) g"

    def fill(self) -> None:
        text = "longtext" if self.maria else "text"
        self.run(
            "create table a (id int primary key, v int, s varchar(60))",
            "create table b (x varchar(20), y int, v decimal(12,2), primary key (y, x))",
            f"create table c (id bigint primary key, big {text}, v int)",
            f"insert into a select g, g, concat('note é ', g) from {self.series(self.rows)}",
            f"insert into b select concat('k', g % 7), g, g * 1.01 from {self.series(self.rows // 2)}",
            f"insert into c select g, repeat('x', 3000), g from {self.series(self.rows // 20)}",
        )
        if not self.maria:
            self.run("alter table c alter big set storage external")

    def run(self, *statements: str) -> None:
        with closing(self.connected()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def held(self) -> dict[tuple[str, ...], dict[str, Any]]:
        """Every row, by table and key."""
        found = {}
        with closing(self.connected()) as connection, connection.cursor() as cursor:
            for table, columns in TABLES.items():
                cursor.execute(f"select {', '.join(columns)} from {table}")
                for row in cursor.fetchall():
                    data = dict(zip(columns, row, strict=True))
                    found[(table, *(str(data[name]) for name in KEYS[table]))] = data
        return found

    def change(self, draw: random.Random) -> Iterator[str]:
        """The statements of one transaction."""
        n, keep = self.rows, "on duplicate key update v = v + 1" if self.maria else "on conflict do nothing"
        ignore = "ignore " if self.maria else ""
        yield "begin"
        for _ in range(draw.randint(1, 5)):
            i, j, far = draw.randint(1, n), draw.randint(1, n), n + draw.randrange(10**8)
            yield draw.choice([
                f"update a set v = v + 1, s = 'u{j}' where id between {i} and {i + draw.randint(0, 8)}",
                f"delete from a where id = {i}",
                f"insert into a values ({i}, {j}, 'i') {keep}",
                f"update {ignore}a set id = {j if self.maria else far} where id = {i}",
                f"update a set id = {far} where id = {i}",
                f"update b set v = v + 1 where y = {i // 2}",
                f"update b set x = concat(x, 'z'), y = y + {draw.randint(0, 3) * n} where y = {i // 2} and length(x) < 15",
                f"delete from b where y = {i // 2}",
                f"update c set v = v + 1 where id = {i // 20}",
                f"update c set id = {far} where id = {i // 20}",
            ])  # fmt: skip
        if draw.random() < 0.005:
            first = 10**8 + draw.randrange(10**9)
            many = f"select {first} + g, 1, 'big' from {self.series(2000)}"
            yield f"insert into a {many} {keep if not self.maria else ''}"
        yield "rollback" if draw.random() < 0.1 else "commit"


class Writers:
    """Threads that write until they are stopped; what a statement breaks begins anew."""

    def __init__(self, database: FullDatabase, seed: int, count: int = 2, rest_s: float = 0.004) -> None:
        self._database, self._rest_s = database, rest_s
        self._over = threading.Event()
        self.transactions = 0
        self._threads = [threading.Thread(target=self._write, args=(seed + n,), daemon=True) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _write(self, seed: int) -> None:
        draw = random.Random(seed)
        while not self._over.is_set():
            with suppress(psycopg.Error, pymysql.MySQLError), closing(self._database.connected()) as connection:
                while not self._over.wait(self._rest_s):
                    with connection.cursor() as cursor:
                        for statement in self._database.change(draw):
                            cursor.execute(statement)
                    self.transactions += 1


@dataclass
class Folded:
    """A topic read in each partition's order: the rows it ends with, and what was wrong on the way."""

    rows: dict[bytes, dict[str, Any] | None] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)

    def held(self) -> dict[tuple[str, ...], dict[str, Any]]:
        found = {}
        for key, row in self.rows.items():
            if row is not None:
                table = json.loads(key)["table"]
                found[(table, *(str(row[name]) for name in KEYS[table]))] = row
        return found


def folded(broker: Broker, topic: str) -> Folded:
    """What a reader of committed messages finds."""
    found = Folded()
    places: dict[bytes, tuple[int, int]] = {}
    older: set[bytes] = set()
    for part in committed(broker, topic).values():
        for key, value in part:
            message = json.loads(value, parse_float=Decimal)
            place, kind, data = (message["sequence"], message["xoffset"]), message["type"], message["data"]
            now = found.rows.get(key)
            found.kinds[kind] += 1
            found.wrong["not behind the one before"] += places.get(key, (0, 0)) >= place
            places[key] = place
            if kind == "bootstrap-insert":
                found.wrong["an older row came twice"] += key in older
                found.wrong["an older row was not the row"] += now is not None and _differs(now, data)
                older.add(key)
            elif kind == "insert":
                found.wrong["an insert found its row"] += now is not None
            elif now is not None and "old" in message:
                found.wrong["former values were others"] += {**data, **message["old"]} != now
            found.rows[key] = None if kind == "delete" else {**(now or {}), **data} if kind == "update" else data
    found.wrong = +found.wrong
    return found


def _differs(now: dict[str, Any], data: dict[str, Any]) -> bool:
    """An update without its large value may have come before."""
    return any(data.get(name) != value for name, value in now.items())
