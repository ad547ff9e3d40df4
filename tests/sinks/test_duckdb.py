"""What only the sink of DuckDB promises: its values, one process that writes, files of others left alone."""

from __future__ import annotations

import math
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sinks.database_stores import DuckDBStore, kept
from tests.sinks.stores import SCHEMA, batch, everything, in_a_child, of_batches
from tests.sinks.test_following import ID, PRICE, following, schema
from tests.sinks.test_replica import give, insert, opened, update
from tests.spark.least_pipeline import least_with
from waterclock.changes.table_schema import ColumnSchema
from waterclock.errors import UsageError
from waterclock.sinks import DuckDBSink, apply_once
from waterclock.sinks.destination import Findings
from waterclock.sinks.duckdb import duckdb as module
from waterclock.sinks.duckdb.destination import DuckDBFile
from waterclock.streaming import frames

LAST_US, FIRST_US = 2**62, -(2**62)
TEXTS = ["", "a\x00b", "NULL", "'", '"', "\\N", "\u00e4\U0001f570", "x" * (1 << 20)]


@pytest.fixture
def store(tmp_path: Path) -> DuckDBStore:
    return DuckDBStore(tmp_path)


@pytest.mark.parametrize(
    ("kind", "values", "seen"),
    [
        (pa.string(), TEXTS, "event_v"),
        (pa.int64(), [0, -1, 2**63 - 1, -(2**63)], "event_v"),
        (pa.int32(), [2**31 - 1, -(2**31)], "event_v"),
        (pa.bool_(), [True, False], "event_v"),
        (pa.float64(), [math.inf, -math.inf, -0.0, 0.1, 5e-324], "event_v"),
        (pa.timestamp("us"), [LAST_US, 0, FIRST_US], "epoch_us(event_v)"),
        (frames.TIMESTAMP, [LAST_US, -1, FIRST_US], "epoch_us(event_v)"),
    ],
    ids=["texts", "long", "int", "boolean", "double", "time without a zone", "time"],
)
def test_what_is_written_is_what_is_read(store: DuckDBStore, kind: pa.DataType, values: list[Any], seen: str) -> None:
    assert kept(store, kind, [None, *values], seen) == [None, *values]


def test_a_batch_tells_its_counters_watermark_and_seconds(store: DuckDBStore) -> None:
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0))
    told = store.look("counters, epoch_us(watermark), seconds", "results_batches")
    assert told == [('{"events": 2, "late": 1}', 1_000_000, 0.25)]


def test_what_duckdb_has_no_type_for_here_is_refused_by_the_name_of_the_column(store: DuckDBStore) -> None:
    with pytest.raises(UsageError, match="'event_v' is of the type duration"):
        kept(store, pa.duration("us"), [])
    assert not store.path.exists()


# One writer


def test_a_second_process_is_refused_with_the_reason_and_may_write_when_the_first_is_done(store: DuckDBStore) -> None:
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        refused = in_a_child(store, "")
        assert "OpenElsewhere: the sink's file" in refused.stderr
        assert "is open in another process: DuckDB lets one write" in refused.stderr
    assert in_a_child(store, "apply_once(sink, batch(0))\nsink.close()").returncode == 0
    assert everything(store) == of_batches(0)


def test_a_file_that_another_process_has_open_is_not_looked_at(store: DuckDBStore) -> None:
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
    held = f"import duckdb, sys; db = duckdb.connect({str(store.path)!r}); print(1, flush=True); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", held], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"1\n"
        found = Findings()
        DuckDBFile(store.path, "results").look(SCHEMA, found)
        assert found == Findings([], [f"the table 'results' in {store.path}: its columns"])
    finally:
        other.communicate()


def test_sinks_of_one_process_take_turns_and_each_batch_is_written_once(store: DuckDBStore) -> None:
    with closing(store.sink()) as first, closing(store.sink()) as second:
        first.open(SCHEMA)
        second.open(SCHEMA)
        first.begin()
        first.write(batch(0))
        applied: list[bool] = []
        waiting = threading.Thread(target=lambda: applied.append(apply_once(second, batch(0))))
        waiting.start()
        first.commit()
        waiting.join(60)
        assert applied == [False]
    assert everything(store) == of_batches(0)


def test_one_that_waits_for_too_long_is_told_of_the_other(store: DuckDBStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WAIT_S", 0.01)
    with closing(store.sink()) as first, closing(store.sink()) as second:
        first.open(SCHEMA)
        first.begin()
        with pytest.raises(UsageError, match="another sink of this process has held"):
            apply_once(second, batch(0))
        first.rollback()
        second.open(SCHEMA)
        assert apply_once(second, batch(0)) is True


# Mirrored tables

OF_POSTGRES = {
    "numeric(38,3)": ("DECIMAL(38,3)", ["12345678901234567890123456789012345.678", "-0.001"]),
    "numeric(39,3)": ("VARCHAR", ["123456789012345678901234567890123456.789"]),
    "numeric": ("VARCHAR", ["1e-30", "NaN"]),
    "timestamp(6) with time zone": ("TIMESTAMP WITH TIME ZONE", ["2024-01-02 03:04:05.678901+00", "infinity"]),
    "timestamp without time zone": ("TIMESTAMP", ["0001-01-01 00:00:00", "0044-03-15 12:00:00 BC"]),
    "date": ("DATE", ["2024-02-29", "0044-03-15 BC", "-infinity"]),
    "bytea": ("BLOB", ["\\x", "\\x00ff5c78"]),
    "uuid": ("UUID", ["7d44b2a0-1bd2-4a1f-9c8e-0242ac120002"]),
    "jsonb": ("JSON", ["a", "1"]),
    "real": ("FLOAT", ["1e-45", "NaN", "-Infinity"]),
    "interval": ("VARCHAR", ["1 mon -00:00:01"]),
    "integer[]": ("VARCHAR", ["{1,NULL}"]),
}


@pytest.mark.parametrize("declared", OF_POSTGRES)
def test_a_column_gets_the_type_of_its_source_and_holds_its_values(
    declared: str, store: DuckDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    word, texts = OF_POSTGRES[declared]
    new = ColumnSchema("more", declared, number=3, older='"a"' if word == "JSON" else texts[0])
    with following(store, monkeypatch) as (sink, learn):
        learn(schema(1, ID, ColumnSchema("value", declared, number=2)))
        give(sink, 0, *(insert(2, n, value=text) for n, text in enumerate(texts)))
        learn(schema(3, ID, ColumnSchema("value", declared, number=2), new))
        give(sink, 1, update(4, 0, value=texts[0]))
    assert store.look("typeof(value), typeof(more)", "shop.item")[0] == (word, word)
    shown = "'\\x' || lower(hex(value))" if word == "BLOB" else "value::VARCHAR"
    found = [value for _, value in store.look(f"id, {shown}", "shop.item")]
    assert [as_of_postgres(value) for value in found] == ([f'"{text}"' for text in texts] if word == "JSON" else texts)
    assert store.look("id, more = first(value) OVER (ORDER BY id)", "shop.item") == [
        (n, True) for n in range(len(texts))
    ]


def as_of_postgres(text: str) -> str:
    date, is_before_christ, time = text.partition(" (BC)")
    words = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return f"{date}{time} BC" if is_before_christ else words.get(text, text)


def test_a_value_that_a_type_does_not_hold_stops_with_the_remedy(
    store: DuckDBStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with following(store, monkeypatch) as (sink, learn):
        learn(schema(1, ID, PRICE))
        give(sink, 0, insert(2, 1, price="1.00"))
        with pytest.raises(UsageError, match=r'"NaN" to DECIMAL\(10,2\).*\. Give the column the type VARCHAR there'):
            give(sink, 1, insert(3, 2, price="NaN"))
        store.run("ALTER TABLE shop.item ALTER COLUMN price TYPE VARCHAR")
        give(sink, 1, insert(3, 2, price="NaN"))
    assert store.look("id, price", "shop.item") == [(1, "1.00"), (2, "NaN")]


def test_a_file_with_the_name_of_the_database_holds_its_schema(tmp_path: Path) -> None:
    """`shop.item` could be a table of the file shop.duckdb as well as of the schema shop."""
    store = DuckDBStore(tmp_path)
    store.path = tmp_path / "shop.duckdb"
    with opened(store) as sink:
        give(sink, 0, insert(1, 1, name="a"))
        give(sink, 1, update(2, 1, name="b", more=[1]))
    assert store.look("id, name, more", "shop.shop.item") == [(1, "b", "[1]")]


# Places


@pytest.mark.parametrize(
    "prepare", [lambda path: path.write_bytes(b"junk" * 9_999), Path.mkdir], ids=["no database", "a folder"]
)
def test_a_path_where_no_database_can_be_is_a_usage_error_that_names_it(tmp_path: Path, prepare: Any) -> None:
    path = tmp_path / "results.duckdb"
    prepare(path)
    with closing(DuckDBSink(path)) as sink, pytest.raises(UsageError, match=r"results\.duckdb' cannot be used: "):
        sink.open(SCHEMA)


def test_a_pipelines_file_names_it(tmp_path: Path) -> None:
    made = least_with(tmp_path, "[sink]\nformat = 'duckdb'\npath = 'out.duckdb'\n").sink
    assert made == DuckDBFile(tmp_path / "out.duckdb", "results")
    made.remove()  # nothing is there, and nothing is made
    assert not (tmp_path / "out.duckdb").exists()
    with pytest.raises(UsageError, match="must be a plain name"):
        least_with(tmp_path, "[sink]\nformat = 'duckdb'\npath = 'out.duckdb'\ntable = 'a b'\n")
