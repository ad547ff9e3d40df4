"""Mirrored tables in SQLite: the table shop.item of the source is the table "shop.item" of the file.

Rule 1: columns have no type, so that every value stays as it is: whole numbers of 64 bits as integers, texts, JSON and
        numbers with a point as texts with all their digits, bytes as blobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from waterclock.sinks.mirrors.replica import STAGED, Form, ReducedRow
from waterclock.sinks.tables.tables import Table, quoted

POSITION_TYPES = ("TEXT", "TEXT", "TEXT", "INTEGER")
_STAGED = "temp.waterclock_staged"
Run = Callable[..., list[tuple[Any, ...]]]


class SQLiteTables:
    """A `MirroringDatabase` in a transaction that has begun; `run_many` is executemany."""

    def __init__(self, run: Run, run_many: Callable[..., object]) -> None:
        self._run, self._run_many = run, run_many

    def form(self, table: str) -> Form | None:
        """See `MirroringDatabase`."""
        found = self.run(f"PRAGMA table_info({self.name(table)})")
        key = tuple(name for _, name in sorted((row[5], row[1]) for row in found if row[5]))
        return Form({row[1]: "" for row in found}, key) if found else None

    def name(self, table: str) -> str:
        """See `MirroringDatabase`."""
        return quoted(table)

    def make(self, table: str, columns: dict[str, str], key: Sequence[str]) -> None:
        """See `MirroringDatabase`."""
        untyped = tuple((name, "") for name in columns)
        self.run(f"CREATE TABLE {self.name(table)} ({Table('', untyped, tuple(key)).definition()})")

    def add(self, table: str, column: str, kind: str) -> None:
        """See `MirroringDatabase`."""
        self.run(f"ALTER TABLE {self.name(table)} ADD COLUMN {quoted(column)}")

    def widen(self, table: str, column: str, kind: str) -> None:
        """See `MirroringDatabase`: a column without a type takes everything."""

    def stage(self, table: str, kinds: Mapping[str, str], rows: Sequence[ReducedRow]) -> str:
        """See `MirroringDatabase`."""
        columns = ", ".join(map(quoted, [*STAGED, *kinds]))
        self.run(f"CREATE TABLE {_STAGED} ({columns})")
        places = ", ".join("?" * (len(STAGED) + len(kinds)))
        made = [
            [row.key, row.position, row.gone, row.whole, *(_value(row.values.get(name)) for name in kinds)]
            for row in rows
        ]
        self._run_many(f"INSERT INTO {_STAGED} VALUES ({places})", made)
        return _STAGED

    def drop(self, staged: str) -> None:
        """See `MirroringDatabase`."""
        self.run(f"DROP TABLE {staged}")

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """See `MirroringDatabase`."""
        return list(self._run(statement))


def _value(value: tuple[str, str | None] | None) -> Any:
    """
    >>> _value(("i", "4")), _value(("n", "1.50")), _value(("b", "true")), _value(("x", chr(92) + "x00ff")), _value(None)
    (4, '1.50', 1, b'\\x00\\xff', None)
    """
    kind, text = value or ("", None)
    if text is None:
        return None
    if kind == "i":
        return int(text)
    if kind == "b":
        return int(text == "true")
    return bytes.fromhex(text[2:]) if kind == "x" else text
