"""The table [sink] of a pipeline's file: databases and mirrors, what is taken, what is refused, and the sink it makes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.sinks.database_stores import DuckDBStore
from tests.sinks.stores import PostgresStore, Store
from tests.spark.least_pipeline import LEAST, told, write
from waterclock.sinks import Replica
from waterclock.sinks.postgres.destination import PostgresDatabase
from waterclock.sinks.sqlite.sqlite import SQLiteFile
from waterclock.streaming.toml.config import load

CHANGES = """
[source]
format = "kafka"
servers = "a:1"
topics = ["changes"]
value = "maxwell"
"""
POSTGRES = """
[sink]
format = "postgres"
url = "postgresql://me@db.example:5432/shop?sslmode=require"
"""


def least(sink: str) -> str:
    return LEAST[: LEAST.index("[sink]")] + sink


def test_a_database_gets_the_defaults_that_are_promised(folder: Path) -> None:
    url = "postgresql://me@db.example:5432/shop?sslmode=require"
    assert load(write(folder, least(POSTGRES))).sink == PostgresDatabase(url, "public", "results")


def test_everything_that_is_said_of_a_database_is_taken(folder: Path) -> None:
    sink = (
        'sink = { format = "postgres", url = "postgresql:///shop", schema = "ours", table = "fines", mode = "results" }'
    )
    text = sink + least("")
    assert load(write(folder, text)).sink == PostgresDatabase("postgresql:///shop", "ours", "fines")


def test_changes_are_put_into_either_database(folder: Path) -> None:
    made = load(write(folder, f'{CHANGES}[sink]\npath = "out.db"\n')).sink
    assert made == SQLiteFile(folder / "out.db", "changes", Replica())
    made = load(write(folder, CHANGES + POSTGRES.replace("me@db.example:5432/shop?sslmode=require", "h/d"))).sink
    assert made == PostgresDatabase("postgresql://h/d", "public", "changes", Replica())


@pytest.mark.parametrize(
    ("sink", "what"),
    [
        ('format = "iceberg"\ntable = "a.b"', "a table of Iceberg"),
        ('format = "table"\ntable = "a.b"', "a table of Spark's catalog"),
        ('format = "kafka"\nservers = "a:1"\ntopic = "b"', "a topic"),
    ],
)
def test_changes_have_no_place_where_what_was_written_stays(folder: Path, sink: str, what: str) -> None:
    assert f"[sink]: {what} cannot be a mirror: what was written to it stays. Take" in told(
        folder, f"{CHANGES}[sink]\n{sink}\n"
    )


@pytest.mark.parametrize("of_results", ['query = "SELECT 1"', 'transform = "a:b"', 'takes = ["late"]'])
def test_what_is_for_results_is_refused_beside_changes(folder: Path, of_results: str) -> None:
    assert "[sink]: 'query', 'transform' and 'takes' are for results: a mirror" in told(
        folder, f'{CHANGES}[sink]\npath = "out.db"\n{of_results}\n'
    )


@pytest.mark.parametrize("of_changes", [False, True])
@pytest.mark.parametrize("format_", ["sqlite", "delta", "iceberg", "kafka"])
def test_the_mode_that_left_is_refused_with_what_takes_its_place(folder: Path, of_changes: bool, format_: str) -> None:
    sink = f'[sink]\nformat = "{format_}"\npath = "out"\nmode = "apply"\nkey = ["id"]\ncolumns = ["id"]\n'
    said = told(folder, CHANGES + sink if of_changes else least(sink))
    assert said.startswith(f"{folder}/pipeline.toml: [sink]: mode = 'apply' is gone. Read the changes with value =")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("url =", "uri ="), "[sink]: 'uri' is not known here; did you mean 'url'?"),
        (('url = "postgresql://me@db.example:5432/shop?sslmode=require"', ""), "[sink]: 'url' is missing"),
        (("postgresql://me@db.example:5432/shop?sslmode=require", "shop"), "the sink's url must read like"),
        (("me@db", "me:hush@db"), "the sink's url holds a password"),
        (('"postgres"', '"postgres"\npath = "out.db"'), "[sink]: 'path' is not known here"),
        (('"postgres"', '"postgres"\nschema = "a b"'), "sink schema 'a b' must be a plain name"),
        (('"postgres"', '"postgres"\ntable = "a-b"'), "sink table 'a-b' must be a plain name"),
        (('"postgres"', '"postgres"\nmode = "upsert"'), "[sink]: 'mode' must be one of results, got 'upsert'"),
        (('"postgres"', '"postgres"\nkey = ["id"]'), "[sink]: 'key' is not known here"),
    ],
)
def test_a_wrong_database_gets_a_sentence_with_the_place_and_no_password(
    folder: Path, change: tuple[str, str], sentence: str
) -> None:
    said = told(folder, least(POSTGRES.replace(*change)))
    assert said.startswith(f"{folder}/pipeline.toml: {sentence}")
    assert "hush" not in said


# The pipeline with it


def sink_of(store: Store) -> str:
    if isinstance(store, PostgresStore):
        return f'format = "postgres"\nurl = "{store.server.url()}"\nschema = "{store.schema}"'
    path = f'path = "{store.path}"'  # type: ignore[attr-defined]
    return f'format = "duckdb"\n{path}' if isinstance(store, DuckDBStore) else path


def test_a_pipeline_makes_the_tables_and_fresh_removes_them(folder: Path, store: Store) -> None:
    from waterclock.spark.fresh import start_over
    from waterclock.spark.pipeline import configured

    text = f'[sink]\n{sink_of(store)}\ntable = "people"\n'
    config = load(write(folder, least(text)))
    start_over(config)
    with closing(configured(config)) as pipeline:
        pipeline.check()
    assert store.tables() == ["people", "people_batches", "people_dead_letters"]
    start_over(config)
    assert store.tables() == []
    assert not config.checkpoint.exists()
