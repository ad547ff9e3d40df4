"""Source and target, row by row, every column: what MariaDB's SELECT shows against what PostgreSQL holds.

Rule 1: texts are equal to the letter, decimals to the digit; numbers are equal as numbers, floats as floats of 8 bytes.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import psycopg
from pymysql.cursors import SSCursor

from .servers import MariaDB, Postgres
from .shop import DATABASE
from .tables import ShopTable, tables

_SHOWN = 10  # of the rows that differ
Row = dict[str, Any]


@dataclass(slots=True)
class Differences:
    """What was compared, and what is not equal; `shown` names the first ones."""

    rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    shown: list[str] = field(default_factory=list)

    @property
    def errors(self) -> int:
        return self.missing + self.extra + self.different

    def note(self, what: str) -> None:
        if len(self.shown) < _SHOWN:
            self.shown.append(what)


def compare(source: MariaDB, target: Postgres, database: str) -> Differences:
    """All tables of the shop."""
    found = Differences()
    for table in tables():
        theirs = _target_rows(target, database, table)
        for key, row in _source_rows(source, table):
            found.rows += 1
            other = theirs.pop(key, None)
            if other is None:
                found.missing += 1
                found.note(f"{table.name} {key} is not in the target")
            elif wrong := _unlike(table, row, other):
                found.different += 1
                found.note(f"{table.name} {key}: {wrong}")
        found.extra += len(theirs)
        for key in theirs:
            found.note(f"{table.name} {key} is only in the target")
    return found


def _source_rows(source: MariaDB, table: ShopTable) -> Iterable[tuple[tuple[str, ...], Row]]:
    """As texts, or bytes, as the server sends them."""
    names = [*(column.name for column in table.key), "rev", *(column.name for column in table.columns)]
    settings: Any = {"database": DATABASE, "conv": {}, "cursorclass": SSCursor}
    with source.connection(**settings) as connection, connection.cursor() as cursor:
        cursor.execute("set time_zone = '+00:00'")
        cursor.execute(f"select {', '.join(names)} from {table.name}")
        for row in cursor:
            found = dict(zip(names, row, strict=True))
            yield tuple(str(found[column.name]) for column in table.key), found


def _target_rows(target: Postgres, database: str, table: ShopTable) -> dict[tuple[str, ...], Row]:
    """As texts; a column that the target does not have had no value yet."""
    with psycopg.connect(target.url(database)) as connection:
        where = f"table_schema = '{DATABASE}' and table_name = '{table.name}'"
        there = connection.execute(f"select column_name from information_schema.columns where {where}").fetchall()
        names = [name for (name,) in there]
        if not names:
            return {}
        columns = ", ".join(f'"{name}"::text' for name in names)
        rows = connection.execute(f"select {columns} from {DATABASE}.{table.name}")
        found = (dict(zip(names, row, strict=True)) for row in rows)
        return {tuple(row[column.name] for column in table.key): row for row in found}


def _unlike(table: ShopTable, row: Row, other: Row) -> str:
    """The columns that differ, with what is in them; "" where none does."""
    hows = {"rev": "number"} | {column.name: column.how for column in (*table.key, *table.columns)}
    wrong = [name for name, how in hows.items() if not _same(how, row[name], other.get(name))]
    return ", ".join(f"{name} is {row[name]!r} there and {other.get(name)!r} here" for name in wrong)


def _same(how: str, there: Any, here: str | None) -> bool:
    if there is None or here is None:
        return there is here
    return _SAME[how](there, here)


def _plain(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


_SAME: dict[str, Callable[[Any, str], bool]] = {
    "text": lambda there, here: there == here,
    "number": lambda there, here: int(there) == int(here),
    "float": lambda there, here: float(there) == float(here),
    "bits": lambda there, here: int.from_bytes(there, "big") == int(here),
    "set": lambda there, here: [word for word in there.split(",") if word] == json.loads(here),
    "json": lambda there, here: _plain(there) == _plain(here),
    "bytes": lambda there, here: b64encode(there).decode() == here,
}
