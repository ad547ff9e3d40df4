"""Files into blocks of rows, with a place for every line that cannot be read. No Spark in this file.

    layout.py    what a row must be, its id, dead letters
    jsonl.py     a block of JSON lines into rows, the fast way or the slow one
    csv.py       the same of CSV

What opening or reading a file may meet, and whose doing it is:

    its content is no such file (Arrow says so, without a number of the system's)      the file's: a dead letter
    it is a folder, a loop of links, no regular file, or has too long a name           the file's
    this user may not read it, while the folder that it lies in can be listed          the file's
    it is not there                                  the driver decides, which has the folder: FileNotFoundError
    anything else: a disk or a mount that fails, a folder that this user may not list, no memory, no more files to be had,
        a scheme that is not opened here             the place's: EnvironmentMissing, nothing of the batch is written

Rule 1: nothing in a file makes `read_file` raise: a batch that fails over its input would fail again on every re-run.
Rule 2: a file is read in blocks, of JSON of whole lines; what comes out does not depend on where a block ends.
Rule 3: what is the place's doing is never put aside as a file's: the run would be green, and would have read nothing.
Rule 4: of Parquet nothing is guessed: a column of another kind than the declared one is one dead letter for the file. Of
        the same kind are integers of any width, floats of up to 64 bits, texts, times of any unit or zone (none is UTC),
        dates.
Rule 5: a value of Parquet that does not fit (too large, finer than a microsecond, not UTF-8) costs its row, not the file.
Rule 6: a column that the rules name must be there; any other declared one is null if the file has none, as in JSON.
"""

from __future__ import annotations

import errno
import os
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs
import pyarrow.parquet as pq

from waterclock.errors import EnvironmentMissing
from waterclock.streaming.files.csv import blocks_of as csv_blocks
from waterclock.streaming.files.jsonl import count_of
from waterclock.streaming.files.jsonl import fast as _fast
from waterclock.streaming.files.jsonl import slow as _slow
from waterclock.streaming.frames import TIMESTAMP
from waterclock.streaming.layout import (
    TYPES,
    Block,
    Layout,
    Letter,
    all_good,
    check_row,
    dead_file,
    dead_letters,
    in_calendar,
    with_row_id,
)

_ROWS_AT_ONCE = 65_536
_NOWHERE = 1 << 62  # microseconds: a time of no calendar


def parquet_blocks(file: Any, path: str, layout: Layout) -> Iterator[Block]:
    """The blocks of one opened file; ArrowException if it is no Parquet."""
    parquet = pq.ParquetFile(file)
    wrong = _unfit_file(parquet.schema_arrow, layout)
    if wrong:
        yield dead_file(path, layout, wrong)
        return
    present = [name for name in layout.columns if name in parquet.schema_arrow.names]
    micros, first = _micros(file, parquet, present), 1
    for batch in parquet.iter_batches(batch_size=_ROWS_AT_ONCE, columns=present):
        yield _block(_exact(batch, micros.slice(first - 1, batch.num_rows)), layout, path, first)
        first += batch.num_rows


def _micros(file: Any, parquet: pq.ParquetFile, names: list[str]) -> pa.Table:
    """Those of the columns that are INT96, in microseconds."""
    columns = map(parquet.schema.column, range(len(parquet.schema)))
    old = {column.path for column in columns if column.physical_type == "INT96"}
    if not (chosen := [name for name in names if name in old]):
        return pa.table({})
    return pq.ParquetFile(file, coerce_int96_timestamp_unit="us").read(columns=chosen)


def _exact(batch: pa.RecordBatch, micros: pa.Table) -> pa.RecordBatch:
    """`batch` with the times of INT96 as `micros` has them, of the same rows. Arrow gives them in nanoseconds, and begins
    anew behind the year 2262. One that is finer than a microsecond becomes one that does not fit."""
    for name in micros.column_names:
        us = micros.column(name).combine_chunks().cast(pa.int64())
        finer = pc.subtract(batch.column(name).cast(pa.int64()), pc.multiply(us, 1000))  # both begin anew alike
        us = pc.if_else(pc.equal(finer, 0), us, pa.scalar(_NOWHERE, pa.int64())).cast(pa.timestamp("us"))
        batch = batch.set_column(batch.schema.get_field_index(name), name, us)
    return batch


def _unfit_file(found: pa.Schema, layout: Layout) -> str | None:
    """Why no row of the file can be read; None if there is no reason."""
    for name in layout.columns:
        if found.names.count(name) > 1:
            return f"the file has the column {name!r} {found.names.count(name)} times"
        if name not in found.names and name in layout.rules.columns():
            return f"the file has no column {name!r}, which the rules name; it has {', '.join(found.names)}"
    for field in layout.schema():
        if field.name in found.names and not _same_kind(found.field(field.name).type, field.type):
            return f"the column {field.name!r} is {found.field(field.name).type} in the file, not {field.type}: cast it"
    return None


def _same_kind(found: pa.DataType, declared: pa.DataType) -> bool:
    if pa.types.is_dictionary(found):
        return _same_kind(found.value_type, declared)
    return pa.types.is_null(found) or any(of_kind(found) for of_kind in _KINDS[declared])


_KINDS: dict[pa.DataType, tuple[Callable[[pa.DataType], bool], ...]] = {
    pa.string(): (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    pa.int64(): (pa.types.is_integer,),
    pa.float64(): (pa.types.is_floating,),
    pa.bool_(): (pa.types.is_boolean,),
    TIMESTAMP: (pa.types.is_timestamp, pa.types.is_date),
}


# Values --------------------------------------------------------------------------------------------------------


def _block(batch: pa.RecordBatch, layout: Layout, path: str, first: int) -> Block:
    columns: list[pa.Array] = []
    unfit: dict[str, list[bool]] = {}
    for field in layout.schema():
        column = _plain(batch, field)
        fitting = _cast(column, field.type)
        if fitting is None:
            unfit[field.name] = _unfit(column, field.type)
            kept = pc.if_else(pa.array(unfit[field.name]), pa.scalar(None, column.type), column)
            fitting = _cast(kept, field.type)
        columns.append(fitting)
    rows = pa.Table.from_arrays(columns, schema=layout.schema())
    if not unfit and all_good(rows, layout.rules):
        return Block(with_row_id(rows, layout.rules), dead_letters([]))
    good: list[int] = []
    dead: list[Letter] = []
    for number, row in enumerate(rows.to_pylist()):
        try:
            for name in (name for name, bad in unfit.items() if bad[number]):
                raise ValueError(f"column {name!r}: needs {_NEEDS[rows.schema.field(name).type]}")
            check_row(row, layout.rules)
            good.append(number)
        except ValueError as error:
            dead.append((path, first + number, str(error), str(row)))
    return Block(with_row_id(rows.take(pa.array(good, pa.int64())), layout.rules), dead_letters(dead))


def _plain(batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name not in batch.schema.names:
        return pa.nulls(batch.num_rows, field.type)
    column = batch.column(field.name)
    if pa.types.is_dictionary(column.type):
        return column.dictionary_decode()
    # Arrow multiplies days to microseconds without looking whether they fit, seconds it looks at.
    return column.cast(pa.timestamp("s")) if pa.types.is_date(column.type) else column


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The column in the declared kind, or None if a value does not fit."""
    try:
        made = column.cast(kind)
        made.validate(full=True)
    except pa.ArrowException:
        return None
    return made if kind != TIMESTAMP or in_calendar(made.cast(pa.int64())) else None


def _unfit(column: pa.Array, kind: pa.DataType) -> list[bool]:
    """True for each value that does not fit, found by halving: most files have none, others have few."""
    if _cast(column, kind) is not None:
        return [False] * len(column)
    if len(column) == 1:
        return [True]
    half = len(column) // 2
    return _unfit(column[:half], kind) + _unfit(column[half:], kind)


_NEEDS: dict[pa.DataType, str] = {
    pa.string(): "a text in UTF-8",
    pa.int64(): "an integer of 64 bits",
    pa.float64(): "a number that a double can hold",
    pa.bool_(): "true or false",
    TIMESTAMP: "a time in the years 1 to 9999, no finer than a microsecond",
}


__all__ = ["BLOCK_BYTES", "TYPES", "Block", "Layout", "open_file", "read_file"]

BLOCK_BYTES = 4 << 20
# magic bytes; those of bzip2 go on behind the letters with which a line of text may begin
_PACKED = re.compile(
    rb"\x1f\x8b|\x28\xb5\x2f\xfd|\xfd7zXZ\0|BZh[1-9](?:1AY&SY|\x17rE8P\x90)|\x04\x22\x4d\x18|PK\x03\x04"
)
_OF_THE_FILE = (errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO)
_FORBIDDEN = (errno.EACCES, errno.EPERM)


def read_file(path: str, layout: Layout, content: pa.Buffer | None = None) -> Iterator[Block]:
    """The blocks of one file; one that is no such file, or that nobody could open, is one dead letter.

    Its bytes are `content` if they were brought, else those that lie at `path`.
    FileNotFoundError if it is not there; EnvironmentMissing if it is the place that fails.
    """
    try:
        with open_file(path) if content is None else pa.BufferReader(content) as file:
            if _is_packed(file):
                yield dead_file(path, layout, "compressed files are not read: decompress it first")
            elif layout.format == "parquet":
                yield from parquet_blocks(file, path, layout)
            elif layout.format == "csv":
                yield from csv_blocks(_whole_lines(file), path, layout)
            else:
                first = 1
                for block in _whole_lines(file):
                    rows = _fast(block, layout)
                    yield Block(rows, dead_letters([])) if rows is not None else _slow(block, layout, path, first)
                    first += count_of(b"\n", block)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, MemoryError, pa.ArrowException) as error:
        if not _is_of_the_file(error, path):
            raise _failing(path, error) from error
        # a broken Parquet footer may hold names that are no text: that is a ValueError
        yield dead_file(path, layout, f"cannot be read: {error}")


def _is_of_the_file(error: Exception, path: str) -> bool:
    """Whether it would fail so on every machine, and the other files of the folder would not."""
    if isinstance(error, MemoryError | pa.ArrowCancelled):
        return False
    if not isinstance(error, OSError) or error.errno is None or error.errno in _OF_THE_FILE:
        return True
    return error.errno in _FORBIDDEN and os.access(os.path.dirname(_local(path)), os.R_OK | os.X_OK)


def _failing(path: str, why: object) -> EnvironmentMissing:
    return EnvironmentMissing(
        f"the source's file {path} cannot be read on {socket.gethostname()}: {why}. It is not the file's doing, so it is "
        "not put aside, and nothing of its batch was written. Mend the place; the same command goes on from there"
    )


def open_file(path: str) -> Any:
    """Open a file of this machine by its URI, or by the path that Spark says; EnvironmentMissing for another scheme.

    Hadoop writes a local path as `file:` and the path as it is (`file:/in/100%.jsonl`); a URI has three slashes and is
    escaped (`file:///in/100%25.jsonl`).
    """
    if path.startswith("file:/"):
        return pa.fs.LocalFileSystem().open_input_file(_local(path))
    if "://" in path:
        raise _failing(path, "no worker opens what does not lie in a folder of its machine")
    filesystem, inner = pa.fs.FileSystem.from_uri(path)
    return filesystem.open_input_file(inner)


def name_of(path: str) -> str:
    """The name of a file by its URI, or by the path that Spark says, which is escaped nowhere else."""
    return (_local(path) if path.startswith("file:/") else path).rpartition("/")[2]


def _local(path: str) -> str:
    return unquote(path.removeprefix("file://")) if path.startswith("file:///") else path.removeprefix("file:")


def _is_packed(file: Any) -> bool:
    start = file.read(10)
    file.seek(0)
    return _PACKED.match(start) is not None


def _whole_lines(file: Any) -> Iterator[bytes]:
    parts: list[bytes] = []
    while chunk := file.read(BLOCK_BYTES):
        end = chunk.rfind(b"\n") + 1
        if end:
            yield b"".join((*parts, memoryview(chunk)[:end]))
            parts = []
        parts.append(chunk[end:])
    if rest := b"".join(parts):
        yield rest
