"""A table of a `ParquetSink` for readers without Spark: which files are its rows, and which files are nobody's.

    files(path)                 the files of results, for `duckdb.read_parquet(...)` or `pandas.read_parquet(...)`
    read(path)                  the results as an Arrow table
    dead_letter_files(path)     the same of dead letters
    dead_letters(path)
    batches(path)               a row a batch: query_id, batch_id, offsets, counters, watermark, seconds
    check(path)                 reads all of it, and says which file is damaged
    orphans(path, older_than)   files that a kill left: no manifest names them
    vacuum(path, older_than)    removes these, and says which

`path` is the folder of the results, or a URL that pyarrow knows.

Rule 1: rows are what manifests name (manifests.py), and each file is looked at: one that is gone, or has another size
        than it was written with, is an error with its name. So is an end of the manifests that is gone, as far as Spark's
        list (spark_list.py) knows of it.
Rule 2: there is always a file: the first one has no rows, and the columns.
Rule 3: only a file is removed that has a name of ours, that none of all manifests names, and that was written longer ago
        than `older_than`. Where a manifest cannot be read, or the last one is gone, or Spark's list cannot tell whether it
        is, nothing is. What a batch writes just now is young, and clocks of stores differ by minutes; so an hour is the
        least.
Rule 4: rows that are read here are those that were written: each file is read whole, and its sum is looked at (sums.py).
Rule 5: a vacuum says in a manifest which files it takes, and then takes them. A run that wrote them long ago and stood
        still finds the number taken, and them in it: it cannot commit what is about to go. Behind a URL no manifest can be
        made from here: there such a run must not stand still for as long as `older_than`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from waterclock.clock import SystemClock
from waterclock.errors import StateMismatch, UsageError
from waterclock.sinks.files.files import place_of
from waterclock.sinks.files.side_rows import SIDES, typed
from waterclock.sinks.files.sums import sum_of
from waterclock.sinks.names import table_location
from waterclock.sinks.parquet.folders import folder_of, path_of, store_url
from waterclock.sinks.parquet.manifests import BATCH, TEMPORARY, VACUUM, Manifest, Manifests, NamedFile, changed
from waterclock.sinks.parquet.parquet import FILE
from waterclock.sinks.parquet.spark_list import SPARK_LIST, SparkList
from waterclock.sinks.tables import BATCH_NAMES, BATCHES, DEAD_LETTERS

_LEAST = timedelta(hours=1)
_WEEK = timedelta(days=7)
_PARTS = (("files", ""), ("letters", DEAD_LETTERS))  # of a manifest, and the end of the folder's name


def files(path: str | Path) -> list[str]:
    """The files whose rows are the table's, in the order of their batches; the first one has columns and no rows.

    StateMismatch where a manifest or a file is damaged or gone, UsageError where there is no table.
    """
    return _paths(_location(path), "")


def dead_letter_files(path: str | Path) -> list[str]:
    """The files of dead letters, as `files` gives those of results."""
    return _paths(_location(path), DEAD_LETTERS)


def read(path: str | Path) -> pa.Table:
    """The rows of the table, in the order of their batches."""
    return pa.concat_tables(_rows(path, ""))


def dead_letters(path: str | Path) -> pa.Table:
    """The dead letters, in the order of their batches."""
    return pa.concat_tables(_rows(path, DEAD_LETTERS))


def check(path: str | Path) -> None:
    """Read every file that the manifests name; StateMismatch, with its name, for one that is not what was written.

    For who reads them with something else: that goes by the list, and not by sums.
    """
    for _, end in _PARTS:
        for _ in _rows(path, end):
            pass


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
    _manifests(location)
    _refuse_untold(location)
    for part, end in _PARTS:
        there = _lying(location + end)  # before the manifests: what is named behind this look is not in it
        named = {file.name for each in _manifests(location) for file in getattr(each, part)}
        left = [name for name, (_, written_ms) in there.items() if name not in named and written_ms < last_ms]
        found += [f"{location}{end}/{name}" for name in sorted(left) if FILE.fullmatch(name)]
    return found + _begun(location, last_ms)


def vacuum(path: str | Path, older_than: timedelta = _WEEK) -> list[str]:
    """Remove the files that no manifest names and that are older than `older_than`; the value is what was removed.

    UsageError where there is no room for the manifest that says so: some kilobytes.
    """
    is_told, found = False, list[str]()
    while not is_told:
        # loaded before the look: where another one is committed meanwhile, it is done anew
        manifests = _loaded(_location(path))
        found = orphans(path, older_than)
        is_told = manifests is None or not found or _is_told(manifests, found)
    for each in found:
        at, inner = place_of(store_url(each))
        at.delete_file(inner)
    return found


def _location(path: str | Path) -> str:
    return table_location(path_of(str(path)))


def _loaded(location: str) -> Manifests | None:
    """The manifests, to write one; None behind a URL."""
    if "://" in location:
        return None
    manifests = Manifests(folder_of(location + BATCHES), f"the table {location}")
    with _errors_of(location):
        manifests.load()
    return manifests


def _is_told(manifests: Manifests, paths: list[str]) -> bool:
    """Whether a manifest tells that these files are to be removed (rule 5); not where another one was committed."""
    removed = [name for name in (Path(path).name for path in paths) if FILE.fullmatch(name)]
    with _errors_of(str(Path(paths[0]).parent)):
        return not removed or manifests.commit(manifests.next(VACUUM, manifests.marks, {"removed": removed}))


@contextmanager
def _errors_of(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"nothing was removed in {place}: a vacuum says first in a manifest what it takes, and that could not be "
            f"written: {error}. Make room for some kilobytes, or run it as a user who may write there"
        ) from error


def _refuse_untold(location: str) -> None:
    """Raise StateMismatch where Spark's list cannot say whether the last manifest is there: rule 3."""
    for part, end in _PARTS:
        if SparkList(folder_of(location + end), location + end, part).told() < 0:
            raise StateMismatch(
                f"{location}{end}/{SPARK_LIST} is gone or damaged, so nothing tells whether the last manifest of the table "
                "is there: no file is taken for nobody's. The next start of a pipeline makes it anew"
            )


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


def _named(location: str, end: str) -> list[NamedFile]:
    """The files that manifests name, in the folder with this end of its name; all of them lie there."""
    (part,) = (part for part, its_end in _PARTS if its_end == end)
    named: list[NamedFile] = [file for each in _manifests(location) for file in getattr(each, part)]
    there = _lying(location + end)  # behind the manifests: what they name is there by then
    for file in named:
        size = there[file.name][0] if file.name in there else None
        if size != file.size:
            raise changed(location + end, file, size)
    return named


def _paths(location: str, end: str) -> list[str]:
    return [f"{store_url(location)}{end}/{file.name}" for file in _named(location, end)]


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


def _rows(path: str | Path, end: str) -> Iterator[pa.Table]:
    """The rows of each file; StateMismatch for the first one that is not what was written (rule 4)."""
    location = _location(path)
    at, inner = place_of(store_url(location + end))
    for file in _named(location, end):
        with at.open_input_file(f"{inner}/{file.name}") as stream:
            data = stream.read_buffer()
        if file.sum and sum_of(data) != file.sum:
            raise _damaged(f"{location}{end}/{file.name}", "its bytes are not those that were written")
        try:
            yield pq.ParquetFile(pa.BufferReader(data)).read()
        except (OSError, pa.ArrowException) as error:
            raise _damaged(f"{location}{end}/{file.name}", str(error)) from error


def _damaged(file: str, why: str) -> StateMismatch:
    return StateMismatch(
        f"{file} is damaged: {why}. Its rows are a part of the table. Restore it from a copy, or start over with --fresh"
    )
