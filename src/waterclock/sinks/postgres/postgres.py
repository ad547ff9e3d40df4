"""Results in PostgreSQL: binary COPY, and offsets in the same transaction. Its tables stand in tables.py.

Rule 1: one transaction a batch, and one writer at a time: who begins takes a lock of the table's name, and the next one
    waits for it, and then sees what is applied.
Rule 2: rows of a batch stand in no order in PostgreSQL; `batch_row` counts them, from 0, as they came.
Rule 3: results are added, which no crash can double: they are committed with their batch.
Rule 4: nothing is renamed, cast or dropped to make a table fit: one that differs is refused, column by column.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from waterclock.postgres.session import Session
from waterclock.sinks import letters
from waterclock.sinks.base import Batch, LastBatch
from waterclock.sinks.epochs import OWNER, OWNER_NAMES, Epoch, definition, judge, store_in, stored_in
from waterclock.sinks.mirrors.replica import Replica, apply, empty_all, positions_table
from waterclock.sinks.postgres.copying import columns_of, copy_rows, escaped, without_nul
from waterclock.sinks.postgres.destination import postgres_name
from waterclock.sinks.postgres.replica import POSITION_TYPES, PostgresTables
from waterclock.sinks.results import flat, flat_schema
from waterclock.sinks.strangers import needed_names, refuse_to_drop
from waterclock.sinks.tables import (
    BATCH_KEY,
    BATCH_NAMES,
    BATCHES,
    DEAD_LETTERS,
    POSITIONS,
    Table,
    quoted,
    refuse_lost,
    refuse_unlike,
)

_NUMBERS = (("batch_id", "bigint"), ("batch_row", "integer"))
_DEAD_TYPES = ("text", "bigint", "text", "text")
_BATCH_TYPES = ("text", "bigint", "text", "jsonb", "timestamp with time zone", "double precision")
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
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class PostgresSink:
    """A `Sink` in the database at `url`; with `mirror`, of changes of tables. `schema` is made if need be.

    >>> PostgresSink("postgresql://reports@localhost/shop", "orders").describe()
    "the table 'orders' in the schema 'public' of postgresql://reports@localhost/shop"
    """

    def __init__(
        self, url: str, table: str = "results", *, schema: str = "public", mirror: Replica | None = None
    ) -> None:
        self._table = postgres_name("table", table)
        self._schema = postgres_name("schema", schema)
        self._mirror = mirror
        self._session = Session(url)
        self._epoch: Epoch | None = None

    @property
    def mirror(self) -> Replica | None:
        """That it is given changes of tables; None if it is given results."""
        return self._mirror

    def open(self, results: pa.Schema) -> None:
        """See `Sink`."""
        wanted = self._tables(results)
        with self._transaction():
            if not self._session.run("SELECT 1 FROM pg_namespace WHERE nspname = %s", self._schema):
                self._session.run(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._schema)}")
            self._refuse_unlike(wanted)
            for table in wanted:
                if not self._found(table.part).columns:
                    self._session.run(f"CREATE TABLE {self._name(table.part)} ({table.definition()})")

    def look(self, results: pa.Schema) -> None:
        """UsageError where `open` would refuse what is there; nothing is made."""
        with self._transaction():
            self._refuse_unlike(self._tables(results))

    def remove(self) -> None:
        """Drop the sink's tables in one transaction; the schema, and what else is in it, stays.

        Raises UsageError, and drops nothing, where a table has the name of one of ours and is none.
        """
        with self._transaction():
            refuse_to_drop(self._mirror, self._table, self._place(), self._found)
            if self._mirror is not None and self._found(POSITIONS).columns:
                empty_all(PostgresTables(self._session), self._name(POSITIONS))
            is_ours = tuple(name for name, _ in self._found(OWNER).columns) == OWNER_NAMES
            for part in (*needed_names(self._mirror), *((OWNER,) if is_ours else ())):
                self._session.run(f"DROP TABLE IF EXISTS {self._name(part)}")

    def last_applied(self) -> LastBatch | None:
        """See `Sink`."""
        query = f"SELECT query_id, batch_id FROM {self._name(BATCHES)} ORDER BY batch_id DESC LIMIT 1"
        rows = self._session.ask(query)
        return LastBatch(*rows[0]) if rows else None

    def fence(self, epoch: Epoch) -> None:
        """Let nobody of an earlier epoch write any more; see epochs.py."""
        with self._transaction():
            if not self._found(OWNER).columns:
                self._session.run(f"CREATE TABLE {self._name(OWNER)} ({definition('text', 'bigint')})")
            store_in(self._session.run, self._name(OWNER), epoch, self.describe())
        self._epoch = epoch

    def begin(self) -> None:
        """See `Sink`."""
        self._session.begin(self._name())
        if self._epoch is not None:
            self._session.run(_NO_STANDING_STILL)
            there = self._found(OWNER).columns
            judge(stored_in(self._session.run, self._name(OWNER)) if there else None, self._epoch, self.describe())

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        """See `Sink`."""
        query = f"SELECT 1 FROM {self._name(BATCHES)} WHERE query_id = %s AND batch_id = %s"
        return bool(self._session.run(query, query_id, batch_id))

    def write(self, batch: Batch) -> Batch:
        """See `Sink`."""
        if self._mirror is None:
            batch = without_nul(batch)
            self._append("", batch.batch_id, flat(batch.results))
        else:
            apply(PostgresTables(self._session), self._name(POSITIONS), batch.results)
            batch = replace(batch, dead_letters=escaped(batch.dead_letters))
        self._append(DEAD_LETTERS, batch.batch_id, batch.dead_letters.select(letters.SCHEMA.names))
        counters = json.dumps(dict(batch.counters), sort_keys=True)
        watermark = None if batch.watermark_us is None else _EPOCH + timedelta(microseconds=batch.watermark_us)
        row = (batch.query_id, batch.batch_id, batch.offsets, counters, watermark, batch.seconds)
        self._session.run(f"INSERT INTO {self._name(BATCHES)} VALUES (%s, %s, %s, %s, %s, %s)", *row)
        return batch

    def commit(self) -> None:
        """See `Sink`."""
        self._session.commit()

    def rollback(self) -> None:
        """See `Sink`."""
        self._session.rollback()

    def totals(self) -> dict[str, int]:
        """See `Sink`."""
        return dict(
            self._session.ask(
                f"SELECT c.key, sum(c.value::bigint)::bigint FROM {self._name(BATCHES)}, jsonb_each_text(counters) AS c "
                "GROUP BY c.key ORDER BY c.key"
            )
        )

    def close(self) -> None:
        """See `Sink`."""
        self._session.close()

    def describe(self) -> str:
        """See `Sink`."""
        return f"the table {self._table!r} in {self._place()}"

    # Tables ----------------------------------------------------------------------------------------------------

    def _place(self) -> str:
        return f"the schema {self._schema!r} of {self._session.url}"

    def _name(self, part: str = "") -> str:
        return f"{quoted(self._schema)}.{quoted(self._table + part)}"

    def _tables(self, results: pa.Schema) -> list[Table]:
        dead = tuple(zip(letters.SCHEMA.names, _DEAD_TYPES, strict=True))
        batches = tuple(zip(BATCH_NAMES, _BATCH_TYPES, strict=True))
        ours = [Table(DEAD_LETTERS, (*_NUMBERS, *dead)), Table(BATCHES, batches, BATCH_KEY)]
        if self._mirror is None:
            return [Table("", (*_NUMBERS, *columns_of(flat_schema(results)))), *ours]
        return [positions_table(POSITION_TYPES), *ours]

    def _refuse_unlike(self, wanted: list[Table]) -> None:
        """UsageError or StateMismatch where what is there is another table, or a part of it is gone."""
        for table in wanted:
            if (found := self._found(table.part)).columns:
                refuse_unlike(f"the table {self._table + table.part!r} in {self._place()}", found, table)
        refuse_lost(self._table, self._place(), {table.part: self._holds_rows(table.part) for table in wanted})

    def _found(self, part: str) -> Table:
        columns = self._session.run(_COLUMNS, self._name(part))
        key = self._session.run(_KEY, self._name(part))
        return Table(part, tuple((str(name), str(kind)) for name, kind in columns), tuple(str(name) for (name,) in key))

    def _holds_rows(self, part: str) -> bool | None:
        there = self._found(part).columns
        return bool(self._session.run(f"SELECT 1 FROM {self._name(part)} LIMIT 1")) if there else None

    # Rows ------------------------------------------------------------------------------------------------------

    def _append(self, part: str, batch_id: int, rows: pa.Table) -> None:
        count = rows.num_rows
        numbered = rows.add_column(0, "batch_row", pa.array(np.arange(count, dtype=np.int32)))
        numbered = numbered.add_column(0, "batch_id", pa.array(np.full(count, batch_id, dtype=np.int64)))
        copy_rows(self._session, self._name(part), numbered)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self.begin()
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise
