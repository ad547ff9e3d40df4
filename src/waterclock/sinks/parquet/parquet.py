"""Results as plain Parquet files in a folder, for readers that have no lake; a manifest says which files are its rows.

    <path>                 files of results, a row each (results.py), behind batch_id and batch_row
    <path>_dead_letters    files of what could not be read: batch_id, batch_row, file, line, reason, text
    <path>_batches         the manifests (manifests.py): one a batch, with its files, counters, offsets, query and epoch

A commit goes in numbered steps, and a kill between any two leaves a table that a re-run makes equal:

    1. files of results and of dead letters, each under a name that is never used again    (the driver or executors)
    2. the manifest of the next number, made whole and only if nobody made one: from here on, and not before, all of
       the batch is there
    3. the fold of 500 manifests, where there are as many
    4. Spark's own list of the files (spark_list.py)

Rule 1: what no manifest names is nobody's row. A kill before 2 leaves files, which `vacuum` (parquet_tables.py) takes.
Rule 2: of two writers that come to 2 at the same number, one is refused, and looks again: who was taken over meanwhile
        finds a larger epoch (epochs.py), who wrote the same batch finds it applied.
Rule 3: 3 and 4 decide nothing. Where they fail it is said, and the next batch or the next start makes them good.
Rule 4: batches of a query come in the order of their numbers. One that comes after a larger number counts as applied.
Rule 5: a table begins with a file of no rows in each of the first two folders, so that a reader of an empty one sees
        columns. They are made before manifest 0: without that there is no table, and a start makes it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

import waterclock.disk as disk
from waterclock.errors import (
    CommitUnknown,
    ConnectionLost,
    EnvironmentMissing,
    SinkLost,
    StateMismatch,
    UsageError,
    WaterclockError,
)
from waterclock.sinks.base import Batch, LastBatch, ResultFile
from waterclock.sinks.epochs import Epoch, judge, may_follow
from waterclock.sinks.files.files import DRIVER, ResultFiles, checked_writer, place_of, refuse_unseen
from waterclock.sinks.files.location import TableLocation
from waterclock.sinks.files.side_rows import SIDES, schemas
from waterclock.sinks.files.sums import SummedStream
from waterclock.sinks.marks import Marks
from waterclock.sinks.parquet.folders import (
    Folder,
    LocalFolder,
    PlaceFolder,
    StoreFolder,
    path_of,
    remove_folder,
    store_url,
)
from waterclock.sinks.parquet.manifests import (
    BATCH,
    OWNER,
    TABLE,
    Files,
    Manifest,
    Manifests,
    NamedFile,
    found_changed,
    is_ours,
    refuse_changed,
)
from waterclock.sinks.parquet.spark_list import SPARK_LIST, SparkList, is_of_spark_list
from waterclock.sinks.tables import BATCHES, DEAD_LETTERS, Table, refuse_unlike

log = logging.getLogger(__name__)
_PARTS = {"files": "", "letters": DEAD_LETTERS}  # of a manifest -> the end of the folder's name
_ALL = (*_PARTS.values(), BATCHES)
FILE = re.compile(r"part-(\d+|columns)-[0-9a-f]{32}-\d+-\d+\.parquet")


class ParquetSink(TableLocation):
    """A `Sink` of Parquet files at `location`, a path or a URL. `written_by`: "driver" or "executors" write the files.

    A commit behind a URL is made through Spark, as the pipeline tells it (`reached_by`).

    >>> ParquetSink("out/orders").describe()
    "the table 'orders' in out"
    """

    def __init__(self, location: str | Path, *, written_by: str = DRIVER) -> None:
        super().__init__(path_of(str(location)))
        self.written_by = checked_writer(written_by)
        self._reach: Callable[[str], Any] | None = None
        self._columns: dict[str, pa.Schema] = {}
        self._lists: list[SparkList] = []
        self._found: Manifests | None = None
        self._prepared: tuple[Batch, Files, Files] | None = None
        self._epoch: Epoch | None = None

    def reached_by(self, reach: Callable[[str], Any]) -> None:
        """Take `reach`, which gives the place of a URL (spark/places), where of two that make one file one is refused."""
        self._reach = reach

    def open(self, results: pa.Schema) -> None:
        """See `Sink`."""
        self._columns = columns_of(results)
        with self._errors_of_place():
            found = Manifests(self._folder(BATCHES), self.describe())
            if not found.load():
                self._refuse_other_things()
                self._make(found)
            self._refuse_unlike(next(found.everything()) if found.recent[0].number else found.recent[0])
            self._refuse_gone(found)
            self._lists = [SparkList(self._folder(end), self._at(end), part) for part, end in _PARTS.items()]
            for each in self._lists:
                each.open(found)
        self._found = found

    def remove(self) -> None:
        """Remove the three folders; UsageError where one has other things in it, or they lie behind a URL."""
        self._refuse_url()
        with self._errors_of_place():
            for end in _ALL:
                if others := self._others_in(end):
                    raise UsageError(
                        f"{self._name(end)} has other things in its folder ({others[0]}, ...), so it is not "
                        "removed: move them away, or name another path in [sink]"
                    )
            if not self._folder(BATCHES).names() and (rows := self._committed()):
                raise UsageError(
                    f"{self.describe()} has files of rows ({rows[0]}, ...) and no manifests in {self._location}{BATCHES}, "
                    "so nobody knows whose they are: remove the folder by hand, or name another path in [sink]"
                )
            for end in _ALL:  # the manifests last: what is half removed is told, and removed by another try
                remove_folder(self._at(end))
        self.close()

    def last_applied(self) -> LastBatch | None:
        """See `Sink`."""
        with self._errors_of_place():
            self._manifests.catch_up()
        return self._manifests.marks.last()

    def fence(self, epoch: Epoch) -> None:
        """Let nobody of an earlier epoch write any more; see epochs.py."""
        with self._errors_of_place():
            is_told = False
            while not is_told:
                self._manifests.catch_up()
                marks = self._manifests.marks
                may_follow(marks.owner, epoch, self.describe())
                is_told, marks.owner = marks.owner == epoch, epoch
                is_told = is_told or self._manifests.commit(self._manifests.next(OWNER, marks, {}))
        self._epoch = epoch

    def begin(self) -> None:
        """See `Sink`. Alone it is at the commit: a second writer is refused there."""
        self._prepared = None
        with self._lost(SinkLost):
            self._manifests.catch_up()
        judge(self._manifests.marks.owner, self._epoch, self.describe())

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        """See `Sink`."""
        return self._manifests.marks.is_applied(query_id, batch_id)

    def result_files(self, batch_id: int) -> ResultFiles | None:
        """See `TakesFiles`: they lie in the table's folder."""
        return None if self.written_by == DRIVER else self._files("", batch_id)

    def write(self, batch: Batch) -> None:
        """See `Sink`: step 1."""
        json.dumps(dict(batch.counters))
        with self._lost(SinkLost):
            refuse_unseen(store_url(self._location), batch.files)
            files = batch.files or self._written("", batch.batch_id, batch.results)
            letters = self._written(DEAD_LETTERS, batch.batch_id, batch.dead_letters)
        self._prepared = batch, _named(files), _named(letters)

    def commit(self) -> None:
        """See `Sink`; the steps stand at the top."""
        assert self._prepared is not None, "commit without write"
        (batch, files, letters), self._prepared = self._prepared, None
        self._refuse_taken(files, letters)
        manifests, marks = self._manifests, self._manifests.marks
        marks.note(batch.query_id, marks.after(batch))
        with self._lost(CommitUnknown):
            if not manifests.commit(manifests.next(BATCH, marks, _row_of(batch), files, letters)):  # 2
                raise SinkLost(f"another writer was quicker at {self.describe()}")
        with self._said():
            manifests.fold_full()  # 3
            for each in self._lists:
                each.follow(manifests)  # 4

    def rollback(self) -> None:
        """See `Sink`. Files that were written stay, for a commit without an answer may name them."""
        self._prepared = None

    def totals(self) -> dict[str, int]:
        """See `Sink`."""
        return self._manifests.marks.totals()

    def close(self) -> None:
        """See `Sink`."""
        self._found, self._prepared, self._lists = None, None, []

    # The table -------------------------------------------------------------------------------------------------

    @property
    def _manifests(self) -> Manifests:
        assert self._found is not None, "open comes first"
        return self._found

    def _folder(self, end: str) -> Folder:
        return self._folder_at(self._at(end))

    def _folder_at(self, location: str) -> Folder:
        if "://" not in location:
            return LocalFolder(location)
        return StoreFolder(location) if self._reach is None else PlaceFolder(self._reach(location))

    def _make(self, manifests: Manifests) -> None:
        for end in _PARTS.values():
            self._folder(end).make(SPARK_LIST)
        self._folder(BATCHES).make()
        files = {part: self._no_rows(end) for part, end in _PARTS.items()}
        columns = {end: described(schema) for end, schema in self._columns.items()}
        if not manifests.commit(manifests.next(TABLE, Marks(), {"columns": columns}, **files)):
            manifests.load()  # another one made it at the same time

    def _no_rows(self, end: str) -> Files:
        at, folder = place_of(store_url(self._at(end)))
        name = f"part-columns-{uuid4().hex}-0-0.parquet"
        with closing(SummedStream(at.open_output_stream(f"{folder}/{name}"))) as stream:
            pq.write_table(self._columns[end].empty_table(), stream)
        if not self._is_url:
            disk.flush_file(f"{folder}/{name}")
            disk.flush_folder(folder)
        found = at.get_file_info(f"{folder}/{name}")
        return (NamedFile(name, found.size, 0, found.mtime_ns // 1_000_000, stream.sum),)

    def _refuse_unlike(self, first: Manifest) -> None:
        for end, schema in self._columns.items():
            found = tuple((name, kind) for name, kind in first.told["columns"][end])
            refuse_unlike(self._name(end), Table(end, found), Table(end, described(schema)))

    def _refuse_gone(self, manifests: Manifests) -> None:
        """Look whether the files of the last batches are there; `files` (parquet_tables.py) looks at all."""
        for part, end in _PARTS.items():
            refuse_changed(self._at(end), [f for each in manifests.recent for f in getattr(each, part)])

    def _others_in(self, end: str) -> list[str]:
        """What lies in a folder and has no name that is given here."""
        folder = self._folder(end)
        if not self._is_url and Path(self._at(end)).is_file():
            return [self._at(end)]
        belongs = is_ours if end == BATCHES else lambda name: name == SPARK_LIST or FILE.fullmatch(name) is not None
        others = [name for name in folder.names() if not belongs(name)]
        within = [name for name in folder.names() if re.fullmatch(r"\d{9}", name)] if end == BATCHES else [SPARK_LIST]
        is_inner = is_ours if end == BATCHES else is_of_spark_list
        return others + [f"{name}/{each}" for name in within for each in folder.names(name) if not is_inner(each)]

    def _refuse_other_things(self) -> None:
        """Folders without a manifest hold nothing, or what a kill left of making a table; nothing else is written to."""
        for end in _ALL:
            if self._others_in(end):
                raise UsageError(
                    f"{self._name(end)} is none that waterclock made as a part of this sink: "
                    "name another table, by its path in [sink], or remove that one; --fresh leaves it alone"
                )
        for other in (self._location.removesuffix(DEAD_LETTERS), self._location + DEAD_LETTERS):
            if other != self._location and self._folder_at(other + BATCHES).names():
                raise UsageError(
                    f"{self.describe()} and the one in {other} would share a folder: dead letters are a part of the table "
                    "that they belong to. Name another path in [sink]"
                )
        if rows := self._committed():
            raise StateMismatch(
                f"{self.describe()} has files that were committed ({rows[0]}, ...), and its manifests in "
                f"{self._location}{BATCHES} are gone: which files count cannot be known. Restore them from a copy; or "
                "remove the folder by hand, and start over with --fresh"
            )

    def _committed(self) -> list[str]:
        """Files that show that there was a table."""
        made = [name for end in _PARTS.values() for name in self._folder(end).names() if FILE.fullmatch(name)]
        listed = [f"{SPARK_LIST}/{name}" for end in _PARTS.values() for name in self._folder(end).names(SPARK_LIST)]
        return [name for name in (*made, *listed) if not name.startswith("part-columns-")]

    # Rows ------------------------------------------------------------------------------------------------------

    def _files(self, end: str, batch_id: int) -> ResultFiles:
        return ResultFiles(store_url(self._at(end)), self._columns[end], batch_id, uuid4().hex)

    def _written(self, end: str, batch_id: int, rows: pa.Table) -> tuple[ResultFile, ...]:
        writer = self._files(end, batch_id).begin(0, 0)
        try:
            writer.add(rows.replace_schema_metadata(None))
            written = writer.end()
        except EnvironmentMissing as error:  # in the words of an executor
            writer.drop()
            raise SinkLost(f"{self._name(end)} could not be written: {error.__cause__}") from error
        return () if written is None else (written,)

    def _refuse_taken(self, files: Files, letters: Files) -> None:
        """Name no file that went while this run stood still between step 1 and 2, or is about to: a vacuum takes what is
        old."""
        removed = self._manifests.removed
        for end, named in (("", files), (DEAD_LETTERS, letters)):
            going = [file for file in named if file.name in removed]
            for file in (*going, *(file for file, _ in found_changed(self._at(end), named))):
                raise SinkLost(
                    f"{self._location}{end}/{file.name} is gone, and its batch is not committed yet: a vacuum took it"
                )

    # Errors ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _errors_of_place(self) -> Iterator[None]:
        """What the system says of a place, as an error of ours that names it."""
        try:
            yield
        except (OSError, ValueError) as error:
            raise UsageError(
                f"the sink's table {self._location!r} cannot be used: {error}. It needs room, the right to write, and "
                "a file system that knows hard links; or name in [sink] a URL that Spark reaches, or a place where "
                "there is nothing yet"
            ) from error

    @contextmanager
    def _lost(self, kind: type[SinkLost]) -> Iterator[None]:
        """What a place did not do or answer, as `kind`: it is tried again, and the table knows what got through."""
        try:
            yield
        except SinkLost:
            raise
        except (OSError, ConnectionLost) as error:
            raise kind(f"{self.describe()} could not be written: {error}") from error

    @contextmanager
    def _said(self) -> Iterator[None]:
        """Rule 3: the batch is there, whatever fails now."""
        try:
            yield
        except (OSError, WaterclockError) as error:
            log.warning(
                "%s has the batch, and a list of its files could not be written: %s. Spark sees the batch when the next "
                "one is written, or at the next start",
                self.describe(),
                error,
            )


def columns_of(results: pa.Schema) -> dict[str, pa.Schema]:
    """The columns of the files, by the end of their folder's name."""
    wanted = schemas(results)
    place = [wanted[""].field(n) for n in range(2)]
    return {"": wanted[""], DEAD_LETTERS: pa.schema([*place, *list(SIDES[DEAD_LETTERS])[1:]])}


def described(schema: pa.Schema) -> tuple[tuple[str, str], ...]:
    """The columns in Arrow's words."""
    return tuple((field.name, str(field.type)) for field in schema)


def _named(files: tuple[ResultFile, ...]) -> Files:
    return tuple(NamedFile(file.name, file.size, file.rows, file.modified_ms, file.sum) for file in files)


def _row_of(batch: Batch) -> dict[str, Any]:
    """A batch's row, as a manifest tells it; the counters' sums stand beside it."""
    return {
        "query_id": batch.query_id,
        "batch_id": batch.batch_id,
        "offsets": batch.offsets,
        "counters": dict(batch.counters),
        "watermark": batch.watermark_us,
        "seconds": batch.seconds,
    }
