"""Results that executors write: Parquet files where a sink's table lies, of which one commit of the driver makes rows.

    1. each task writes the results of its part into a file of its own, beside the table's other files, and has the file
       and its name on the disk before it reports it; what a store was given is durable when it answers     (executors)
    2. of each task Spark gives the driver the report of one attempt: the file's name, size, rows, figures
    3. steps 2 to 5 of base.py, with these files in the place of rows; the commit of the results names them   (the driver)

Rule 1: until a commit names it, a file is nobody's row. A task that is tried again, or runs twice at a time, writes each
        time under another name; the one that Spark gave the driver is committed.
Rule 2: a task that fails takes its file away. What a kill leaves lies where the table's own cleaning looks for it, under a
        name that is never used again.
Rule 3: an executor makes no folder, and the driver looks whether it sees each file: a folder that somebody forgot to
        mount is an error, and no commit names what nobody can read.
Rule 4: `batch_row` is the part's number << 32, plus the row's in its part. So rows sort as those that come through the
        driver, and a batch that is run again gives the same rows: what is in a part, and in which order, follows from
        the batch alone. Its files are other ones.

A commit of Delta Lake says of a file its rows, nulls, and the least and the largest value of columns. Readers leave out
files by these figures, so each is exact, or it is not there.

Rule 5: figures come from the file's own footer, which Parquet made while it wrote; no column is read for them.
Rule 6: times are in milliseconds, the least rounded down, the largest up. A long text has no figures, nor have numbers with
        a point, of which NaN is none. Behind a nested column there are none at all.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from waterclock.disk import flush_file, flush_folder
from waterclock.errors import EnvironmentMissing, UsageError, unstopped
from waterclock.sinks.base import ResultFile
from waterclock.sinks.destination import SinkTable
from waterclock.sinks.tables import LETTERS, far_times, flat, letters_of

DRIVER, EXECUTORS = "driver", "executors"
WRITERS = (DRIVER, EXECUTORS)
_PART_BITS = 32
_ROWS = 100_000  # of a row group, as far as the frames have them
_NO_LETTERS = LETTERS.empty_table()
_LONGEST_TEXT = 64  # bytes
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_000_000  # of the years 1 to 9999, whole seconds


_BY_THE_DRIVER = (
    "a mirror is written by the driver: what a batch does to its rows follows from those that are there. Leave "
    "written_by = 'executors' out"
)


def writer_of(given: SinkTable) -> str:
    """Who writes the files of results, as [sink] says it."""
    written_by = given.one_of("written_by", WRITERS, DRIVER)
    if written_by == EXECUTORS and given.changes:
        raise UsageError(f"[sink]: {_BY_THE_DRIVER}")
    return written_by


def checked_writer(written_by: str, mirror: object = None) -> str:
    """`written_by`; ValueError if it is none of WRITERS, UsageError if it does not go with a mirror.

    >>> checked_writer("executors")
    'executors'
    """
    if written_by not in WRITERS:
        raise ValueError(f"written_by must be one of {', '.join(WRITERS)}, got {written_by!r}")
    if written_by == EXECUTORS and mirror is not None:
        raise UsageError(_BY_THE_DRIVER)
    return written_by


class TakesFiles(Protocol):
    """A sink whose results executors may write: its `write` takes a batch's `files` in the place of rows."""

    def result_files(self, batch_id: int) -> ResultFiles | None:
        """Where and how the files of a batch are written; None if its results are to come through the driver."""


@dataclass(frozen=True, slots=True)
class ResultFiles:
    """Where and how the files of one batch are written; it travels to the executors."""

    folder: str  # a path, or a URL of which pyarrow knows the scheme
    columns: pa.Schema  # of the table, batch_id and batch_row in front
    batch_id: int
    run: str  # in the names of all files of one try of the batch, and of no others
    # the reason of a dead letter with a time outside of the years 1 to 9999; empty if such times are kept
    far: str = ""

    def begin(self, part: int, attempt: int) -> PartWriter:
        """The file of a task's attempt; nothing is there before the first row."""
        return PartWriter(self, part, attempt)


class PartWriter:
    """The rows of one task on their way into a file: `add` them, then `end`, or `drop` what there is."""

    def __init__(self, files: ResultFiles, part: int, attempt: int) -> None:
        self._files, self._first = files, part << _PART_BITS
        self._name = f"part-{files.batch_id}-{files.run}-{part}-{attempt}.parquet"
        self._waiting: list[pa.Table] = []
        self._waiting_rows = self.rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._footer: list[pq.FileMetaData] = []

    def add(self, results: pa.Table) -> pa.Table:
        """Take results; those that the table does not keep come back as dead letters."""
        rows = flat(results)
        reasons = far_times(rows, self._files.far) if self._files.far else None
        if reasons is not None:
            rows = rows.filter(pc.is_null(reasons))
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        if self._waiting_rows >= _ROWS:
            self._flush()
        return _NO_LETTERS if reasons is None else letters_of(flat(results), reasons)

    def end(self) -> ResultFile | None:
        """Close the file; what the commit must know of it, None if there was no row and there is no file."""
        if self._waiting_rows:
            self._flush()
        if self._writer is None:
            return None
        with _errors_of(self._files.folder):
            self._writer.close()
            self._stream.close()
            if isinstance(
                self._at, pyarrow.fs.LocalFileSystem
            ):  # else it is durable: a commit names it after a power cut
                flush_file(self._path)
                flush_folder(self._path.rpartition("/")[0])
            found = self._at.get_file_info(self._path)
        statistics = figures(self._footer[0], self._files.columns)
        return ResultFile(self._name, found.size, self.rows, found.mtime_ns // 1_000_000, statistics)

    def drop(self) -> None:
        """Take the file away, if there is one: its task failed."""
        if self._writer is not None:
            with suppress(OSError, RuntimeError):  # a footer that could not be written: there is none to collect
                self._writer.close()
            with suppress(OSError):
                self._stream.close()
            with suppress(OSError):
                self._at.delete_file(self._path)

    def _flush(self) -> None:
        with _errors_of(self._files.folder):
            if self._writer is None:
                self._at, folder = place_of(self._files.folder)
                self._path = f"{folder}/{self._name}"
                self._stream = self._at.open_output_stream(self._path)
                self._writer = pq.ParquetWriter(self._stream, self._files.columns, metadata_collector=self._footer)
            self._writer.write_table(self._placed(pa.concat_tables(self._waiting)), self._waiting_rows)
        self.rows += self._waiting_rows
        self._waiting, self._waiting_rows = [], 0

    def _placed(self, rows: pa.Table) -> pa.Table:
        first = self._first + self.rows
        place = [pa.repeat(self._files.batch_id, rows.num_rows), pa.arange(first, first + rows.num_rows)]
        columns = [pa.chunked_array([each]) for each in place] + rows.columns
        wanted = self._files.columns
        return pa.Table.from_arrays(
            [column.cast(field.type) for column, field in zip(columns, wanted, strict=True)], schema=wanted
        )


def place_of(folder: str) -> tuple[pyarrow.fs.FileSystem, str]:
    """The file system of a folder, and the folder's path in it."""
    if "://" in folder:
        found: tuple[pyarrow.fs.FileSystem, str] = pyarrow.fs.FileSystem.from_uri(folder)
        return found
    return pyarrow.fs.LocalFileSystem(), folder


def refuse_unseen(folder: str, files: Sequence[ResultFile]) -> None:
    """Raise EnvironmentMissing if one of `files` does not lie in `folder` as its task reported: rule 3."""
    if not files:
        return
    at, inner = place_of(folder)
    for file, found in zip(files, at.get_file_info([f"{inner}/{file.name}" for file in files]), strict=True):
        if not found.is_file or found.size != file.size:
            raise EnvironmentMissing(
                f"an executor wrote {file.name} into {folder}, and on {socket.gethostname()}, where the driver runs, it "
                "is not there: mount one folder on all machines, or leave written_by = 'executors' out. Nothing of the "
                "batch was committed"
            )


@contextmanager
def _errors_of(folder: str) -> Iterator[None]:
    """What the system says of a place, as an error of ours that names place and machine."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise EnvironmentMissing(
            f"the executor on {socket.gethostname()} cannot write results into {folder}: {unstopped(error)}. "
            "Mount the folder there, "
            "or give executors the store's keys; or leave written_by = 'executors' out, and the driver writes"
        ) from error


# Figures of a file ---------------------------------------------------------------------------------------------


def figures(footer: pq.FileMetaData, columns: pa.Schema) -> str:
    """The statistics of a file with these columns, as Delta's log has them: JSON.

    >>> import io
    >>> file, footer = io.BytesIO(), []
    >>> rows = pa.table({"n": [3, None, 1]})
    >>> pq.write_table(rows, file, metadata_collector=footer)
    >>> figures(footer[0], rows.schema)
    '{"numRecords": 3, "minValues": {"n": 1}, "maxValues": {"n": 3}, "nullCount": {"n": 1}}'
    """
    least, most, nulls = dict[str, Any](), dict[str, Any](), dict[str, int]()
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    for place, field in enumerate(columns):
        if pa.types.is_nested(field.type):
            break  # from here on the columns of the footer are others
        found = [group.column(place).statistics for group in groups]
        if not all(each is not None and each.has_null_count for each in found):
            continue
        nulls[field.name] = sum(each.null_count for each in found)
        filled = [each for group, each in zip(groups, found, strict=True) if each.null_count < group.num_rows]
        if (bounds := _bounds(field.type, filled)) is not None:
            least[field.name], most[field.name] = bounds
    statistics = {"numRecords": footer.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    return json.dumps(statistics, ensure_ascii=False)


def _bounds(kind: pa.DataType, found: Sequence[Any]) -> tuple[Any, Any] | None:
    """The least and the largest value of a column in Delta's words, of the row groups that are not all null; None if
    they are not to be had."""
    if not found or not all(each.has_min_max for each in found):
        return None
    lows, highs = [each.min_raw for each in found], [each.max_raw for each in found]
    if pa.types.is_integer(kind):
        return min(lows), max(highs)
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _times(min(lows), max(highs))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _texts(min(lows), max(highs))
    return None


def _times(low_us: int, high_us: int) -> tuple[str, str] | None:
    if low_us < _FIRST_US or high_us > _LAST_US:
        return None
    return _time(low_us // 1000), _time(-(-high_us // 1000))


def _time(ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _texts(low: bytes, high: bytes) -> tuple[str, str] | None:
    return None if max(len(low), len(high)) > _LONGEST_TEXT else (low.decode(), high.decode())
