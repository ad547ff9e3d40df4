"""Results as a table in a catalog that Spark's session has: a Hive metastore, Unity, Glue, REST; and two tables beside it.

The three tables are those of sinks/tables.py, of Delta Lake or of Iceberg; <table>_batches says besides how many
rows of results the batch has. Spark has no transaction over several tables, so a commit goes in numbered steps, each one
commit by Spark's own writer, and each writes nothing if its table has that batch (lakes.py):

    1. dead letters, where there are any
    2. the batch: offsets, counters, watermark, how many results. Without results it is applied with this
    3. the results: from here on, and not before, the batch is applied

Rule 1: a batch is applied if <table>_batches has it and the results have its rows, or a commit that names it, or if
        <table>_batches has a later one of the query. So whoever deletes old results, or cuts the history, takes nothing
        away that waterclock needs; but not both of the last batch.
Rule 2: batches of a query come in the order of their numbers. One that comes after a larger number counts as applied.
Rule 3: a table of another provider is refused. A job of Spark's that dies between the files of its tasks and its commit
        leaves half of a batch there, and nothing in the table names the batch.
Rule 4: the epoch of a run (sinks/ledger.py) is a property of the table of results, `waterclock.owner.LINEAGE`. It is
        judged at the start of a batch, and in front of each step. Who stands still between that and the step writes the
        batch that the other run has to write too, and of the two one gets through.
Rule 5: a row with a time outside of the years 1 to 9999 is a dead letter: so it is with Iceberg's and Spark's own readers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import functions as F

from waterclock.errors import CommitUnknown, SinkLost, StateMismatch, UsageError, WaterclockError
from waterclock.sinks.base import Batch, LastBatch
from waterclock.sinks.catalog import spark_table
from waterclock.sinks.ledger import Epoch, added, judge, may_follow
from waterclock.sinks.tables import (
    BATCHES,
    DEAD_LETTERS,
    Table,
    missing,
    refuse,
    rows_of,
    schemas,
    unlike,
    with_times_that_fit,
)
from waterclock.spark.session.session import session_for
from waterclock.spark.tables.catalog import Catalog, cause_of, described, explained, is_collision
from waterclock.spark.tables.lakes import LAKES, Lake, Once

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_PARTS: Final = (DEAD_LETTERS, BATCHES, "")
_OURS, _OWNER = "waterclock.table", "waterclock.owner."  # properties of a table
_COUNT: Final = pa.field("result_rows", pa.int64())
_FAR: Final = "a time outside of the years 1 to 9999, which Spark does not keep"
_OTHERS: Final = (
    "{} is of Spark's {!r}, where no batch can be written exactly once: a job that dies between the files of its tasks "
    "and its commit leaves half of it, and nothing there names the batch. Make it with USING delta or USING iceberg, or "
    "take another format in [sink]"
)


class SparkTable:
    """A `Sink` on `table`, such as "lake.shop.results", in a catalog of the Spark session that the pipeline runs in.

    `using` is "delta" or "iceberg": what the tables are made as, where the catalog makes both.

    >>> SparkTable("lake.shop.results").describe()
    "the table 'lake.shop.results' in Spark's catalog"
    """

    def __init__(self, table: str, *, using: str | None = None, session: SparkSession | None = None) -> None:
        if using is not None and using not in LAKES:
            raise UsageError(f"SparkTable(using=) must be one of {', '.join(LAKES)}, got {using!r}")
        self._table, self._using, self._session = spark_table(table), using, session
        self._lakes: dict[str, Lake] = {}
        self._prepared: tuple[Batch, dict[str, pa.Table]] | None = None
        self._epoch: Epoch | None = None
        self._is_begun = False  # the batch of the last `is_applied` stands in <table>_batches, and is not applied

    def open(self, results: pa.Schema) -> None:
        """See `Sink`."""
        wanted = {**schemas(results), BATCHES: schemas(results)[BATCHES].append(_COUNT)}
        with self._errors_of_spark():
            found = [part for part in _PARTS if self._catalog.exists(self._table + part)]
            lakes = {part: self._lake_of(part) for part in found}
            for part, lake in lakes.items():
                self._refuse_unlike(part, lake, wanted[part])
            holds = {part: self._has_rows(part) if part in found else None for part in _PARTS}
            refuse(missing(self._table, "Spark's catalog", holds))
            self._refuse_nobodys(holds)
            new = lakes.get("") or (self._lake_of_new() if len(found) < len(_PARTS) else LAKES["delta"])
            new.check(wanted[""])
            self._make([part for part in _PARTS if part not in found], new, wanted)
            self._lakes = {part: lakes.get(part, new) for part in _PARTS}

    def refuse_to_remove(self) -> dict[str, Lake]:
        """The tables that are there; UsageError where one is somebody else's."""
        with self._errors_of_spark():
            found = [part for part in _PARTS if self._catalog.exists(self._table + part)]
            return {part: self._lake_of(part) for part in reversed(found)}

    def remove(self) -> None:
        """Drop the three tables, if all are ours."""
        lakes = self.refuse_to_remove()
        with self._errors_of_spark():
            for part, lake in lakes.items():
                self._catalog.drop(self._table + part, lake.with_files)
            self._lakes = {}

    def last_applied(self) -> LastBatch | None:
        """See `Sink`."""
        with self._errors_of_spark():
            self._refresh()
            found = [self._last_of(row) for row in self._last_rows()]
        return max((last for last in found if last is not None), key=lambda each: each.batch_id, default=None)

    def fence(self, epoch: Epoch) -> None:
        """Let nobody of an earlier epoch write any more; see sinks/ledger.py and rule 4."""
        with self._errors_of_spark():
            self._refresh()
            may_follow(self._owner(epoch), epoch, self.describe())
            self._catalog.set_property(self._table, _OWNER + epoch.lineage, str(epoch.number))
        self._epoch = epoch

    def begin(self) -> None:
        """See `Sink`. Alone it is at each step of the commit, of two that write the same batch."""
        self._prepared = None
        with self._lost(SinkLost):
            self._refresh()
            self._judge()

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        """See `Sink`."""
        with self._lost(SinkLost):
            own = self._catalog.rows(self._table + BATCHES).where(F.col("query_id") == query_id)
            rows = own.where(F.col("batch_id") >= batch_id).select("batch_id", _COUNT.name).collect()
            once = Once(query_id, batch_id)
            self._is_begun = any(row["batch_id"] == batch_id for row in rows)
            return any(row["batch_id"] > batch_id or self._is_there(once, row[_COUNT.name]) for row in rows)

    def write(self, batch: Batch) -> Batch:
        """See `Sink`: made ready here, written by `commit`."""
        batch = with_times_that_fit(batch, _FAR)
        parts = rows_of(batch)
        parts[BATCHES] = parts[BATCHES].append_column(_COUNT, pa.array([parts[""].num_rows], _COUNT.type))
        self._prepared = (batch, parts)
        return batch

    def commit(self) -> None:
        """See `Sink`; the steps stand at the top."""
        assert self._prepared is not None, "commit without write"
        batch, parts = self._prepared
        once = Once(batch.query_id, batch.batch_id)
        with self._lost(CommitUnknown):
            for part, rows in parts.items():  # 1 2 3
                # a run that ended between 2 and 3 may have promised results that this one does not have
                if rows.num_rows or (part == "" and self._is_begun):
                    self._judge()
                    if not self._lakes[part].append(self._catalog, self._table + part, rows, once):
                        self._refuse_anothers(once)
        self._prepared = None

    def rollback(self) -> None:
        """See `Sink`."""
        self._prepared = None

    def totals(self) -> dict[str, int]:
        """See `Sink`."""
        total: dict[str, int] = {}
        with self._errors_of_spark():
            done = {row["query_id"]: self._last_of(row) for row in self._last_rows()}
            rows = self._catalog.rows(self._table + BATCHES).select("query_id", "batch_id", "counters").collect()
        for query_id, batch_id, counters in rows:
            last = done.get(query_id)
            if last is not None and batch_id <= last.batch_id:
                total = added(total, json.loads(counters))
        return total

    def close(self) -> None:
        """See `Sink`; the session is its owner's."""
        self._lakes, self._prepared = {}, None

    def describe(self) -> str:
        """See `Sink`."""
        return self._at("")

    @property
    def place(self) -> str:
        """Where the table is, in the words that a checkpoint keeps."""
        return self.describe()

    # Tables ----------------------------------------------------------------------------------------------------

    @property
    def _catalog(self) -> Catalog:
        if self._session is None:
            self._session = session_for("waterclock")
        return Catalog(self._session)

    def _at(self, part: str) -> str:
        return f"the table {self._table + part!r} in Spark's catalog"

    def _lake_of(self, part: str) -> Lake:
        """The kind of a table that is there; UsageError if it is none of ours, or cannot be written once."""
        provider = self._catalog.provider(self._table + part)
        if provider not in LAKES:
            raise UsageError(_OTHERS.format(self._at(part), provider or "view"))
        if self._catalog.properties(self._table + part).get(_OURS) != _what(part):
            raise UsageError(
                f"{self._at(part)} is none that waterclock made, so it is not removed: name another table in [sink]; "
                f"--fresh leaves it. One that was made for waterclock has the property {_OURS} = {_what(part)}"
            )
        return LAKES[provider]

    def _lake_of_new(self) -> Lake:
        made = self._using or self._catalog.provider_of_new(self._table)
        if made is None:
            raise UsageError(
                f"{self.describe()} is not there, and its catalog makes tables of several kinds: say using = 'delta' or "
                "'iceberg' in [sink] (SparkTable(using=))"
            )
        return LAKES[made]

    def _make(self, parts: list[str], lake: Lake, wanted: dict[str, pa.Schema]) -> None:
        if parts:
            self._catalog.make_namespace(self._table)
        for part in parts:  # the results come last: if they are there, the others are
            self._catalog.make(self._table + part, wanted[part], lake.provider, {_OURS: _what(part)})

    def _refuse_unlike(self, part: str, lake: Lake, wanted: pa.Schema) -> None:
        columns = described(self._catalog.frame(wanted.empty_table()).schema)
        here = Table(part, tuple((name, lake.kept_as(kind)) for name, kind in columns))
        refuse(unlike(self._at(part), Table(part, self._catalog.columns(self._table + part)), here))

    def _has_rows(self, part: str) -> bool:
        return not self._catalog.rows(self._table + part).limit(1).isEmpty()

    def _refuse_nobodys(self, holds: Mapping[str, bool | None]) -> None:
        """Rows of results are a batch's by its number: those that no batch names would be taken for a later one's."""
        if holds[""] and not holds[BATCHES]:
            raise UsageError(
                f"{self._at(BATCHES)} is empty, and {self.describe()} holds rows, of which nobody knows whose they are. "
                "Restore the first, or delete the rows of the second too, or start over with --fresh"
            )

    def _refresh(self) -> None:
        for part in _PARTS:
            self._catalog.refresh(self._table + part)

    # Epochs and batches ----------------------------------------------------------------------------------------

    def _owner(self, own: Epoch) -> Epoch | None:
        """The last epoch that the table's properties name, of the lineage of `own`."""
        number = self._catalog.properties(self._table).get(_OWNER + own.lineage)
        return None if number is None else Epoch(own.lineage, int(number))

    def _judge(self) -> None:
        if self._epoch is not None:
            self._catalog.refresh(self._table)
            judge(self._owner(self._epoch), self._epoch, self.describe())

    def _last_rows(self) -> list[Row]:
        """Of each query the last row of <table>_batches: query_id, batch_id, result_rows."""
        last = F.max(F.struct("batch_id", _COUNT.name)).alias("last")
        rows = self._catalog.rows(self._table + BATCHES).groupBy("query_id").agg(last)
        found: list[Row] = rows.select("query_id", "last.batch_id", f"last.{_COUNT.name}").collect()
        return found

    def _last_of(self, row: Row) -> LastBatch | None:
        """The last batch of a query that is applied, where `row` is the last that was begun."""
        once = Once(row["query_id"], row["batch_id"])
        if self._is_there(once, row[_COUNT.name]):
            return LastBatch(once.query_id, once.batch_id)
        before = self._catalog.rows(self._table + BATCHES).where(F.col("query_id") == once.query_id)
        number = before.where(F.col("batch_id") < once.batch_id).agg(F.max("batch_id")).collect()[0][0]
        return None if number is None else LastBatch(once.query_id, number)

    def _is_there(self, once: Once, count: int) -> bool:
        """Whether the results have all of a batch that has `count` of them (rule 1)."""
        if not count or (self._has_rows_of(once) and not self._is_anothers(once)):
            return True
        return self._lakes[""].has_note(self._catalog, self._table, once)  # whose rows somebody has deleted

    def _has_rows_of(self, once: Once) -> bool:
        return not self._catalog.rows(self._table).where(F.col("batch_id") == once.batch_id).limit(1).isEmpty()

    def _is_anothers(self, once: Once) -> bool:
        """Whether another query has a batch of that number."""
        others = self._catalog.rows(self._table + BATCHES).where(F.col("batch_id") == once.batch_id)
        return not others.where(F.col("query_id") != once.query_id).limit(1).isEmpty()

    def _refuse_anothers(self, once: Once) -> None:
        """Rows of a batch are known by its number: nothing distinguishes those of two queries with the same one."""
        if self._is_anothers(once):
            raise StateMismatch(
                f"{self.describe()} holds a batch {once.batch_id} of another query: name another table and another "
                "checkpoint for one of the two pipelines"
            )

    @contextmanager
    def _errors_of_spark(self) -> Iterator[None]:
        """What Spark or a catalog says of a place, as an error of ours that names it."""
        try:
            yield
        except WaterclockError:
            raise
        except Exception as error:  # each kind of catalog has errors of its own
            raise UsageError(f"{self.describe()} cannot be used: {explained(error)}") from error

    @contextmanager
    def _lost(self, kind: type[SinkLost]) -> Iterator[None]:
        """A collision is tried again, and so is what a catalog did not answer: the table knows what got through."""
        try:
            yield
        except WaterclockError:
            raise
        except Exception as error:  # each kind of catalog has errors of its own
            if is_collision(error):
                raise SinkLost(f"another writer was quicker at {self.describe()}: {cause_of(error)}") from error
            raise kind(f"{self.describe()} could not be reached or written: {cause_of(error)}") from error


def _what(part: str) -> str:
    return part.removeprefix("_") or "results"
