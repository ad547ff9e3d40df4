"""Results in PostgreSQL: binary COPY, and offsets in the same transaction. What a sink does stands in sql_sink.py.

Rule 1: who begins takes a lock of the table's name, and the next one waits for it, and then sees what is applied.
Rule 2: rows of a batch stand in no order in PostgreSQL; `batch_row` counts them, from 0, as they came.
Rule 3: a text in PostgreSQL holds no NUL. A result with one is a dead letter, as JSON, which writes NUL as \\u0000; in a
        dead letter's own text NUL is written so, too.
Rule 4: a batch's rows go over in pieces of a few MB, so that no second copy of them stands in memory.
Rule 5: a mirrored table shop.item of the source is the table item in the schema shop. Its values go over as texts, and
        PostgreSQL reads them as the type of their column: so a table that was made beforehand keeps its types, a timestamp
        as well as a numeric(12,2).
Rule 6: nothing is renamed or cast but from whole numbers to numeric, and from anything to json; and that only in columns
        that were made here. They bear a comment which says so: a boolean looks alike whoever made it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pgpq import ArrowToPostgresBinaryEncoder

from waterclock.errors import UsageError
from waterclock.postgres.session import PostgresSession
from waterclock.sinks.base import Batch
from waterclock.sinks.mirrors import STAGED, Form, ReducedRow, Replica, literal, shown
from waterclock.sinks.postgres.declared import declared_type
from waterclock.sinks.postgres.destination import fitting_postgres, postgres_name
from waterclock.sinks.sql.dialect import Columns, ServerDialect
from waterclock.sinks.sql.sql_sink import SqlSink
from waterclock.sinks.tables import Table, flat, listed, put_aside, quoted

_COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a WHERE a.attrelid = to_regclass(%s)
    AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEY = """
    SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
    WHERE i.indrelid = to_regclass(%s) AND i.indisprimary
"""
_NUL = "\0"
_PIECE_BYTES = 4 << 20
_TYPES = {
    pa.string(): "text",
    pa.bool_(): "boolean",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.timestamp("us"): "timestamp without time zone",
}
# so long a run that stands still in its transaction keeps the table from one that took over
_NO_STANDING_STILL = "SET LOCAL idle_in_transaction_session_timeout = '60s'"
# of mirrored tables
_TYPES_OF_KINDS = {"b": "boolean", "i": "bigint", "n": "numeric", "t": "text", "x": "bytea", "j": "json"}
_KINDS = {kind: letter for letter, kind in _TYPES_OF_KINDS.items()} | {"jsonb": "j"}
_MIRRORED_COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod), coalesce(a.attnum = ANY (i.indkey), false),
        coalesce(col_description(a.attrelid, a.attnum) = {}, false)
    FROM pg_attribute a LEFT JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
    WHERE a.attrelid = to_regclass({}) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_OURS = "made by waterclock: its type grows with its values"
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_NULL = "\\N"
_PIECE = 2000  # rows that are sent together


class PostgresSink(SqlSink):
    """A `Sink` in the database at `url`; with `mirror`, of changes of tables. `schema` is made if need be.

    >>> PostgresSink("postgresql://reports@localhost/shop", "orders").describe()
    "the table 'orders' in the schema 'public' of postgresql://reports@localhost/shop"
    """

    def __init__(
        self, url: str, table: str = "results", *, schema: str = "public", mirror: Replica | None = None
    ) -> None:
        table, schema = postgres_name("table", table), postgres_name("schema", schema)
        super().__init__(PostgresDialect(PostgresSession(url), schema), table, mirror)


class PostgresDialect(ServerDialect):
    """PostgreSQL, by a session; its tables stand in `schema`."""

    numbers = (("batch_id", "bigint"), ("batch_row", "integer"))
    dead = ("text", "bigint", "text", "text")
    batch = ("text", "bigint", "text", "jsonb", "timestamp with time zone", "double precision")
    owner = ("text", "bigint")
    positions = ("text", "text", "text", "boolean")

    def __init__(self, session: PostgresSession, schema: str) -> None:
        super().__init__(session)
        self.place = f"the schema {schema!r} of {session.url}"
        self.session = session
        self.schema = schema

    def name(self, table: str) -> str:
        """See `SqlDialect`."""
        return f"{quoted(self.schema)}.{quoted(table)}"

    def columns_of(self, schema: pa.Schema) -> Columns:
        """See `SqlDialect`: the types in PostgreSQL's own spelling."""
        remedy = "rename it in [source.columns]"
        names = [fitting_postgres(field.name, f"the column {field.name!r}", remedy) for field in schema]
        return tuple(zip(names, map(_type_of, schema), strict=True))

    def found(self, table: str) -> Table:
        """See `SqlDialect`."""
        columns, key = (self.session.run(query, self.name(table)) for query in (_COLUMNS, _KEY))
        return Table("", tuple((str(name), str(kind)) for name, kind in columns), tuple(str(name) for (name,) in key))

    def make(self, table: Table, name: str) -> None:
        """See `SqlDialect`."""
        if not self.session.run("SELECT 1 FROM pg_namespace WHERE nspname = %s", self.schema):
            self.session.run(f"CREATE SCHEMA IF NOT EXISTS {quoted(self.schema)}")
        super().make(table, name)

    def begin(self, lock: str, may_be_taken_over: bool) -> None:
        """See `SqlDialect`."""
        super().begin(lock, may_be_taken_over)
        if may_be_taken_over:
            self.session.run(_NO_STANDING_STILL)

    def insert(self, table: str, rows: pa.Table) -> None:
        """See `SqlDialect`."""
        encoder = ArrowToPostgresBinaryEncoder(rows.schema)
        piece = max(1, _PIECE_BYTES * rows.num_rows // max(1, rows.nbytes))
        with self.session.copy(f"COPY {table} ({listed(rows.column_names)}) FROM STDIN (FORMAT binary)") as copy:
            copy.write(encoder.write_header())
            for part in rows.to_batches(max_chunksize=piece):
                copy.write(encoder.write_batch(part))
            copy.write(encoder.finish())

    def storable(self, batch: Batch) -> Batch:
        """See `SqlDialect`, and rule 3."""
        rows = flat(batch.results)
        reasons = pa.chunked_array([pa.nulls(rows.num_rows, pa.string())])
        for field in rows.schema:
            if field.type == pa.string() and (found := _with_nul(rows.column(field.name))) is not None:
                reason = f"{field.name!r} holds the character NUL, which a text in PostgreSQL cannot"
                reasons = pc.if_else(found, pa.scalar(reason), reasons)
        return put_aside(batch, rows, reasons)

    def storable_letters(self, rows: pa.Table) -> pa.Table:
        """See `SqlDialect`, and rule 3."""
        for place, field in enumerate(rows.schema):
            if field.type == pa.string() and _with_nul(rows.column(place)) is not None:
                rows = rows.set_column(place, field, pc.replace_substring(rows.column(place), _NUL, "\\u0000"))
        return rows

    def mirrored(self) -> PostgresTables:
        """See `SqlDialect`."""
        return PostgresTables(self.session)

    def totals(self, batches: str) -> dict[str, int]:
        """See `SqlDialect`: summed there, for a live pipeline has many batches."""
        counters = f"{batches}, jsonb_each_text(counters) AS c"
        query = f"SELECT c.key, sum(c.value::bigint)::bigint FROM {counters} GROUP BY c.key ORDER BY c.key"
        return dict(self.session.ask(query))


def _type_of(field: pa.Field) -> str:
    if pa.types.is_timestamp(field.type) and field.type.tz and field.type.unit == "us":
        return "timestamp with time zone"
    if field.type not in _TYPES:
        raise UsageError(f"the column {field.name!r} is of the type {field.type}, which is not kept in PostgreSQL")
    return _TYPES[field.type]


def _with_nul(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Which texts hold a NUL; None if none does."""
    found = pc.fill_null(pc.match_substring(column, _NUL), False)
    return found if pc.any(found).as_py() else None


# Mirrored tables -----------------------------------------------------------------------------------------------


class PostgresTables:
    """A `MirroringDatabase` in the transaction that `session` has begun."""

    def __init__(self, session: PostgresSession) -> None:
        self._session = session

    def form(self, table: str) -> Form | None:
        """See `MirroringDatabase`."""
        found = self.run(_MIRRORED_COLUMNS.format(literal(_OURS), literal(self.name(table))))
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
        self.create(table, {name: _type_of_kind(kind, name in key) for name, kind in columns.items()}, key)
        self._mark(table, columns)

    def create(self, table: str, columns: dict[str, str], key: Sequence[str]) -> None:
        """See `FollowingDatabase`."""
        schema = table.partition(".")[0]
        if not self.run(f"SELECT 1 FROM pg_namespace WHERE nspname = {literal(schema)}"):
            self.run(f"CREATE SCHEMA IF NOT EXISTS {quoted(schema)}")
        typed = tuple((_fitting("column", name), word) for name, word in columns.items())
        self.run(f"CREATE TABLE {self.name(table)} ({Table('', typed, tuple(key)).definition()})")

    def type_of(self, source: str, declared: str) -> str:
        """See `FollowingDatabase`."""
        return declared_type(source, declared)

    def value(self, word: str, value: tuple[str, str]) -> str:
        """See `FollowingDatabase`."""
        return literal(value[1])

    def retype(self, table: str, column: str, word: str) -> None:
        """See `FollowingDatabase`."""
        self.run(
            f"ALTER TABLE {self.name(table)} ALTER COLUMN {quoted(column)} TYPE {word} USING {quoted(column)}::{word}"
        )

    def add(self, table: str, column: str, kind: str) -> None:
        """See `MirroringDatabase`."""
        self.run(
            f"ALTER TABLE {self.name(table)} ADD COLUMN {quoted(_fitting('column', column))} {_TYPES_OF_KINDS[kind]}"
        )
        self._mark(table, [column])

    def _mark(self, table: str, columns: Iterable[str]) -> None:
        for column in columns:
            self.run(f"COMMENT ON COLUMN {self.name(table)}.{quoted(column)} IS {literal(_OURS)}")

    def widen(self, table: str, column: str, kind: str) -> None:
        """See `MirroringDatabase`."""
        form = self.form(table)
        wider = _type_of_kind(kind, form is not None and column in form.key)
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


def _type_of_kind(kind: str, in_key: bool) -> str:
    """The type for values of a kind; a column of json cannot be in a primary key."""
    return "jsonb" if kind == "j" and in_key else _TYPES_OF_KINDS[kind]


def _fitting(what: str, name: str) -> str:
    remedy = "rename it there, or choose the tables without it with 'tables' in [source]"
    return fitting_postgres(name, f"the {what} {name!r} of the source", remedy)


def _line(kinds: Mapping[str, str], row: ReducedRow) -> str:
    """A row as COPY reads it."""
    values = [shown(kind, row.values.get(name)) for name, kind in kinds.items()]
    texts = [_NULL if value is None else value.translate(_ESCAPES) for value in values]
    own = [row.key.translate(_ESCAPES), row.position, "t" if row.gone else "f", "t" if row.whole else "f"]
    return "\t".join(own + texts) + "\n"
