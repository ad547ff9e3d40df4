"""Rows into SQLite as columns: the same as by `executemany`, on the one SQLite that Python's sqlite3 has."""

from __future__ import annotations

import _sqlite3
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.processes import in_a_fork
from tests.sinks.stores import SCHEMA, SQLiteStore, batch, everything, of_batches
from waterclock.sinks import apply_once
from waterclock.sinks.sqlite import rows as sqlite_rows
from waterclock.sinks.sqlite.rows import ArrowConnection, connect

TYPES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.float64(): st.floats(),
    pa.float32(): st.floats(width=32),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(st.characters(codec="utf-8"), max_size=12),
    pa.large_string(): st.text(st.characters(codec="utf-8"), max_size=4),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """Tables of some columns, in chunks that are parts of longer ones and end at other places in each column."""
    types = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4))
    count = draw(st.integers(0, 20))
    columns = [_chunked(draw, type_, count) for type_ in types]
    return pa.Table.from_arrays(columns, names=[f"c{place}" for place in range(len(types))])


def _chunked(draw: st.DrawFn, type_: pa.DataType, count: int) -> pa.ChunkedArray:
    values = draw(st.lists(st.none() | TYPES[type_], min_size=count, max_size=count))
    cut = draw(st.integers(0, count))
    longer = [pa.array([None, *part, None], type_).slice(1, len(part)) for part in (values[:cut], values[cut:])]
    return pa.chunked_array(longer, type_)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[ArrowConnection]:
    with closing(connect(tmp_path / "x.db", 0)) as made:
        yield made


def written(rows: pa.Table, plain: bool) -> list[tuple[Any, ...]]:
    with closing(connect(Path(":memory:"), 0)) as database:
        if plain:
            database.address = None
        database.execute(f"CREATE TABLE r ({', '.join(rows.column_names)})")
        database.execute("BEGIN")
        database.insert("r", rows)
        database.execute("COMMIT")
        kinds = ", ".join(f"typeof({name}), {name}" for name in rows.column_names)
        return database.execute(f"SELECT {kinds} FROM r ORDER BY rowid").fetchall()


@given(tables())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # under the sanitizers it is
def test_columns_become_the_rows_that_executemany_makes_of_them(rows: pa.Table) -> None:
    assert written(rows, plain=False) == written(rows, plain=True)


def test_what_was_built_is_used_where_sqlite_tells_its_connections(database: ArrowConnection) -> None:
    linked = getattr(_sqlite3, "__file__", None) is not None
    assert (database.address is not None) >= (linked and sqlite_rows._rows is not None)


@pytest.mark.parametrize("plain", [False, True])
def test_a_row_that_is_refused_is_told_in_sqlites_words(database: ArrowConnection, plain: bool) -> None:
    database.execute("CREATE TABLE r (a INTEGER NOT NULL, b TEXT UNIQUE)")
    if plain:
        database.address = None
    database.execute("BEGIN")
    for rows, words in (([[1, None], ["x", "y"]], "NOT NULL"), ([[1, 1], ["x", "x"]], "UNIQUE")):
        with pytest.raises(sqlite3.IntegrityError, match=f"{words} constraint failed: r"):
            database.insert("r", pa.Table.from_arrays(rows, ["a", "b"]))
    with pytest.raises(sqlite3.OperationalError, match="no such table: s"):
        database.insert("s", pa.table({"a": [1]}))
    database.execute("ROLLBACK")
    assert database.execute("SELECT * FROM r").fetchall() == []


@pytest.mark.parametrize("plain", [False, True])
def test_a_closed_connection_takes_no_rows(tmp_path: Path, plain: bool) -> None:
    database = connect(tmp_path / "x.db", 0)
    if plain:
        database.address = None
    database.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        database.insert("r", pa.table({"a": [1]}))


def test_connections_that_are_made_at_once_know_themselves(tmp_path: Path) -> None:
    places, start = range(8), threading.Barrier(9)

    def strangers() -> None:
        start.wait()
        for _ in range(200):
            sqlite3.connect(":memory:").close()

    def work(place: int) -> None:
        start.wait()
        with closing(connect(tmp_path / f"{place}.db", 30)) as database:
            database.execute("CREATE TABLE r (a)")
            database.execute("BEGIN")
            database.insert("r", pa.table({"a": [place] * 100}))
            database.execute("COMMIT")

    threads = [threading.Thread(target=work, args=(place,)) for place in places]
    threads.append(threading.Thread(target=strangers))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for place in places:
        with closing(sqlite3.connect(tmp_path / f"{place}.db")) as database:
            assert database.execute("SELECT DISTINCT a, count(*) FROM r").fetchall() == [(place, 100)]


ANOTHER = """
import sqlite3
with sqlite3.connect({path!r}, timeout=0, isolation_level=None) as database:
    try:
        database.execute("BEGIN IMMEDIATE")
        print("began")
    except sqlite3.OperationalError as error:
        print(error)
"""


def test_a_look_at_the_file_by_the_same_process_takes_nothing_from_the_sink(tmp_path: Path) -> None:
    # With a second SQLite in the process, as ADBC's driver brings one, the first look removed the write-ahead log of the
    # sink when it was closed: batch 1 was committed, and nobody ever saw it. A look in the middle of a batch let go the
    # lock, and another process wrote between.
    store = SQLiteStore(tmp_path)
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0))
        assert everything(store) == of_batches(0)
        apply_once(sink, batch(1))
        assert everything(store) == of_batches(0, 1)
        sink.begin()
        sink.write(batch(2))
        assert everything(store) == of_batches(0, 1)
        assert in_a_fork(ANOTHER.format(path=str(store.path))).stdout == "database is locked\n"
        sink.commit()
    assert everything(store) == of_batches(0, 1, 2)
