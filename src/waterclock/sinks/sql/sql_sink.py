"""Results, or changes of tables, in a database that speaks SQL. The tables stand in tables.py, what differs in dialect.py.

Rule 1: one transaction a batch, and one writer at a time: who begins is alone on the table.
Rule 2: rows are added, which no crash can double: they are committed with their batch.
Rule 3: nothing is renamed, cast or dropped to make a table fit: one that differs is refused, column by column.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa

from waterclock.errors import UsageError
from waterclock.sinks.base import Batch, LastBatch
from waterclock.sinks.following import SchemaFollower
from waterclock.sinks.ledger import OWNER, OWNER_NAMES, Epoch, judge, store_in, stored_in
from waterclock.sinks.mirrors import Replica, apply, empty_all, positions_table
from waterclock.sinks.sql.dialect import SqlDialect
from waterclock.sinks.tables import (
    BATCH_KEY,
    BATCH_NAMES,
    BATCHES,
    DEAD_LETTERS,
    LETTERS,
    OF_CHANGES,
    OF_RESULTS,
    POSITIONS,
    Table,
    flat,
    flat_schema,
    folded,
    missing,
    refuse,
    refuse_to_drop,
    unlike,
)


class Kept(Protocol):
    """What a sink is given and keeps: results, or changes of tables."""

    needed: Mapping[
        str, set[str]
    ]  # by the part of a table's name behind the sink's own: the columns that show it to be a sink's

    def table(self, db: SqlDialect, results: pa.Schema) -> Table:
        """The table beside dead letters and batches."""

    def write(self, sink: SqlSink, batch: Batch) -> Batch:
        """Write what the batch brings, and give it as it was written."""

    def empty(self, sink: SqlSink) -> None:
        """Take all rows out of tables that are not dropped."""


class KeptResults:
    """Rows of results, in a table of their own."""

    needed = OF_RESULTS

    def table(self, db: SqlDialect, results: pa.Schema) -> Table:
        """See `Kept`."""
        return Table("", (*db.numbers, *db.columns_of(flat_schema(results))))

    def write(self, sink: SqlSink, batch: Batch) -> Batch:
        """See `Kept`."""
        batch = sink.db.storable(batch)
        sink.append("", batch.batch_id, flat(batch.results))
        return batch

    def empty(self, sink: SqlSink) -> None:
        """See `Kept`: the table is dropped."""


class KeptChanges:
    """Changes of tables, each in the table that it names; here stand their positions."""

    needed = OF_CHANGES

    def __init__(self, mirror: Replica) -> None:
        self._follower = SchemaFollower.of(mirror)

    def table(self, db: SqlDialect, results: pa.Schema) -> Table:
        """See `Kept`."""
        return positions_table(db.positions)

    def write(self, sink: SqlSink, batch: Batch) -> Batch:
        """See `Kept`."""
        sink.refuse_own(batch.results["table"].unique().to_pylist())
        apply(sink.db.mirrored(), sink.name(POSITIONS), batch.results, self._follower)
        return batch

    def empty(self, sink: SqlSink) -> None:
        """See `Kept`."""
        if sink.found(POSITIONS).columns:
            empty_all(sink.db.mirrored(), sink.name(POSITIONS))


class SqlSink:
    """A `Sink` in the database of a dialect; with `mirror`, of changes of tables."""

    needs_no_spark = True  # it may write while Spark is at work

    def __init__(self, db: SqlDialect, table: str, mirror: Replica | None = None) -> None:
        self.db = db
        self.mirror = mirror
        self._table = table
        self._kept: Kept = KeptResults() if mirror is None else KeptChanges(mirror)
        self._epoch: Epoch | None = None

    def open(self, results: pa.Schema) -> None:
        """See `Sink`."""
        wanted = self._wanted(results)
        with self.db.errors(), self._transaction():
            refuse(self._faults(wanted))
            for table in wanted:
                if not self.found(table.part).columns:
                    self.db.make(table, self._table + table.part)

    def look(self, results: pa.Schema) -> list[str]:
        """Why `open` would refuse what is there: all of it. Nothing is made, and nobody's transaction is waited for."""
        with self.db.errors():
            return list(self._faults(self._wanted(results)))

    def refuse_to_remove(self) -> None:
        """UsageError if a table has the name of one of ours and is none."""
        with self.db.errors(), self._transaction():
            refuse_to_drop(self._kept.needed, self._table, self.db.place, self.found)

    def remove(self) -> None:
        """Drop the sink's tables in one transaction; what else is in the database stays.

        Raises UsageError, and drops nothing, if a table has the name of one of ours and is none.
        """
        with self.db.errors(), self._transaction():
            refuse_to_drop(self._kept.needed, self._table, self.db.place, self.found)
            self._kept.empty(self)
            is_ours = tuple(name for name, _ in self.found(OWNER).columns) == OWNER_NAMES
            for part in (*self._kept.needed, *((OWNER,) if is_ours else ())):
                self.db.run(f"DROP TABLE IF EXISTS {self.name(part)}")

    def last_applied(self) -> LastBatch | None:
        """See `Sink`."""
        query = f"SELECT query_id, batch_id FROM {self.name(BATCHES)} ORDER BY batch_id DESC LIMIT 1"
        with self.db.errors():
            rows = self.db.ask(query)
        return LastBatch(*rows[0]) if rows else None

    def inputs(self, query_id: str) -> list[tuple[int, str | None]]:
        """Of each batch of the query the number, and its `offsets`; in their order."""
        mark = self.db.placeholder
        query = f"SELECT batch_id, offsets FROM {self.name(BATCHES)} WHERE query_id = {mark} ORDER BY batch_id"
        with self.db.errors():
            return [(int(batch), offsets) for batch, offsets in self.db.run(query, query_id)]

    def fold(self, query_id: str, batch_id: int) -> None:
        """Make one row of those of the batches up to this one, with the sums of their counters and seconds."""
        mark, batches = self.db.placeholder, self.name(BATCHES)
        which = f"WHERE query_id = {mark} AND batch_id"
        with self.db.errors(), self._transaction():
            found = self.db.run(f"SELECT counters, seconds FROM {batches} {which} <= {mark}", query_id, batch_id)
            sums: Counter[str] = Counter()
            for counters, _ in found:
                sums.update(json.loads(counters) if isinstance(counters, str) else counters)
            self.db.run(f"DELETE FROM {batches} {which} < {mark}", query_id, batch_id)
            row = (json.dumps(dict(sums), sort_keys=True), sum(seconds for _, seconds in found), query_id, batch_id)
            self.db.run(f"UPDATE {batches} SET counters = {mark}, seconds = {mark} {which} = {mark}", *row)

    def fence(self, epoch: Epoch) -> None:
        """Let nobody of an earlier epoch write any more; see ledger.py."""
        with self.db.errors(), self._transaction():
            if not self.found(OWNER).columns:
                owner = Table(OWNER, tuple(zip(OWNER_NAMES, self.db.owner, strict=True)))
                self.db.make(owner, self._table + OWNER)
            store_in(self.db.run, self.name(OWNER), epoch, self.describe())
        self._epoch = epoch

    def begin(self) -> None:
        """See `Sink`."""
        self.db.begin(self.name(), may_be_taken_over=self._epoch is not None)
        if self._epoch is not None:
            there = self.found(OWNER).columns
            judge(stored_in(self.db.run, self.name(OWNER)) if there else None, self._epoch, self.describe())

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        """See `Sink`: of a batch that was folded, a later one speaks."""
        mark = self.db.placeholder
        query = f"SELECT 1 FROM {self.name(BATCHES)} WHERE query_id = {mark} AND batch_id >= {mark} LIMIT 1"
        return bool(self.db.run(query, query_id, batch_id))

    def write(self, batch: Batch) -> Batch:
        """See `Sink`."""
        batch = self._kept.write(self, batch)
        dead = batch.dead_letters.select(LETTERS.names)
        self.append(DEAD_LETTERS, batch.batch_id, self.db.storable_letters(dead))
        watermark = None if batch.watermark_us is None else self.db.time(batch.watermark_us)
        counters = json.dumps(dict(batch.counters), sort_keys=True)
        row = (batch.query_id, batch.batch_id, batch.offsets, counters, watermark, batch.seconds)
        marks = ", ".join([self.db.placeholder] * len(row))
        self.db.run(f"INSERT INTO {self.name(BATCHES)} VALUES ({marks})", *row)
        return batch

    def refuse_own(self, tables: list[str]) -> None:
        """UsageError if one of these tables of the source has the place of one of ours."""
        own = {folded(f"{self.db.schema}.{self._table}{part}") for part in (*self._kept.needed, OWNER)}
        for table in tables:
            if folded(table) in own:
                raise UsageError(
                    f"the table {table} of the source has the place of the sink's own: choose the tables without it with "
                    "'tables' in [source], or name another table in [sink]"
                )

    def append(self, part: str, batch_id: int, rows: pa.Table) -> None:
        """Add rows to the table with this part behind the sink's name, numbered as the database needs it."""
        count = rows.num_rows
        numbers = [pa.repeat(pa.scalar(batch_id, pa.int64()), count), pa.arange(0, count).cast(pa.int32())]
        for place, (name, _) in enumerate(self.db.numbers):
            rows = rows.add_column(place, name, numbers[place])
        if count:
            self.db.insert(self.name(part), rows)

    def commit(self) -> None:
        """See `Sink`."""
        self.db.commit()

    def rollback(self) -> None:
        """See `Sink`."""
        self.db.rollback()

    def totals(self) -> dict[str, int]:
        """See `Sink`."""
        with self.db.errors():
            return self.db.totals(self.name(BATCHES))

    def close(self) -> None:
        """See `Sink`."""
        self.db.close()

    def describe(self) -> str:
        """See `Sink`."""
        return f"the table {self._table!r} in {self.db.place}"

    # Tables ----------------------------------------------------------------------------------------------------

    def name(self, part: str = "") -> str:
        """A table's name, quoted."""
        return self.db.name(self._table + part)

    def found(self, part: str) -> Table:
        """A table as it is there; without columns if it is not."""
        return self.db.found(self._table + part)

    def _wanted(self, results: pa.Schema) -> list[Table]:
        dead = tuple(zip(LETTERS.names, self.db.dead, strict=True))
        batches = tuple(zip(BATCH_NAMES, self.db.batch, strict=True))
        ours = [Table(DEAD_LETTERS, (*self.db.numbers, *dead)), Table(BATCHES, batches, BATCH_KEY)]
        return [self._kept.table(self.db, results), *ours]

    def _faults(self, wanted: list[Table]) -> Iterator[str]:
        rows: dict[str, bool | None] = {}
        for table in wanted:
            found, rows[table.part] = self.found(table.part), None
            if found.columns:
                yield from unlike(f"the table {self._table + table.part!r} in {self.db.place}", found, table)
                yield from self.db.faults_of(self._table + table.part)
                rows[table.part] = bool(self.db.run(f"SELECT 1 FROM {self.name(table.part)} LIMIT 1"))
        yield from missing(self._table, self.db.place, rows)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self.begin()
            yield
            self.commit()
        except BaseException:
            self.rollback()
            raise
