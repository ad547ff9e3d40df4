"""A table of a `ParquetSink` for readers without Spark: which files are its rows, and which files are nobody's.

    files(path)                 the files of results, for `duckdb.read_parquet(...)` or `pandas.read_parquet(...)`
    read(path)                  the results as an Arrow table
    dead_letter_files(path)     the same of dead letters
    dead_letters(path)
    batches(path)               a row a batch: query_id, batch_id, offsets, counters, watermark, seconds
    orphans(path, older_than)   files that a kill left: no manifest names them
    vacuum(path, older_than)    removes these, and says which

`path` is the folder of the results, or a URL that pyarrow knows.

Rule 1: rows are what manifests name (manifests.py), and each file is looked at: one that is gone, or has another size
        than it was written with, is an error with its name. So is an end of the manifests that is gone, as far as Spark's
        list (spark_list.py) knows of it.
Rule 2: there is always a file: the first one has no rows, and the columns.
Rule 3: only a file is removed that has a name of ours, that none of all manifests names, and that was written longer ago
        than `older_than`. Where a manifest cannot be read, or the last one is gone, nothing is. What a
        batch writes just now is young, and clocks of stores differ by minutes; so an hour is the least.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pyarrow.parquet as pq

from waterclock.clock import SystemClock
from waterclock.errors import StateMismatch, UsageError
from waterclock.sinks.files import place_of
from waterclock.sinks.folders import folder_of, path_of, store_url
from waterclock.sinks.lake_rows import SIDES, typed
from waterclock.sinks.manifests import BATCH, TEMPORARY, Manifest, Manifests, NamedFile, changed
from waterclock.sinks.names import table_location
from waterclock.sinks.parquet import FILE
from waterclock.sinks.spark_list import SPARK_LIST, SparkList
from waterclock.sinks.tables import BATCH_NAMES, BATCHES, DEAD_LETTERS

_LEAST = timedelta(hours=1)
_WEEK = timedelta(days=7)
_PARTS = (("files", ""), ("letters", DEAD_LETTERS))  # of a manifest, and the end of the folder's name


def files(path: str | Path) -> list[str]:
    """The files whose rows are the table's, in the order of their batches; the first one has columns and no rows.

    StateMismatch where a manifest or a file is damaged or gone, UsageError where there is no table.
    """
    return _files(path, "files", "")


def dead_letter_files(path: str | Path) -> list[str]:
    """The files of dead letters, as `files` gives those of results."""
    return _files(path, "letters", DEAD_LETTERS)


def read(path: str | Path) -> pa.Table:
    """The rows of the table, in the order of their batches."""
    return _rows(files(path))


def dead_letters(path: str | Path) -> pa.Table:
    """The dead letters, in the order of their batches."""
    return _rows(dead_letter_files(path))


def batches(path: str | Path) -> pa.Table:
    """A row for each batch, in the order in which they were committed; `counters` is JSON."""
    rows = [each.told for each in _manifests(_location(path)) if each.kind == BATCH]
    told = [{**row, "counters": json.dumps(row["counters"], sort_keys=True)} for row in rows]
    return typed([[row[name] for row in told] for name in BATCH_NAMES], SIDES[BATCHES])


def orphans(path: str | Path, older_than: timedelta = _WEEK) -> list[str]:
    """The files that `vacuum` would remove now. ValueError where `older_than` is under an hour."""
    if older_than < _LEAST:
        raise ValueError(
            f"older_than must be at least an hour: what a batch writes just now is young; got {older_than}"
        )
    location, last_ms = _location(path), SystemClock().wall_ms() - older_than // timedelta(milliseconds=1)
    found = list[str]()
    for part, end in _PARTS:
        there = _lying(location + end)  # before the manifests: what is named behind this look is not in it
        named = {file.name for each in _manifests(location) for file in getattr(each, part)}
        left = [name for name, (_, written_ms) in there.items() if name not in named and written_ms < last_ms]
        found += [f"{location}{end}/{name}" for name in sorted(left) if FILE.fullmatch(name)]
    return found + _begun(location, last_ms)


def vacuum(path: str | Path, older_than: timedelta = _WEEK) -> list[str]:
    """Remove the files that no manifest names and that are older than `older_than`; the value is what was removed."""
    found = orphans(path, older_than)
    for each in found:
        at, inner = place_of(store_url(each))
        at.delete_file(inner)
    return found


def _location(path: str | Path) -> str:
    return table_location(path_of(str(path)))


def _manifests(location: str) -> list[Manifest]:
    lists = [SparkList(folder_of(location + end), location + end, part) for part, end in _PARTS]
    told = [each.told() for each in lists]  # before the manifests: it comes behind them
    found = list(Manifests(folder_of(location + BATCHES), f"the table {location}").everything())
    if not found:
        raise UsageError(
            f"{location} is no table of a sink of waterclock: there are no manifests in {location}{BATCHES}"
        )
    for each, number in zip(lists, told, strict=True):
        each.refuse_end_lost(number, found[-1].number)
    return found


def _files(path: str | Path, part: str, end: str) -> list[str]:
    location = _location(path)
    named: list[NamedFile] = [file for each in _manifests(location) for file in getattr(each, part)]
    there = _lying(location + end)  # behind the manifests: what they name is there by then
    for file in named:
        size = there[file.name][0] if file.name in there else None
        if size != file.size:
            raise changed(location + end, file, size)
    return [f"{store_url(location)}{end}/{file.name}" for file in named]


def _lying(folder: str) -> dict[str, tuple[int, int]]:
    """Size, and when it was written in milliseconds since 1970, of each file in a folder by its name."""
    at, inner = place_of(store_url(folder))
    listed = at.get_file_info(pyarrow.fs.FileSelector(inner, allow_not_found=True))
    return {each.base_name: (each.size, (each.mtime_ns or 0) // 1_000_000) for each in listed if each.is_file}


def _begun(location: str, last_ms: int) -> list[str]:
    """What a kill left of making a manifest, a fold or a file of Spark's list."""
    found = list[str]()
    for folder in (location + BATCHES, f"{location}/{SPARK_LIST}", f"{location}{DEAD_LETTERS}/{SPARK_LIST}"):
        at, inner = place_of(store_url(folder))
        listed = at.get_file_info(pyarrow.fs.FileSelector(inner, allow_not_found=True, recursive=True))
        old = [each for each in listed if each.is_file and (each.mtime_ns or 0) // 1_000_000 < last_ms]
        found += [folder + each.path.removeprefix(inner) for each in old if TEMPORARY.fullmatch(each.base_name)]
    return found


def _rows(named: list[str]) -> pa.Table:
    at, first = place_of(store_url(named[0]))
    inner = [place_of(store_url(each))[1] if "://" in each else each for each in named]
    try:
        columns: Any = pq.read_schema(first, filesystem=at)
        return pyarrow.dataset.dataset(inner, schema=columns, format="parquet", filesystem=at).to_table()
    except (OSError, pa.ArrowException):
        _refuse_damaged(at, inner)
        raise


def _refuse_damaged(at: pyarrow.fs.FileSystem, named: list[str]) -> None:
    """Raise StateMismatch for the first of these files that is no Parquet, or not any more."""
    for each in named:
        try:
            pq.read_table(each, filesystem=at, partitioning=None)
        except (OSError, pa.ArrowException) as error:
            raise StateMismatch(
                f"{each} is damaged: {error}. Its rows are a part of the table. Restore it from a copy, or start over with "
                "--fresh"
            ) from error
