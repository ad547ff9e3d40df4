"""Results as a table of Apache Iceberg, in any catalog that pyiceberg knows, and two tables beside it (tables.py).

Iceberg has no transaction over several tables that all catalogs take. So a commit goes in numbered steps, each a commit of
Iceberg that sets the query's mark, a property of the table, together with the rows, and each is skipped if its table
has that mark:

    1. dead letters, if there are any
    2. the batch: offsets, counters, watermark
    3. the results: from here on, and not before, the batch is applied

Rule 1: what is applied follows from the mark of the table of results alone. It is a property and not a snapshot's summary:
        who expires snapshots takes no mark away.
Rule 2: of two writers that loaded the same state the second is refused, and looks again. pyiceberg itself would put what is
        refused upon the new state, mark or not: tables have `commit.retry.num-retries` = 0, and others are not written to.
Rule 3: batches of a query come in the order of their numbers. One that comes after a larger number counts as applied.
Rule 4: a kill between a file and its commit leaves a file that no snapshot names: nobody reads it, and it is written anew
        under another name.
Rule 5: the epoch of a run (ledger.py) is a property too, `waterclock.owner.LINEAGE`. It is set with a commit of no rows:
        what another run loaded before is refused from then on.
Rule 6: with `written_by="executors"` the rows of step 3 are files that executors wrote into the table's folder of data
        (files.py): step 3 reads their ends and names them.
Rule 7: a row with a time outside of the years 1 to 9999 is a dead letter: pyiceberg writes none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError

from waterclock.errors import CommitUnknown, EnvironmentMissing, SinkLost, UsageError, WaterclockError
from waterclock.sinks.base import Batch, LastBatch, first_line
from waterclock.sinks.files import DRIVER, EXECUTORS, ResultFiles, checked_writer, refuse_unseen
from waterclock.sinks.iceberg.destination import iceberg_table
from waterclock.sinks.ledger import Epoch, Mark, Marks, judge, may_follow
from waterclock.sinks.tables import (
    BATCHES,
    DEAD_LETTERS,
    Table,
    missing,
    refuse,
    rows_of,
    schemas,
    sentences_of,
    unlike,
    with_times_that_fit,
)

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table as IcebergTable

_PARTS: Final = (DEAD_LETTERS, BATCHES, "")
_OURS, _MARK, _OWNER = "waterclock.table", "waterclock.mark.", "waterclock.owner."  # properties of a table
_RETRIES: Final = "commit.retry.num-retries"
_FAR: Final = "a time outside of the years 1 to 9999, which Iceberg does not keep"
_DATA_FOLDER: Final = "write.data.path"
_NO_SUCH = (NoSuchTableError, NoSuchNamespaceError)


class IcebergSink:
    """A `Sink` on `table`, such as "lake.orders", in a catalog; `settings` are pyiceberg's for it, beside its name.

    `written_by` is who writes the files of results: "driver" or "executors".

    >>> IcebergSink("lake.orders", {"type": "sql", "uri": "sqlite:////lake/catalog.db"}).describe()
    "the table 'lake.orders' in the catalog 'default'"
    """

    def __init__(
        self,
        table: str,
        settings: Mapping[str, str] | None = None,
        *,
        catalog: str = "default",
        written_by: str = DRIVER,
    ) -> None:
        self.written_by = checked_writer(written_by)
        self._table, self._settings, self._name = iceberg_table(table), dict(settings or {}), catalog
        self._catalog: Catalog | None = None
        self._tables: dict[str, IcebergTable] = {}
        self._prepared: tuple[Batch, dict[str, pa.Table]] | None = None
        self._epoch: Epoch | None = None

    def open(self, results: pa.Schema) -> None:
        """See `Sink`."""
        wanted = schemas(results)
        with self._errors_of_catalog():
            found = {part: table for part in _PARTS if (table := self._found(part)) is not None}
            refuse(self._faults(wanted, found))
            self._open_catalog().create_namespace_if_not_exists(self._table.rpartition(".")[0])
            for part in _PARTS:  # the results come last: if they are there, the others are
                self._tables[part] = found.get(part) or self._made(part, wanted[part])
            if self.written_by == EXECUTORS and "://" not in self._folder():
                Path(self._folder()).mkdir(parents=True, exist_ok=True)  # no executor makes it

    def look(self, results: pa.Schema) -> list[str]:
        """Why `open` would refuse what is there: all of it. Nothing is made: neither is a catalog of SQLite."""
        if (file := self._catalog_file()) is not None and not file.exists():
            return []
        self._settings = {**self._settings, "init_catalog_tables": "false"}
        with self._errors_of_catalog():
            found = {part: table for part in _PARTS if (table := self._found(part)) is not None}
        return list(self._faults(schemas(results), found))

    def _faults(self, wanted: Mapping[str, pa.Schema], found: Mapping[str, IcebergTable]) -> Iterator[str]:
        for part, table in found.items():
            there, here = _described(part, table.schema().as_arrow()), _described(part, wanted[part])
            yield from unlike(self._at(part), there, here)
            yield from sentences_of(partial(self._refuse_another, part, table))
        holds: dict[str, bool | None] = dict.fromkeys(_PARTS)
        for part, table in found.items():
            holds[part] = any(name.startswith(_MARK) for name in table.properties)
        yield from missing(self._table, self._place(), holds)

    def refuse_to_remove(self) -> list[str]:
        """The parts that are there; UsageError if one is somebody else's."""
        with self._errors_of_catalog():
            found = [(part, table) for part in _PARTS if (table := self._found(part)) is not None]
            for part, table in found:
                if table.properties.get(_OURS) != _what(part):
                    raise UsageError(f"{self._at(part)} is none that waterclock made, so it is not removed")
        return [part for part, _ in found]

    def remove(self) -> None:
        """Drop the three tables with their files, if all are ours."""
        found = self.refuse_to_remove()
        with self._errors_of_catalog():
            for part in reversed(found):
                self._open_catalog().purge_table(self._table + part)
            self._tables = {}

    def last_applied(self) -> LastBatch | None:
        """See `Sink`."""
        with self._errors_of_catalog():
            self._tables[""].refresh()
        return self._marks().last()

    def fence(self, epoch: Epoch) -> None:
        """Let nobody of an earlier epoch write any more; see ledger.py and rule 5."""
        with self._errors_of_catalog():
            for part in _PARTS:
                self._tables[part].refresh()
                may_follow(self._owner(epoch, part), epoch, self.describe())
                nothing = self._tables[part].schema().as_arrow().empty_table()
                with self._tables[part].transaction() as transaction:
                    transaction.set_properties({_OWNER + epoch.lineage: str(epoch.number)})
                    transaction.append(nothing)
        self._epoch = epoch

    def begin(self) -> None:
        """See `Sink`. Alone it is at the commit: whoever loaded the table before another one's commit is refused there."""
        self._prepared = None
        try:
            for part in _PARTS:
                self._tables[part] = self._open_catalog().load_table(self._table + part)
        except Exception as error:  # each kind of catalog has errors of its own
            raise SinkLost(f"{self.describe()} could not be read: {first_line(error)}") from error
        for part, table in self._tables.items():
            self._refuse_another(part, table)
            if self._epoch is not None:
                judge(self._owner(self._epoch, part), self._epoch, self.describe())

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        """See `Sink`."""
        return self._marks().is_applied(query_id, batch_id)

    def result_files(self, batch_id: int) -> ResultFiles | None:
        """See `TakesFiles`: they lie in the table's folder of data."""
        if self.written_by == DRIVER:
            return None
        return ResultFiles(self._folder(), self._tables[""].schema().as_arrow(), batch_id, uuid4().hex, _FAR)

    def write(self, batch: Batch) -> Batch:
        """See `Sink`: made ready here, written by `commit`."""
        with self._lost():
            refuse_unseen(self._folder(), batch.files)
        batch = with_times_that_fit(batch, _FAR)
        self._prepared = (batch, rows_of(batch))
        return batch

    def commit(self) -> None:
        """See `Sink`; the steps stand at the top."""
        assert self._prepared is not None, "commit without write"
        batch, parts = self._prepared
        with self._lost():
            for part, rows in parts.items():  # 1 2 3
                is_there = self._marks(part).is_applied(batch.query_id, batch.batch_id)
                if not is_there and (rows.num_rows or part != DEAD_LETTERS):
                    self._append(part, rows, batch)
        self._prepared = None

    def rollback(self) -> None:
        """See `Sink`."""
        self._prepared = None

    def totals(self) -> dict[str, int]:
        """See `Sink`."""
        return self._marks().totals()

    def close(self) -> None:
        """See `Sink`."""
        self._tables, self._prepared = {}, None
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()

    def describe(self) -> str:
        """See `Sink`."""
        return self._at("")

    @property
    def place(self) -> str:
        """Where the table is, in the words that a checkpoint keeps."""
        return self.describe()

    # Tables ----------------------------------------------------------------------------------------------------

    def _at(self, part: str) -> str:
        return f"the table {self._table + part!r} in {self._place()}"

    def _place(self) -> str:
        return f"the catalog {self._name!r}"

    def _catalog_file(self) -> Path | None:
        """The file of a catalog of SQLite; None if it is another one."""
        file = re.fullmatch(r"sqlite:///(.+)", self._settings.get("uri", ""))
        return Path(file[1]) if file and file[1] != ":memory:" else None

    def _open_catalog(self) -> Catalog:
        if self._catalog is None:
            if (file := self._catalog_file()) is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
            self._catalog = load_catalog(self._name, **self._settings)
        return self._catalog

    def _found(self, part: str) -> IcebergTable | None:
        with suppress(*_NO_SUCH):
            return self._open_catalog().load_table(self._table + part)
        return None

    def _made(self, part: str, schema: pa.Schema) -> IcebergTable:
        return self._open_catalog().create_table(
            self._table + part, schema, properties={_OURS: _what(part), _RETRIES: "0"}
        )

    def _refuse_another(self, part: str, table: IcebergTable) -> None:
        if table.properties.get(_OURS) != _what(part):
            raise UsageError(f"{self._at(part)} is none that waterclock made: name another table in [sink]")
        if table.properties.get(_RETRIES) != "0":
            raise UsageError(
                f"{self._at(part)} has {_RETRIES} = {table.properties.get(_RETRIES)}: a second writer could write a batch "
                "twice. Set that property of the table to 0"
            )

    # Rows and marks --------------------------------------------------------------------------------------------

    def _owner(self, own: Epoch, part: str) -> Epoch | None:
        """The epoch that the table has last, of the lineage of `own`."""
        number = self._tables[part].properties.get(_OWNER + own.lineage)
        return None if number is None else Epoch(own.lineage, int(number))

    def _marks(self, part: str = "") -> Marks:
        marks = Marks()
        for name, value in self._tables[part].properties.items():
            if name.startswith(_MARK):
                mark = json.loads(value)
                marks.note(name.removeprefix(_MARK), Mark(mark["batch_id"], mark["totals"]))
        return marks

    def _append(self, part: str, rows: pa.Table, batch: Batch) -> None:
        after = self._marks(part).after(batch)
        mark = json.dumps({"batch_id": after.batch_id, "totals": after.totals}, sort_keys=True)
        summary = {"waterclock.query": batch.query_id, "waterclock.batch": str(batch.batch_id)}
        with self._tables[part].transaction() as transaction:
            transaction.set_properties({_MARK + batch.query_id: mark})
            if batch.files and part == "":
                named = [f"{self._data()}/{file.name}" for file in batch.files]
                # each has a name of its own: nothing is gained by looking through all that the table has
                transaction.add_files(named, snapshot_properties=summary, check_duplicate_files=False)
            else:
                transaction.append(rows, snapshot_properties=summary)

    def _data(self) -> str:
        """Where the table's files of data lie, in the words of its catalog."""
        table = self._tables[""]
        folder: str = table.properties.get(_DATA_FOLDER, f"{table.location()}/data")
        return folder.rstrip("/")

    def _folder(self) -> str:
        """The same, as a path if it is on this machine."""
        return self._data().removeprefix("file://")

    @contextmanager
    def _errors_of_catalog(self) -> Iterator[None]:
        """What a catalog or the system says of a place, as an error of ours that names it."""
        try:
            yield
        except WaterclockError:
            raise
        except Exception as error:  # each kind of catalog has errors of its own
            raise UsageError(
                f"{self.describe()} cannot be used: {first_line(error)}. Look at [sink.catalog], and at the table's name"
            ) from error

    @contextmanager
    def _lost(self) -> Iterator[None]:
        """A collision is tried again, and so is what a catalog did not answer: the table knows what got through."""
        try:
            yield
        except EnvironmentMissing:
            raise
        except CommitFailedException as error:
            raise SinkLost(f"another writer was quicker at {self.describe()}: {first_line(error)}") from error
        except Exception as error:  # each kind of catalog has errors of its own
            raise CommitUnknown(f"{self.describe()} could not be written: {first_line(error)}") from error


def _what(part: str) -> str:
    return part.removeprefix("_") or "results"


def _described(part: str, schema: pa.Schema) -> Table:
    """The columns in Arrow's words, of which Iceberg reads some as their large kin."""
    return Table(part, tuple((field.name, str(field.type).replace("large_", "")) for field in schema))
