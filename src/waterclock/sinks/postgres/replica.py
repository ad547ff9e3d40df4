"""Mirrored tables in PostgreSQL: the table shop.item of the source is the table item in the schema shop.

Rule 1: values go over as texts, and PostgreSQL reads them as the type of their column: so a table that was made
        beforehand keeps its types, a timestamp as well as a numeric(12,2).
Rule 2: nothing is renamed or cast but from whole numbers to numeric, and from anything to json; and that only in columns
        that were made here. They bear a comment which says so: a boolean looks alike whoever made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from waterclock.postgres.session import Session
from waterclock.sinks.mirrors.replica import STAGED, Form, ReducedRow, literal, shown
from waterclock.sinks.postgres.destination import fitting_postgres
from waterclock.sinks.tables.tables import Table, quoted

POSITION_TYPES = ("text", "text", "text", "boolean")
_TYPES = {"b": "boolean", "i": "bigint", "n": "numeric", "t": "text", "x": "bytea", "j": "json"}
_KINDS = {kind: letter for letter, kind in _TYPES.items()} | {"jsonb": "j"}
_COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod), coalesce(a.attnum = ANY (i.indkey), false),
        coalesce(col_description(a.attrelid, a.attnum) = {}, false)
    FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
    WHERE a.attrelid = to_regclass({}) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_OURS = "made by waterclock: its type grows with its values"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_NULL = "\\N"
_PIECE = 2000  # rows that are sent together


class PostgresTables:
    """A `MirroringDatabase` in the transaction that `session` has begun."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def form(self, table: str) -> Form | None:
        """See `MirroringDatabase`."""
        found = self.run(_COLUMNS.format(literal(_OURS), literal(self.name(table))))
        if not found:
            return None
        grows = {name: ours or kind.startswith("json") for name, kind, _, ours in found}  # JSON is written as JSON
        kinds = {name: _KINDS.get(kind, "") if grows[name] else "" for name, kind, _, _ in found}
        return Form(kinds, tuple(name for name, _, key, _ in found if key))

    def name(self, table: str) -> str:
        """See `MirroringDatabase`."""
        schema, _, own = table.partition(".")
        return f"{quoted(_fitting('schema', schema))}.{quoted(_fitting('table', own))}"

    def make(self, table: str, columns: dict[str, str], key: Sequence[str]) -> None:
        """See `MirroringDatabase`."""
        schema = table.partition(".")[0]
        if not self.run(f"SELECT 1 FROM pg_namespace WHERE nspname = {literal(schema)}"):
            self.run(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        typed = tuple((_fitting("column", name), _type_of(kind, name in key)) for name, kind in columns.items())
        self.run(f"CREATE TABLE {self.name(table)} ({Table('', typed, tuple(key)).definition()})")
        self._mark(table, columns)

    def add(self, table: str, column: str, kind: str) -> None:
        """See `MirroringDatabase`."""
        self.run(f"ALTER TABLE {self.name(table)} ADD COLUMN {quoted(_fitting('column', column))} {_TYPES[kind]}")
        self._mark(table, [column])

    def _mark(self, table: str, columns: Iterable[str]) -> None:
        for column in columns:
            self.run(f"COMMENT ON COLUMN {self.name(table)}.{quoted(column)} IS {literal(_OURS)}")

    def widen(self, table: str, column: str, kind: str) -> None:
        """See `MirroringDatabase`."""
        form = self.form(table)
        wider = _type_of(kind, form is not None and column in form.key)
        using = f" USING to_{wider}({quoted(column)})" if kind == "j" else ""
        self.run(f"ALTER TABLE {self.name(table)} ALTER COLUMN {quoted(column)} TYPE {wider}{using}")

    def stage(self, table: str, kinds: Mapping[str, str], rows: Sequence[ReducedRow]) -> str:
        """See `MirroringDatabase`."""
        columns = ", ".join(map(quoted, kinds))
        own = f"''::text AS {STAGED[0]}, ''::text AS {STAGED[1]}, false AS {STAGED[2]}, false AS {STAGED[3]}"
        self.run(
            f"CREATE TEMPORARY TABLE waterclock_staged ON COMMIT DROP AS SELECT {own}, {columns} FROM {self.name(table)} "
            "WITH NO DATA"
        )
        with self._session.copy("COPY pg_temp.waterclock_staged FROM STDIN") as copy:
            for start in range(0, len(rows), _PIECE):
                copy.write("".join([_line(kinds, row) for row in rows[start : start + _PIECE]]))
        return "pg_temp.waterclock_staged"

    def drop(self, staged: str) -> None:
        """See `MirroringDatabase`."""
        self.run(f"DROP TABLE {staged}")

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """See `MirroringDatabase`."""
        return self._session.run(statement)


def _type_of(kind: str, in_key: bool) -> str:
    """The type for values of a kind; a column of json cannot be in a primary key."""
    return "jsonb" if kind == "j" and in_key else _TYPES[kind]


def _fitting(what: str, name: str) -> str:
    remedy = "rename it there, or choose the tables without it with 'tables' in [source]"
    return fitting_postgres(name, f"the {what} {name!r} of the source", remedy)


def _line(kinds: Mapping[str, str], row: ReducedRow) -> str:
    """A row as COPY reads it."""
    values = [shown(kind, row.values.get(name)) for name, kind in kinds.items()]
    texts = [_NULL if value is None else value.translate(_ESCAPES) for value in values]
    own = [row.key.translate(_ESCAPES), row.position, "t" if row.gone else "f", "t" if row.whole else "f"]
    return "\t".join(own + texts) + "\n"
