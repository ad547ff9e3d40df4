"""Results in PostgreSQL: binary COPY, and offsets in the same transaction. What a sink does stands in sql_sink.py.

Rule 1: who begins takes a lock of the table's name, and the next one waits for it, and then sees what is applied.
Rule 2: rows of a batch stand in no order in PostgreSQL; `batch_row` counts them, from 0, as they came.
"""

from __future__ import annotations

import pyarrow as pa

from waterclock.postgres.session import Session
from waterclock.sinks.base import Batch
from waterclock.sinks.mirrors.replica import Replica
from waterclock.sinks.postgres.copying import columns_of, copy_rows, escaped, without_nul
from waterclock.sinks.postgres.destination import postgres_name
from waterclock.sinks.postgres.replica import POSITION_TYPES, PostgresTables
from waterclock.sinks.sql.dialect import Columns, ServerDialect
from waterclock.sinks.sql.sql_sink import SqlSink
from waterclock.sinks.tables.tables import Table, quoted

_COLUMNS = """
    SELECT a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a WHERE a.attrelid = to_regclass(%s)
    AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_KEY = """
    SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
    WHERE i.indrelid = to_regclass(%s) AND i.indisprimary
"""
# so long a run that stands still in its transaction keeps the table from one that took over
_NO_STANDING_STILL = "SET LOCAL idle_in_transaction_session_timeout = '60s'"


class PostgresSink(SqlSink):
    """A `Sink` in the database at `url`; with `mirror`, of changes of tables. `schema` is made if need be.

    >>> PostgresSink("postgresql://reports@localhost/shop", "orders").describe()
    "the table 'orders' in the schema 'public' of postgresql://reports@localhost/shop"
    """

    def __init__(
        self, url: str, table: str = "results", *, schema: str = "public", mirror: Replica | None = None
    ) -> None:
        table, schema = postgres_name("table", table), postgres_name("schema", schema)
        super().__init__(PostgresDialect(Session(url), schema), table, mirror)


class PostgresDialect(ServerDialect):
    """PostgreSQL, by a session; its tables stand in `schema`."""

    numbers = (("batch_id", "bigint"), ("batch_row", "integer"))
    dead = ("text", "bigint", "text", "text")
    batch = ("text", "bigint", "text", "jsonb", "timestamp with time zone", "double precision")
    owner = ("text", "bigint")
    positions = POSITION_TYPES

    def __init__(self, session: Session, schema: str) -> None:
        super().__init__(session)
        self.place = f"the schema {schema!r} of {session.url}"
        self.session = session
        self._schema = schema

    def name(self, table: str) -> str:
        """See `Dialect`."""
        return f"{quoted(self._schema)}.{quoted(table)}"

    def columns_of(self, schema: pa.Schema) -> Columns:
        """See `Dialect`."""
        return columns_of(schema)

    def found(self, table: str) -> Table:
        """See `Dialect`."""
        columns, key = (self.session.run(query, self.name(table)) for query in (_COLUMNS, _KEY))
        return Table("", tuple((str(name), str(kind)) for name, kind in columns), tuple(str(name) for (name,) in key))

    def make(self, table: Table, name: str) -> None:
        """See `Dialect`."""
        if not self.session.run("SELECT 1 FROM pg_namespace WHERE nspname = %s", self._schema):
            self.session.run(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._schema)}")
        super().make(table, name)

    def begin(self, lock: str, may_be_taken_over: bool) -> None:
        """See `Dialect`."""
        super().begin(lock, may_be_taken_over)
        if may_be_taken_over:
            self.session.run(_NO_STANDING_STILL)

    def insert(self, table: str, rows: pa.Table) -> None:
        """See `Dialect`."""
        copy_rows(self.session, table, rows)

    def fitting(self, batch: Batch) -> Batch:
        """See `Dialect`."""
        return without_nul(batch)

    def fitting_letters(self, rows: pa.Table) -> pa.Table:
        """See `Dialect`."""
        return escaped(rows)

    def mirrored(self) -> PostgresTables:
        """See `Dialect`."""
        return PostgresTables(self.session)

    def totals(self, batches: str) -> dict[str, int]:
        """See `Dialect`: summed there, for a live pipeline has many batches."""
        counters = f"{batches}, jsonb_each_text(counters) AS c"
        query = f"SELECT c.key, sum(c.value::bigint)::bigint FROM {counters} GROUP BY c.key ORDER BY c.key"
        return dict(self.session.ask(query))
