"""What only the sink of SQLite promises: values as its functions read them, files and tables of others left alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sinks.stores import SCHEMA, MirroringStore, SQLiteStore, batch, everything, in_a_child, of_batches
from tests.sinks.test_replica import give, insert, opened
from waterclock.changes.row_change import RowChange
from waterclock.errors import EnvironmentMissing, UsageError
from waterclock.sinks import SQLiteSink, apply_once
from waterclock.sinks.sqlite import sqlite
from waterclock.streaming import frames


def test_sqlite_holds_the_values_of_a_result_as_its_functions_read_them(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    row = {
        "kind": "late",
        "key": "é\x00",
        "rule": "late",
        "due": -1,
        "emitted_at": 1_577_836_800_000_001,
        "source_id": "s",
        "result_id": "r",
        "event": {"case": "", "n": 2**63 - 1, "d": -0.25, "b": False},
    }
    rows = pa.Table.from_pylist([row, {**row, "event": None, "key": None}], schema=SCHEMA)
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, replace(batch(0), results=rows))
    times = ("1969-12-31 23:59:59.999999", "2020-01-01 00:00:00.000001")
    assert store.look("*") == [
        (0, "late", "é\x00", "late", *times, "s", "r", "", 2**63 - 1, -0.25, 0),
        (0, "late", None, "late", *times, "s", "r", None, None, None, None),
    ]
    assert store.look("julianday(due) < julianday(emitted_at), 1") == [(1, 1), (1, 1)]
    assert store.look("counters, watermark, seconds", "results_batches") == [
        ('{"events": 2, "late": 1}', "1970-01-01 00:00:01.000000", 0.25)
    ]


@pytest.mark.parametrize("us", [253_402_300_800_000_000, -62_135_596_800_000_001, 2**62, -(2**62)])
def test_a_time_outside_of_the_calendar_is_refused_or_kept_but_never_a_broken_text(tmp_path: Path, us: int) -> None:
    store = SQLiteStore(tmp_path)
    rows = pa.Table.from_pylist([{"kind": "emit", "key": "a", "due": us}], schema=SCHEMA)
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        try:
            apply_once(sink, replace(batch(0), results=rows))
        except ValueError:
            return
    (due, _) = store.look("due, 1")[0]
    assert "range" not in due


def junk(path: Path) -> None:
    path.write_bytes(b"not a database at all " * 100)


def beside_a_file(path: Path) -> None:
    path.parent.rmdir()
    path.parent.touch()


@pytest.mark.parametrize(
    "prepare", [junk, Path.mkdir, beside_a_file], ids=["not a database", "a folder", "below a file"]
)
def test_a_path_where_no_database_can_be_is_a_usage_error_that_names_it(tmp_path: Path, prepare: Any) -> None:
    path = tmp_path / "sub" / "results.db"
    path.parent.mkdir()
    prepare(path)
    with pytest.raises(UsageError, match=r"results\.db"):
        SQLiteSink(path).open(SCHEMA)


def test_a_corrupt_database_is_told_by_its_name(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0, count=500))
    data = bytearray(store.path.read_bytes())
    data[100:4096] = b"\xff" * 3996
    store.path.write_bytes(data)
    with pytest.raises(UsageError, match=r"results\.db"):
        SQLiteSink(store.path).open(SCHEMA)


def test_a_failed_open_does_not_lock_the_file_for_others(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    with closing(SQLiteSink(store.path)) as failing:
        twice = pa.schema([("a", pa.string()), ("A", pa.string())])
        with pytest.raises((UsageError, sqlite3.Error)):
            failing.open(frames.result_schema(pa.string(), twice))
        with closing(sqlite3.connect(store.path, timeout=0)) as other:
            other.execute("CREATE TABLE mine (n)")


FULL = """
import resource, signal
from waterclock.errors import EnvironmentMissing
apply_once(sink, batch(0))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
try:
    apply_once(sink, batch(1, count=20_000))
    print("written")
except EnvironmentMissing as error:
    print("refused", "cannot be written or read: " in str(error) and "See to its disk" in str(error))
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
print(sink.last_applied().batch_id, apply_once(sink, batch(1)), sink.totals()["events"])
sink.close()
"""


def test_a_full_disk_refuses_the_batch_whole_and_the_sink_goes_on_when_space_returns(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    done = in_a_child(store, FULL)
    assert (done.stdout.split(), done.stderr) == (["refused", "True", "0", "True", "4"], "")
    assert everything(store) == of_batches(0, 1)


def test_a_file_that_another_one_keeps_locked_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "_WAIT_S", 0.1)
    store = SQLiteStore(tmp_path)
    with closing(store.sink()) as sink, closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        sink.open(SCHEMA)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(EnvironmentMissing, match=r"results\.db.* is locked. See to .* who else has it open"):
            apply_once(sink, batch(0))
        other.execute("ROLLBACK")
        assert apply_once(sink, batch(0))


def test_a_file_that_is_damaged_under_a_sink_is_told(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path)
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0, count=500))
        sink.db.run("PRAGMA wal_checkpoint(TRUNCATE)")
        sink.db.run("PRAGMA cache_size=0")
        store.path.write_bytes(store.path.read_bytes()[:4096] + b"\xff" * 400_000)
        with pytest.raises(UsageError, match=r"results\.db.* a damaged one must be restored"):
            apply_once(sink, batch(1))


def test_a_commit_of_the_file_waits_for_the_disk(tmp_path: Path) -> None:
    sink = SQLiteSink(tmp_path / "x.db")
    assert sink.db.run("PRAGMA synchronous") == [(2,)]  # FULL: what survives a power cut
    sink.close()


ALIKE = {
    "the tables shop.T and shop.t": [insert(1, 1, "shop.T", name="a"), insert(2, 2, "shop.t", name="b")],
    "the columns Name and name of shop.item": [insert(1, 1, Name="a", name="b")],
    "the columns Id and ID of shop.item": [
        RowChange("shop.item", "insert", {"Id": 1}, (1, 0), {"Id": 1}),
        RowChange("shop.item", "insert", {"Id": 2}, (2, 0), {"Id": 2, "ID": 3}),
    ],
}


both = pytest.mark.parametrize("target", ["sqlite", "duckdb"], indirect=True)


@both
@pytest.mark.parametrize("names", ALIKE)
@pytest.mark.parametrize("at_once", [True, False])
def test_names_that_differ_by_case_only_are_told(names: str, at_once: bool, target: MirroringStore) -> None:
    """Rows of one table went into the other's, and nobody heard of it; of columns it was said that the file is damaged."""
    first, last = ([], ALIKE[names]) if at_once else (ALIKE[names][:-1], ALIKE[names][-1:])
    with opened(target) as sink:
        for change in first:
            give(sink, 0, change)
        with pytest.raises(UsageError, match=f"{names} in the source differ by case only"):
            give(sink, 1, *last)


@both
def test_letters_that_sqlite_tells_apart_are_two_names(target: MirroringStore) -> None:
    with opened(target) as sink:
        give(sink, 0, insert(1, 1, "shop.Ä", name="a"), insert(2, 1, "shop.ä", name="b"))
    assert [target.look("id, name", target.mirrored(f"shop.{table}")) for table in "Ää"] == [[(1, "a")], [(1, "b")]]
