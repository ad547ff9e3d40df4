"""What every sink does with tables: makes them, tells what differs, removes its own and leaves those of others alone."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.conftest import DATABASES, SQL
from tests.sinks.database_stores import DuckDBStore
from tests.sinks.stores import (
    EVENT,
    SCHEMA,
    Database,
    MirroringStore,
    SQLiteStore,
    Store,
    batch,
    everything,
    of_batches,
)
from tests.spark.tables.stores import TableStore
from waterclock.changes.packed import CHANGES
from waterclock.errors import UsageError
from waterclock.sinks import LastBatch, Replica, apply_once
from waterclock.sinks.destination import Findings
from waterclock.sinks.duckdb.destination import DuckDBFile
from waterclock.sinks.sqlite.sqlite import SQLiteFile
from waterclock.streaming import frames

ENDINGS = ("", "_batches", "_dead_letters")
STRANGE = (
    "a.b", ".select", "select", 'a"b', "é", "1", "'", "`", "x`y", "?", "%s", "$1", "[0]", "*", "\\", "🕰",
)  # fmt: skip


@pytest.fixture
def store(any_store: Store) -> Store:
    """Every sink in turn."""
    return any_store


def refusal(store: Store, event: pa.Schema) -> str:
    with closing(store.sink()) as sink, pytest.raises(UsageError) as caught:
        sink.open(frames.result_schema(pa.string(), event))
    return str(caught.value)


@pytest.mark.parametrize("any_store", [*DATABASES, "iceberg", "topic"], indirect=True)
def test_columns_of_any_printable_name_have_their_place(store: Store) -> None:
    names = ("a b", "%", *STRANGE)
    schema = frames.result_schema(pa.string(), pa.schema([(name, pa.string()) for name in names]))
    row = {"kind": "event", "key": "k", "rule": "pass", "event": {name: f"of {name}" for name in names}}
    with closing(store.sink()) as sink:
        for _ in range(2):
            sink.open(schema)
        apply_once(sink, replace(batch(0), results=pa.Table.from_pylist([row], schema=schema)))
    found = store.look('kind, "event_a b", "event_select", "event_.select", "event_🕰"')
    assert found == [("event", "of a b", "of select", "of .select", "of 🕰")]


@pytest.mark.parametrize("any_store", ["delta", "delta by executors"], indirect=True)
def test_columns_of_any_name_that_delta_lake_takes_have_their_place_and_others_are_refused(store: Store) -> None:
    schema = frames.result_schema(pa.string(), pa.schema([(name, pa.string()) for name in STRANGE]))
    row = {"kind": "event", "key": "k", "rule": "pass", "event": {name: f"of {name}" for name in STRANGE}}
    with closing(store.sink()) as sink:
        sink.open(schema)
        apply_once(sink, replace(batch(0), results=pa.Table.from_pylist([row], schema=schema)))
    assert store.look('kind, "event_.select", "event_select"') == [("event", "of .select", "of select")]
    assert "cannot be in a table of Delta Lake: no spaces" in refusal(store, pa.schema([("a b", pa.string())]))


@pytest.mark.parametrize("any_store", [SQL[2]], indirect=True)
@pytest.mark.parametrize("name", ["🕰", "a ", "c" * 64])
def test_columns_of_any_name_that_mysql_takes_have_their_place_and_others_are_refused(store: Store, name: str) -> None:
    names = ("a b", *(each for each in STRANGE if each != "🕰"))
    schema = frames.result_schema(pa.string(), pa.schema([(name, pa.string()) for name in names]))
    row = {"kind": "event", "key": "k", "rule": "pass", "event": {name: f"of {name}" for name in names}}
    with closing(store.sink()) as sink:
        sink.open(schema)
        apply_once(sink, replace(batch(0), results=pa.Table.from_pylist([row], schema=schema)))
    assert store.look('kind, "event_.select", "event_a b", "event_`"') == [("event", "of .select", "of a b", "of `")]
    assert "cannot be in a table of MySQL: up to 64 characters" in refusal(store, pa.schema([(name, pa.string())]))


# A table that differs


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (EVENT.append(pa.field("new", pa.string())), r"\('event_new' is missing there\)"),
        (EVENT.remove(0), r"\('event_case' is only there\)"),
        (
            EVENT.set(1, pa.field("n", pa.string())),
            r"\('event_n' is (bigint|INTEGER|BIGINT|long|int64) there and (text|TEXT|longtext|VARCHAR|string) here\)",
        ),
        (EVENT.set(0, pa.field("other", pa.string())), r"'event_other' is missing there; 'event_case' is only there"),
        (pa.schema(list(EVENT)[::-1]), r"\(they stand in another order there\)"),
    ],
    ids=["added", "removed", "other type", "renamed", "other order"],
)
def test_a_table_that_differs_is_told_column_by_column(store: Store, event: pa.Schema, told: str) -> None:
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
    assert re.search(told, refusal(store, event))


def looked_at(store: Store, event: pa.Schema) -> list[str]:
    """Why the tables that are there are refused by whoever only looks at them."""
    if isinstance(store, TableStore):
        pytest.skip("what stands in Spark's catalog is not looked at without Spark")
    results = frames.result_schema(pa.string(), event)
    before = tables(store)
    found = Findings()
    if isinstance(store, SQLiteStore):
        SQLiteFile(store.path, "results").look(results, found)
    elif isinstance(store, DuckDBStore):
        DuckDBFile(store.path, "results").look(results, found)
    else:
        with closing(store.sink()) as sink:
            found.faults.extend(sink.look(results))  # type: ignore[attr-defined]
    assert (found.unchecked, tables(store)) == ([], before)
    return found.faults


def tables(store: Store) -> list[str] | None:
    """The tables that are there; None if there is no folder for any."""
    folder = store.path.parent if isinstance(store, SQLiteStore | DuckDBStore) else getattr(store, "folder", None)
    return store.tables() if folder is None or folder.exists() else None


def test_who_looks_only_says_what_opening_would_and_makes_nothing(store: Store) -> None:
    assert looked_at(store, EVENT) == []
    other = EVENT.append(pa.field("new", pa.string()))
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        assert looked_at(store, EVENT) == []  # while another one writes
        assert looked_at(store, other) == [refusal(store, other)]
        apply_once(sink, batch(0))
    assert looked_at(store, EVENT) == []


def test_who_looks_only_says_all_that_is_wrong(store: Store) -> None:
    for end in ENDINGS[:2]:
        store.make_table_of_others(f"results{end}")
    found = looked_at(store, EVENT)
    assert all(any(f"results{end}'" in told for told in found) for end in ENDINGS[:2]), found
    assert found[0] == refusal(store, EVENT)


def test_who_looks_only_misses_every_table_that_is_gone(sql_store: Database) -> None:
    with closing(sql_store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0))
    for end in ENDINGS[::2]:
        sql_store.run(f"DROP TABLE results{end}")
    found = looked_at(sql_store, EVENT)
    assert [f"the table 'results{end}' in" in told for end, told in zip(ENDINGS[::2], found, strict=True)] == [True] * 2


def test_a_table_that_lost_its_primary_key_is_refused(sql_store: Database) -> None:
    with closing(sql_store.sink()) as sink:
        sink.open(SCHEMA)
        sql_store.run("CREATE TABLE copied AS SELECT * FROM results_batches")
        sql_store.run("DROP TABLE results_batches")
        sql_store.run("ALTER TABLE copied RENAME TO results_batches")
    assert "the primary key is () there and (query_id, batch_id) here" in refusal(sql_store, EVENT)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_table_that_was_dropped_beside_others_that_hold_rows_is_not_made_anew(
    sql_store: Database, ending: str
) -> None:
    # it was, and went on from there: who asked it for results had the last ones only
    with closing(sql_store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0))
    sql_store.run(f"DROP TABLE results{ending}")
    assert f"the table 'results{ending}' in " in (told := refusal(sql_store, EVENT))
    assert "is gone, and those beside it hold rows. Restore it" in told
    assert len(sql_store.tables()) == 2


def test_tables_without_rows_lost_nothing_with_the_one_that_is_gone(sql_store: Database) -> None:
    with closing(sql_store.sink()) as sink:
        sink.open(SCHEMA)
        sql_store.run("DROP TABLE results")
        sink.open(SCHEMA)


def test_a_table_beside_one_of_another_purpose_is_refused_and_nothing_is_made(store: Store) -> None:
    with closing(store.sink("a_batches")) as other:
        other.open(SCHEMA)
    before = store.tables()
    with (
        closing(store.sink("a")) as sink,
        pytest.raises(UsageError, match=r"a_batches'.*another (table.*--fresh|topic)"),
    ):
        sink.open(SCHEMA)
    assert store.tables() == before


# Removing


def test_remove_drops_the_tables_of_the_sink_and_no_others(store: Store) -> None:
    with closing(store.sink()) as sink, closing(store.sink("others")) as other:
        sink.remove()
        for each in (sink, other):
            each.open(SCHEMA)
            apply_once(each, batch(0))
        sink.remove()
        assert store.tables() == sorted(f"others{ending}" for ending in ENDINGS)
        assert other.last_applied() == LastBatch("q", 0)
        sink.open(SCHEMA)
        assert (sink.last_applied(), sink.totals()) == (None, {})


@pytest.mark.parametrize("ending", ENDINGS)
def test_remove_leaves_a_table_that_is_none_of_a_sink(store: Store, ending: str) -> None:
    store.make_table_of_others(f"results{ending}")
    with closing(store.sink()) as sink, pytest.raises(UsageError, match=f"results{ending}' .*is not removed"):
        sink.remove()
    assert store.tables() == [f"results{ending}"]


def test_a_sink_of_results_does_not_remove_a_mirror(mirroring: MirroringStore) -> None:
    with closing(mirroring.sink(mirror=Replica())) as made, closing(mirroring.sink()) as sink:
        made.open(CHANGES)
        with pytest.raises(UsageError, match="is not removed"):
            sink.remove()
        assert "results_positions" in mirroring.tables()


def test_what_is_removed_can_be_made_anew(store: Store) -> None:
    with closing(store.sink()) as sink:
        for _ in range(2):
            sink.open(SCHEMA)
            assert apply_once(sink, batch(0)) is True
            assert everything(store) == of_batches(0)
            sink.remove()
    assert store.tables() == []


def test_results_with_the_columns_of_a_users_own_step_are_kept_and_removed_like_others(store: Store) -> None:
    # --fresh took such a table for somebody else's
    schema = pa.schema([("due", frames.TIMESTAMP), ("customer", pa.string()), ("event", pa.string())])
    rows = pa.Table.from_pylist([{"due": 0, "customer": "c", "event": "e"}], schema=schema)
    with closing(store.sink()) as sink:
        for _ in range(2):
            sink.open(schema)
        apply_once(sink, replace(batch(0), results=rows))
        assert store.look("customer, event") == [("c", "e")]
        sink.remove()
    assert store.tables() == []
