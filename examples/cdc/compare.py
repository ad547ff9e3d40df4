"""Source and target, row by row, every column: what MariaDB's SELECT shows against what the target holds.

Rule 1: texts are equal to the letter, decimals to the digit, whole numbers too; floats are equal as floats of 8 bytes.
        In JSON 1, 1.0 and true are three values.
Rule 2: what is only in the target is wrong like what is not there: a table, a column, a row, a second row of a key.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pymysql.cursors import SSCursor

from .servers import MariaDB
from .shop import DATABASE
from .tables import ShopTable, tables
from .target import Row, Target

_SHOWN = 10  # of the rows that differ
Texts = tuple[str, ...]


@dataclass(slots=True)
class Differences:
    """What was compared, and what is not equal; `shown` names the first ones. Tables and columns that only the target has
    are `extra` too."""

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


def compare(source: MariaDB, target: Target) -> Differences:
    """All tables of the shop. A column that the target does not have had no value yet."""
    found = Differences()
    for name in _only_there(target):
        found.extra += 1
        found.note(f"{name} is only in the target")
    for table in tables():
        compare_table(table, _source_rows(source, table), target.rows(table.name), found)
    return found


def compare_table(table: ShopTable, ours: Iterable[Row], theirs: Iterable[Row], found: Differences) -> None:
    """The rows of one table: those of the source, and those of the target."""
    left: dict[Texts, Row] = {}
    for row in theirs:
        key = _key(table, row)
        if key in left:
            found.extra += 1
            found.note(f"{table.name} {key} is in the target twice")
        left[key] = row
    for row in ours:
        found.rows += 1
        _compare_row(table, row, left.pop(_key(table, row), None), found)
    found.extra += len(left)
    for key in left:
        found.note(f"{table.name} {key} is only in the target")


def _compare_row(table: ShopTable, row: Row, other: Row | None, found: Differences) -> None:
    if other is None:
        found.missing += 1
        found.note(f"{table.name} {_key(table, row)} is not in the target")
    elif wrong := _unlike(table, row, other):
        found.different += 1
        found.note(f"{table.name} {_key(table, row)}: {wrong}")


def _key(table: ShopTable, row: Row) -> Texts:
    return tuple(str(row.get(column.name)) for column in table.key)


def _only_there(target: Target) -> list[str]:
    """Tables and columns that the shop has not."""
    names = {table.name: {"rev", *(column.name for column in (*table.key, *table.columns))} for table in tables()}
    ours = {(DATABASE, table, column) for table, own in names.items() for column in own}
    return [".".join(place) for place in target.columns() if place not in ours]


def _source_rows(source: MariaDB, table: ShopTable) -> Iterator[Row]:
    """As texts, or bytes, as the server sends them."""
    names = [*(column.name for column in table.key), "rev", *(column.name for column in table.columns)]
    settings: Any = {"database": DATABASE, "conv": {}, "cursorclass": SSCursor}
    with source.connection(**settings) as connection, connection.cursor() as cursor:
        cursor.execute("set time_zone = '+00:00'")
        cursor.execute(f"select {', '.join(names)} from {table.name}")
        for row in cursor:
            yield dict(zip(names, row, strict=True))


def _unlike(table: ShopTable, row: Row, other: Row) -> str:
    """The columns that differ, with what is in them; "" where none does."""
    hows = {"rev": "number"} | {column.name: column.how for column in (*table.key, *table.columns)}
    wrong = [name for name, how in hows.items() if not _same(how, row[name], other.get(name))]
    return ", ".join(f"{name} is {row[name]!r} there and {other.get(name)!r} here" for name in wrong)


def _same(how: str, there: Any, here: str | None) -> bool:
    if there is None or here is None:
        return there is here
    try:
        return _SAME[how](there, here)
    except (ValueError, ArithmeticError):  # no number, no JSON
        return False


def _plain(text: str) -> Any:
    """JSON with each number as its digits and where the point stands: 1e22 is 1E+22, and 1 is neither 1.0 nor true."""
    return json.loads(text, parse_float=_digits, parse_int=_digits)


def _digits(text: str) -> Any:
    return Decimal(text).as_tuple()


_SAME: dict[str, Callable[[Any, str], bool]] = {
    "text": lambda there, here: there == here,
    "decimal": lambda there, here: there == here,
    "number": lambda there, here: str(int(there)) == here,
    "float": lambda there, here: float(there) == float(here),
    "bits": lambda there, here: str(int.from_bytes(there, "big")) == here,
    "set": lambda there, here: [word for word in there.split(",") if word] == json.loads(here),
    "json": lambda there, here: _plain(there) == _plain(here),
    "bytes": lambda there, here: b64encode(there).decode() == here,
}
