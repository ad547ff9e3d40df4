"""Results as a table of Delta Lake, or tables that follow changes: folders, or URLs of an object store.

    <path>                 results, a row each (tables.py), behind batch_id and batch_row
    <path>_dead_letters    what could not be read: batch_id, file, line, reason, text
    <path>_batches         a row a batch: query_id, batch_id, offsets, counters, watermark, seconds
    <path>_positions       of changes of tables: a row for each key that was ever seen, and the position of its last change

Delta has no transaction over several tables. So a commit goes in numbered steps, each a commit of Delta that carries the
query's id and the batch's number as its application transaction, and each is skipped if its table has that number:

    1. dead letters, if there are any
    2. the batch: offsets, counters, watermark
    3. the results: from here on, and not before, the batch is applied

With `written_by="executors"` the rows of step 3 are files that executors wrote into the folder of the table (files.py), and
step 3 is the commit that names them.

Of changes of tables the steps are: 1. dead letters, 2. each mirrored table, 3. the positions, 4. the batch: it is applied.
What 2 does follows from the positions, which stand as before until 3: so it comes to the same when it is planned again.

Rule 1: what is applied follows from the table of the last step alone: all batches of a query up to the version that it
        holds for the query. Of results, offsets and counters of an unfinished batch may stand in <path>_batches; they do
        not count.
Rule 2: two writers of one query collide at step 3: Delta refuses the second, which then finds the batch applied.
Rule 3: batches of a query come in the order of their numbers. One that comes after a larger number counts as applied.
Rule 4: a table that was made anew has the same numbers of versions. So before a batch, and before its commit, a run looks
        whether the last file of each log that it read is the one that lies there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.transaction import AddAction

from waterclock.errors import CommitUnknown, SinkLost, StateMismatch, UsageError
from waterclock.sinks.base import Batch, LastBatch, ResultFile, first_line
from waterclock.sinks.delta.destination import (
    delta_column,
    refuse_another_table_around,
    refuse_other_things,
    refuse_others_inside,
    remove_folder,
    table_location,
)
from waterclock.sinks.delta.replica import KEY, PARTITIONED, POSITIONS_SCHEMA, Change, DeltaReplica
from waterclock.sinks.files import DRIVER, ResultFiles, checked_writer, refuse_unseen
from waterclock.sinks.ledger import Epoch, added, judge, may_follow
from waterclock.sinks.mirrors import Replica
from waterclock.sinks.tables import (
    BATCHES,
    DEAD_LETTERS,
    OF_CHANGES,
    OF_RESULTS,
    POSITIONS,
    SIDES,
    Table,
    needed_of_results,
    refuse,
    refuse_beside_changes,
    rows_of,
    schemas,
    sentences_of,
    sides_of,
    unlike,
)

Tables = Mapping[str, DeltaTable]  # by the ends of their names


class DeltaResults:
    """What a sink is given and keeps: rows of results, in a table of their own."""

    last_step = ""  # the table by which a batch is applied

    def wanted(self, results: pa.Schema) -> dict[str, pa.Schema]:
        """The columns of the tables that are made, by the ends of their names; that of results last."""
        return schemas(results)

    def needed(self, batches: set[str]) -> dict[str, set[str]]:
        """The columns that show a table to be a sink's, if the table of batches has the columns `batches`."""
        return {**OF_RESULTS, "": {"batch_row", *needed_of_results(batches)}}

    def prepared(self, batch: Batch, location: str, tables: Tables) -> tuple[dict[str, pa.Table], list[Change]]:
        """What a batch brings: rows to add, in the order of their commits, and changes of tables."""
        refuse_unseen(location, batch.files)
        return rows_of(batch), []

    def empty(self, location: str, positions: DeltaTable | None) -> None:
        """Take all rows out of tables that are not removed; that of results is."""


class DeltaChanges(DeltaResults):
    """What a sink is given and keeps: changes of tables, each in the table that it names; here stand their positions."""

    last_step = BATCHES

    def wanted(self, results: pa.Schema) -> dict[str, pa.Schema]:
        """See `DeltaResults`."""
        return {**SIDES, POSITIONS: POSITIONS_SCHEMA}

    def needed(self, batches: set[str]) -> dict[str, set[str]]:
        """See `DeltaResults`."""
        return dict(OF_CHANGES)

    def prepared(self, batch: Batch, location: str, tables: Tables) -> tuple[dict[str, pa.Table], list[Change]]:
        """See `DeltaResults`."""
        changes = DeltaReplica(location).changes(batch.query_id, batch.results, tables[POSITIONS])
        return sides_of(batch), changes

    def empty(self, location: str, positions: DeltaTable | None) -> None:
        """See `DeltaResults`."""
        if positions is not None:
            DeltaReplica(location).empty_all(positions)


class DeltaSink:
    """A `Sink` on the table of Delta Lake at `location`, a path or a URL; passwords come from the environment.

    With `mirror` it is given changes, and the tables beside it follow those that the changes name. `written_by` is who
    writes the files of results: "driver" or "executors".
    """

    def __init__(self, location: str | Path, *, mirror: Replica | None = None, written_by: str = DRIVER) -> None:
        self._location = table_location(str(location))
        self.mirror = mirror
        self.written_by = checked_writer(written_by, mirror)
        self._kept = DeltaResults() if mirror is None else DeltaChanges()
        self._tables: dict[str, DeltaTable] = {}
        self._logs: dict[Path, tuple[int, ...] | None] = {}  # the last file of each table's log that was read
        self._prepared: tuple[Batch, dict[str, pa.Table], list[Change]] | None = None
        self._epoch: Epoch | None = None

    @property
    def path(self) -> Path | None:
        """The folder of the table; None if it lies behind a URL, where nothing is removed."""
        return None if self._is_url else Path(self._location)

    @property
    def place(self) -> str:
        """Where the table is, in the words that a checkpoint keeps."""
        return f"the table {self._location}"

    def describe(self) -> str:
        """See `Sink`.

        >>> DeltaSink("s3://lake/orders/").describe()
        "the table 'orders' in s3://lake"
        """
        return self._name("")

    def open(self, results: pa.Schema) -> None:
        """See `Sink`."""
        wanted = self._kept.wanted(results)
        with self._errors_of_delta():
            found = {part: table for part in wanted if (table := self._found(part)) is not None}
            refuse(self._faults(wanted, found))
            for part, schema in wanted.items():  # the results come last: if they are there, the others are
                by = list(PARTITIONED) if part == POSITIONS else None
                self._tables[part] = found.get(part) or DeltaTable.create(self._at(part), schema, partition_by=by)
        self._note_logs()

    def look(self, results: pa.Schema) -> list[str]:
        """Why `open` would refuse what is there: all of it. Nothing is made."""
        wanted = self._kept.wanted(results)
        with self._errors_of_delta():
            found = {part: table for part in wanted if (table := self._found(part)) is not None}
            return list(self._faults(wanted, found))

    def _faults(self, wanted: Mapping[str, pa.Schema], found: Mapping[str, DeltaTable]) -> Iterator[str]:
        yield from sentences_of(*(partial(delta_column, name) for name in wanted.get("", POSITIONS_SCHEMA).names))
        yield from sentences_of(partial(refuse_another_table_around, self._location))
        for part, schema in wanted.items():
            if part in found:
                yield from unlike(self._name(part), _described(part, found[part].schema()), _described(part, schema))
            else:
                yield from sentences_of(partial(self._refuse_other_things, part))

    def refuse_to_remove(self) -> list[str]:
        """The folders that `remove` takes, if there; UsageError if one is something else, or they lie behind a URL."""
        if self._is_url:
            ours = [*map(self._at, self._kept.needed(set())), *(["the mirrored tables"] if self.mirror else [])]
            raise UsageError(
                f"nothing behind a URL is removed: remove {', '.join(ours)} and the checkpoint, and start without --fresh"
            )
        with self._errors_of_delta():
            needed_by_part = self._kept.needed(self._columns_of(BATCHES))
            refuse_beside_changes(needed_by_part, self.describe(), self._columns_of(POSITIONS))
            for part, needed in needed_by_part.items():
                self._refuse_other_things(part)
                if self._found(part) is not None and not self._columns_of(part) >= needed:
                    raise UsageError(f"{self._name(part)} is none that waterclock made, so it is not removed")
                partitions = f"{PARTITIONED[0]}=" if part == POSITIONS else None
                refuse_others_inside(self._at(part), self._name(part), partitions)
        return [self._at(part) for part in needed_by_part]

    def remove(self) -> None:
        """Remove the folders of the three tables, if all are ours."""
        folders = self.refuse_to_remove()
        with self._errors_of_delta():
            self._kept.empty(self._location, self._found(POSITIONS))
            for folder in folders:
                remove_folder(Path(folder))
        self._tables = {}

    def last_applied(self) -> LastBatch | None:
        """See `Sink`."""
        with self._errors_of_delta():
            queries = set(self._batches(["query_id"]).column(0).to_pylist())
            found = {query: self._version(query, self._kept.last_step) for query in queries}
        applied = [LastBatch(query, version) for query, version in found.items() if version is not None]
        return max(applied, key=lambda each: each.batch_id, default=None)

    def fence(self, epoch: Epoch) -> None:
        """Let nobody of an earlier epoch write any more; see ledger.py. A commit that was under way then is refused by
        Delta, for it carries the same application transaction."""
        with self._errors_of_delta():
            for part, table in self._tables.items():
                table.update_incremental()
                found = self._owner(epoch, part)
                may_follow(found, epoch, self.describe())
                if found != epoch:
                    mark = CommitProperties(app_transactions=[_transaction_of(epoch)])
                    table.create_write_transaction([], "append", table.schema(), commit_properties=mark)
        self._epoch = epoch

    def begin(self) -> None:
        """See `Sink`. Alone it is at the commit: a second writer of the same query is refused there."""
        self._prepared = None
        self._refuse_replaced()
        try:
            with self._lost():
                for table in self._tables.values():
                    table.update_incremental()
        except CommitUnknown as error:  # nothing was committed here: a batch that is applied then is not by this call
            raise SinkLost(str(error)) from error
        self._note_logs()
        if self._epoch is not None:
            for part in self._tables:
                judge(self._owner(self._epoch, part), self._epoch, self.describe())

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        """See `Sink`."""
        version = self._version(query_id, self._kept.last_step)
        return version is not None and batch_id <= version

    def result_files(self, batch_id: int) -> ResultFiles | None:
        """See `TakesFiles`: they lie in the table's folder."""
        if self.written_by == DRIVER:
            return None
        columns = pa.schema(self._tables[""].schema().to_arrow())
        return ResultFiles(self._location, columns, batch_id, uuid4().hex)

    def write(self, batch: Batch) -> Batch:
        """See `Sink`: made ready here, written by `commit`."""
        with self._lost():  # what stands there is read
            self._prepared = (batch, *self._kept.prepared(batch, self._location, self._tables))
        return batch

    def commit(self) -> None:
        """See `Sink`; the steps stand at the top."""
        assert self._prepared is not None, "commit without write"
        batch, parts, changes = self._prepared
        self._refuse_replaced()
        own = [] if self._epoch is None else [_transaction_of(self._epoch)]
        once = CommitProperties(app_transactions=[Transaction(batch.query_id, batch.batch_id), *own])
        with self._lost():
            for part, rows in parts.items():  # 1 2 3; of changes 1 4
                for change in changes if part == BATCHES else ():  # 2 3
                    change.commit(batch.batch_id, own)
                version = self._version(batch.query_id, part)
                if (version is None or version < batch.batch_id) and (rows.num_rows or part != DEAD_LETTERS):
                    if batch.files and part == "":
                        self._name_files(batch.files, once)
                    else:
                        write_deltalake(self._tables[part], rows, mode="append", commit_properties=once)
        self._prepared = None

    def _name_files(self, files: tuple[ResultFile, ...], once: CommitProperties) -> None:
        """The commit that makes rows of files which executors wrote."""
        table = self._tables[""]
        named = [AddAction(file.name, file.size, {}, file.modified_ms, True, file.figures) for file in files]
        table.create_write_transaction([*named], "append", table.schema(), commit_properties=once)
        table.update_incremental()

    def rollback(self) -> None:
        """See `Sink`."""
        self._prepared = None

    def totals(self) -> dict[str, int]:
        """See `Sink`."""
        total: dict[str, int] = {}
        with self._errors_of_delta():
            rows = self._batches(["query_id", "batch_id", "counters"]).to_pylist()
        for row in rows:
            if self.is_applied(row["query_id"], row["batch_id"]):  # rule 1
                total = added(total, json.loads(row["counters"]))
        return total

    def close(self) -> None:
        """See `Sink`."""
        self._tables, self._prepared = {}, None

    # Tables ----------------------------------------------------------------------------------------------------

    def _note_logs(self) -> None:
        """Rule 4. Behind a URL nothing is noted."""
        logs = [] if self._is_url else [(part, table.version()) for part, table in self._tables.items()]
        files = [Path(self._at(part), "_delta_log", f"{version:020d}.json") for part, version in logs]
        self._logs = {file: _identity(file) for file in files}

    def _refuse_replaced(self) -> None:
        if gone := [file for file, identity in self._logs.items() if _identity(file) != identity]:
            raise StateMismatch(
                f"{self.describe()} is not the one that this run wrote to: {gone[0]} is gone or another one. Somebody "
                "removed it or made it anew while nothing was heard of this run. Start again, and it says what is there"
            )

    @property
    def _is_url(self) -> bool:
        return "://" in self._location

    def _at(self, end: str) -> str:
        """The location of the folder with this end of its name."""
        return self._location + end

    def _name(self, end: str) -> str:
        folder, _, name = self._at(end).rpartition("/")
        return f"the table {name!r} in {folder or '.'}"

    def _columns_of(self, part: str) -> set[str]:
        table = self._found(part)
        return set() if table is None else {field.name for field in table.schema().fields}

    def _found(self, part: str) -> DeltaTable | None:
        return DeltaTable(self._at(part)) if DeltaTable.is_deltatable(self._at(part)) else None

    def _version(self, query_id: str, part: str) -> int | None:
        return self._tables[part].transaction_version(query_id)  # type: ignore[no-any-return]

    def _owner(self, own: Epoch, part: str) -> Epoch | None:
        """The epoch that the table has last, of the lineage of `own`."""
        number = self._version(_transaction_of(own).app_id, part)
        return None if number is None else Epoch(own.lineage, number)

    def _batches(self, columns: list[str]) -> pa.Table:
        return self._tables[BATCHES].to_pyarrow_table(columns=columns)

    def _refuse_other_things(self, part: str) -> None:
        if not self._is_url and self._found(part) is None:
            refuse_other_things(Path(self._at(part)))

    @contextmanager
    def _errors_of_delta(self) -> Iterator[None]:
        """What Delta or the system says of a place, as an error of ours that names it."""
        try:
            yield
        except (DeltaError, OSError, ValueError) as error:
            raise UsageError(
                f"the sink's table {self._location!r} cannot be used: {first_line(error)}. As path in [sink], name a table "
                "of Delta Lake, or a place where there is nothing yet"
            ) from error

    @contextmanager
    def _lost(self) -> Iterator[None]:
        """A collision is tried again, and so is what a store did not answer: the table knows what got through."""
        try:
            yield
        except CommitFailedError as error:
            raise SinkLost(f"another writer was quicker at {self.describe()}: {first_line(error)}") from error
        except (DeltaError, OSError) as error:
            raise CommitUnknown(f"{self.describe()} could not be written: {first_line(error)}") from error


def _transaction_of(epoch: Epoch) -> Transaction:
    return Transaction(f"waterclock-owner {epoch.lineage}", epoch.number)


def _identity(file: Path) -> tuple[int, ...] | None:
    """What tells a file from another one of its name; None if there is none."""
    with suppress(FileNotFoundError):
        found = file.stat()
        return found.st_ino, found.st_mtime_ns, found.st_size
    return None


def _described(part: str, schema: Any) -> Table:
    """The columns in Delta's words."""
    fields = schema.fields if isinstance(schema, Schema) else Schema.from_arrow(schema).fields
    key = tuple(field.name for field in fields if KEY.decode() in field.metadata)
    return Table(part, tuple((field.name, str(getattr(field.type, "type", field.type))) for field in fields), key)
