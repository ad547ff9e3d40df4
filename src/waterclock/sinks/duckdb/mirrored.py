"""Tables of DuckDB that mirror those of a source: shop.item is the table item in the schema shop of the file.

    kind of the values      a column's type until NAME.schema says another one
    boolean, bytes          BOOLEAN, BLOB
    whole number            BIGINT
    number with a point     VARCHAR: DuckDB's decimals end at 38 digits
    text, JSON              VARCHAR, JSON

    type of the source      in DuckDB: that of PostgreSQL (postgres/declared.py) by DuckDB's name for it
    numeric(p,s)            DECIMAL(p,s) up to 38 digits, else VARCHAR
    bytea                   BLOB
    all else                VARCHAR, if DuckDB has no type that holds it

Rule 1: values go over in columns of texts, and DuckDB reads them as the type of their column. What a type does not hold
        (NaN in a DECIMAL, a timestamp beyond the year 294246) is an error, and never another value.
Rule 2: only columns that were made here without a schema grow. They bear a comment with the kind of their values.
Rule 3: a column of a primary key gets another type by a copy of its table: DuckDB alters none that an index has.
Rule 4: DuckDB does not tell names apart that differ by the case of A to Z only. A source's that do are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from waterclock.sinks.mirrors import STAGED, Form, ReducedRow, literal, shown
from waterclock.sinks.postgres.declared import declared_type
from waterclock.sinks.tables import Table, alike, folded, listed, quoted

_TYPES_OF_KINDS = {"b": "BOOLEAN", "i": "BIGINT", "n": "VARCHAR", "t": "VARCHAR", "x": "BLOB", "j": "JSON"}
_OURS = "made by waterclock: its type grows with its values, which are of the kind "
_OF_POSTGRES = {
    "smallint": "SMALLINT", "integer": "INTEGER", "bigint": "BIGINT", "boolean": "BOOLEAN", "bytea": "BLOB",
    "uuid": "UUID", "json": "JSON", "jsonb": "JSON", "date": "DATE", "real": "FLOAT", "double precision": "DOUBLE",
}  # fmt: skip
_MOST_DIGITS = 38
_STAGED = "temp.main.waterclock_staged"
_COLUMNS = """
    SELECT column_name, data_type, coalesce(comment, '') FROM duckdb_columns()
    WHERE database_name = current_database() AND schema_name = {} AND table_name = {} ORDER BY column_index
"""
_KEY = """
    SELECT unnest(constraint_column_names) FROM duckdb_constraints() WHERE database_name = current_database()
    AND schema_name = {} AND table_name = {} AND constraint_type = 'PRIMARY KEY'
"""
_OTHERS = """
    SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = current_database() AND NOT internal
    AND lower(schema_name) = lower({0}) AND (schema_name <> {0} OR (lower(table_name) = lower({1}) AND table_name <> {1}))
"""
Run = Callable[..., list[tuple[Any, ...]]]


class DuckDBTables:
    """A `MirroringDatabase` in a transaction that has begun; `load(statement, rows)` runs one that reads the table `rows`
    of Arrow by the name `waterclock_rows`."""

    def __init__(self, run: Run, load: Callable[[str, pa.Table], None]) -> None:
        self._run, self._load = run, load
        self._file = str(run("SELECT current_database()")[0][0])  # a file shop.db and a schema shop are two

    def form(self, table: str) -> Form | None:
        """See `MirroringDatabase`."""
        own_schema, own = _parts(table)
        for schema, name in self.run(_OTHERS.format(literal(own_schema), literal(own))):
            if folded(schema) == folded(own_schema) and (schema != own_schema or folded(name) == folded(own)):
                raise alike(f"the tables {schema}.{name} and {table}", "DuckDB")
        found = self._columns(table)
        kinds = {name: "j" if word == "JSON" else _kind(comment) for name, (word, comment) in found.items()}
        return Form(kinds, self._key(table)) if found else None

    def name(self, table: str) -> str:
        """See `MirroringDatabase`."""
        return ".".join(map(quoted, (self._file, *_parts(table))))

    def make(self, table: str, columns: dict[str, str], key: Sequence[str]) -> None:
        """See `MirroringDatabase`."""
        self.create(table, {name: _TYPES_OF_KINDS[kind] for name, kind in columns.items()}, key)
        self._mark(table, columns)

    def create(self, table: str, columns: dict[str, str], key: Sequence[str]) -> None:
        """See `FollowingDatabase`."""
        _refuse_alike(table, columns)
        self.run(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._file)}.{quoted(_parts(table)[0])}")
        columns = {name: columns[name] for name in (*key, *columns)}  # DuckDB drops no column in front of a key's
        self.run(f"CREATE TABLE {self.name(table)} ({Table('', tuple(columns.items()), tuple(key)).definition()})")

    def type_of(self, source: str, declared: str) -> str:
        """See `FollowingDatabase`."""
        return duckdb_type(source, declared)

    def value(self, word: str, value: tuple[str, str]) -> str:
        """See `FollowingDatabase`."""
        return _read(word, literal(value[1]))

    def retype(self, table: str, column: str, word: str) -> None:
        """See `FollowingDatabase`."""
        before = self._columns(table)[column][0]
        self._alter(table, column, word, _read(word, _text(before, quoted(column))))

    def add(self, table: str, column: str, kind: str) -> None:
        """See `MirroringDatabase`."""
        _refuse_alike(table, [*self._columns(table), column])
        self.run(f"ALTER TABLE {self.name(table)} ADD COLUMN {quoted(column)} {_TYPES_OF_KINDS[kind]}")
        self._mark(table, {column: kind})

    def widen(self, table: str, column: str, kind: str) -> None:
        """See `MirroringDatabase`."""
        before, comment = self._columns(table)[column]
        text = _text(before, quoted(column))
        if kind == "j" and _kind(comment) in ("t", "x"):
            text = f"to_json({text})"
        elif kind == "j":
            text = f"CASE WHEN {text} IN ('NaN', 'Infinity', '-Infinity') THEN to_json({text}) ELSE {text}::JSON END"
        self._alter(table, column, _TYPES_OF_KINDS[kind], text)
        self._mark(table, {column: kind})

    def stage(self, table: str, kinds: Mapping[str, str], rows: Sequence[ReducedRow]) -> str:
        """See `MirroringDatabase`."""
        types = {name: word for name, (word, _) in self._columns(table).items()}
        texts = [[shown(kind, row.values.get(name)) for row in rows] for name, kind in kinds.items()]
        own = zip(*(row[:4] for row in rows), strict=True)  # in the order of STAGED
        arrays = [*map(pa.array, own), *(pa.array(column, pa.string()) for column in texts)]
        values = [f"{_read(types[name], quoted(name))} AS {quoted(name)}" for name in kinds]
        chosen = ", ".join([listed(STAGED), *values])
        self._load(
            f"CREATE TEMPORARY TABLE {_STAGED} AS SELECT {chosen} FROM waterclock_rows",
            pa.Table.from_arrays(arrays, names=[*STAGED, *kinds]),
        )
        return _STAGED

    def drop(self, staged: str) -> None:
        """See `MirroringDatabase`."""
        self.run(f"DROP TABLE {staged}")

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """See `MirroringDatabase`."""
        return list(self._run(statement))

    def _columns(self, table: str) -> dict[str, tuple[str, str]]:
        """The type and the comment of each."""
        rows = self.run(_COLUMNS.format(*map(literal, _parts(table))))
        return {name: (word, comment) for name, word, comment in rows}

    def _key(self, table: str) -> tuple[str, ...]:
        return tuple(name for (name,) in self.run(_KEY.format(*map(literal, _parts(table)))))

    def _mark(self, table: str, kinds: Mapping[str, str]) -> None:
        for column, kind in kinds.items():
            self.run(f"COMMENT ON COLUMN {self.name(table)}.{quoted(column)} IS {literal(_OURS + kind)}")

    def _alter(self, table: str, column: str, word: str, value: str) -> None:
        """Give a column another type, and its values what the expression `value` makes of them."""
        key = self._key(table)
        if column not in key:
            self.run(f"ALTER TABLE {self.name(table)} ALTER COLUMN {quoted(column)} TYPE {word} USING {value}")
            return
        columns = self._columns(table)
        types = tuple((name, word if name == column else before) for name, (before, _) in columns.items())
        values = ", ".join(value if name == column else quoted(name) for name in columns)
        copy = f"{_parts(table)[0]}._waterclock_copy"
        self.run(f"CREATE TABLE {self.name(copy)} ({Table('', types, key).definition()})")
        self.run(f"INSERT INTO {self.name(copy)} SELECT {values} FROM {self.name(table)}")
        self.run(f"DROP TABLE {self.name(table)}")
        self.run(f"ALTER TABLE {self.name(copy)} RENAME TO {quoted(_parts(table)[1])}")
        self._mark(table, {name: _kind(comment) for name, (_, comment) in columns.items() if _kind(comment)})


def duckdb_type(source: str, declared: str) -> str:
    """The type of a column that `source` declares so.

    >>> duckdb_type("mysql", "decimal(10,2) unsigned"), duckdb_type("mysql", "datetime(6)")
    ('DECIMAL(10,2)', 'VARCHAR')
    >>> duckdb_type("postgres", "timestamp(3) with time zone"), duckdb_type("postgres", "numeric(40,2)")
    ('TIMESTAMP WITH TIME ZONE', 'VARCHAR')
    """
    word = declared_type(source, declared)
    if found := re.fullmatch(r"timestamp(?:\(\d\))? with(out)? time zone", word):
        return "TIMESTAMP" if found[1] else "TIMESTAMP WITH TIME ZONE"
    if found := re.fullmatch(r"numeric\((\d+)(?:,(\d+))?\)", word):
        digits, behind = int(found[1]), int(found[2] or 0)
        return f"DECIMAL({digits},{behind})" if behind <= digits <= _MOST_DIGITS else "VARCHAR"
    return _OF_POSTGRES.get(word, "VARCHAR")


def _read(word: str, text: str) -> str:
    """An expression for what a text, an expression too, is as a value of the type `word`. PostgreSQL writes bytes as hex,
    and BC behind a time; DuckDB has it behind the date."""
    if word == "VARCHAR":
        return text
    if word == "BLOB":
        is_hex = rf"regexp_full_match({text}, '\\x([0-9a-f]{{2}})*')"
        return f"CASE WHEN {is_hex} THEN unhex(substr({text}, 3)) ELSE encode({text}) END"
    if word == "DATE" or word.startswith("TIMESTAMP"):
        text = rf"regexp_replace({text}, '^(\S+)(.*) BC$', '\1 (BC)\2')"
    return f"CAST({text} AS {word})"


def _text(word: str, value: str) -> str:
    """An expression for the text of a value of the type `word`, as `_read` takes it."""
    return rf"'\x' || lower(hex({value}))" if word == "BLOB" else f"CAST({value} AS VARCHAR)"


def _kind(comment: str) -> str:
    """The kind of values that a column's comment names; "" for a column that does not grow."""
    return comment.removeprefix(_OURS) if comment.startswith(_OURS) else ""


def _parts(table: str) -> tuple[str, str]:
    schema, _, own = table.partition(".")
    return schema, own


def _refuse_alike(table: str, columns: Iterable[str]) -> None:
    seen: dict[str, str] = {}
    for name in columns:
        if (other := seen.setdefault(folded(name), name)) != name:
            raise alike(f"the columns {other} and {name} of {table}", "DuckDB")
