"""What [sink] names, and the sink that it makes."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.sinks.stores import SCHEMA
from waterclock.errors import UsageError
from waterclock.sinks import Replica
from waterclock.sinks.delta.destination import DeltaLakeTable
from waterclock.sinks.destination import Destination, remove_all
from waterclock.sinks.duckdb.destination import DuckDBFile
from waterclock.sinks.mysql.destination import MySQLDatabase
from waterclock.sinks.postgres.destination import PostgresDatabase
from waterclock.sinks.sqlite.sqlite import SQLiteFile
from waterclock.sinks.topic.destination import KafkaTopic
from waterclock.streaming.toml.sink import refuse_one_place

MIRROR = Replica()


def all_of(folder: Path) -> list[Destination]:
    return [
        SQLiteFile(folder / "a.db", "results"),
        SQLiteFile(folder / "b.db", "changes", MIRROR),
        DuckDBFile(folder / "a.duckdb", "results"),
        DuckDBFile(folder / "b.duckdb", "changes", MIRROR),
        DeltaLakeTable(str(folder / "lake" / "results"), folder / "lake" / "results"),
        DeltaLakeTable(str(folder / "copy" / "changes"), folder / "copy" / "changes", MIRROR),
    ]


def test_a_run_and_its_fresh_start_call_a_sink_the_same(tmp_path: Path) -> None:
    """A run writes down whose its checkpoint is as the sink says it; --fresh asks the file. No mirror could start over."""
    postgres = "postgresql://reader@127.0.0.1:1/shop"
    servers = [
        PostgresDatabase(postgres, "public", "results"),
        PostgresDatabase(postgres, "public", "changes", MIRROR),
        MySQLDatabase("mysql://reader@127.0.0.1:1/shop", "results"),
        KafkaTopic("127.0.0.1:1", "results", -1, {}),
    ]
    for each in [*all_of(tmp_path), *servers]:
        with closing(each.sink()) as sink:
            assert each.place == (getattr(sink, "place", None) or sink.describe())


@pytest.mark.parametrize("number", range(6))
def test_two_mirrors_never_share_a_database_and_two_tables_may(tmp_path: Path, number: int) -> None:
    here = all_of(tmp_path)[number]
    name = {"table": "other"} if hasattr(here, "table") else {"location": f"{tmp_path}/copy/other"}
    other = type(here)(**{**{each: getattr(here, each) for each in here.__slots__}, **name})  # type: ignore[attr-defined]
    if getattr(here, "mirror", None):
        with pytest.raises(UsageError, match="two of the pipeline's sinks write to the source's tables in"):
            refuse_one_place([here.alone, other.alone])
    else:
        refuse_one_place([here.alone, other.alone])


def test_fresh_makes_nothing_to_look_into_it(tmp_path: Path) -> None:
    remove_all(all_of(tmp_path))
    assert [*tmp_path.iterdir()] == []


def test_fresh_drops_nothing_if_one_of_several_holds_tables_of_somebody_else(tmp_path: Path) -> None:
    """The first one's results were gone before the second was looked at."""
    ours, theirs = all_of(tmp_path)[0], SQLiteFile(tmp_path / "theirs.db", "results")
    with closing(ours.sink()) as sink:
        sink.open(SCHEMA)
    with closing(sqlite3.connect(theirs.path)) as db:
        db.execute("create table results (n)")
    with pytest.raises(UsageError):
        remove_all([ours, theirs])
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        assert len(db.execute("select 1 from sqlite_master where type = 'table'").fetchall()) == 3
