"""The table [sink] of a pipeline's file: databases and mirrors, what is taken, what is refused, and the sink it makes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.sinks.stores import PostgresStore, Store
from tests.spark.least_pipeline import LEAST
from waterclock.errors import UsageError
from waterclock.sinks import Mirror
from waterclock.streaming.toml.config import load
from waterclock.streaming.toml.sink import PostgresDatabase, SQLiteFile

CHANGES = """
[source]
path = "in"
[source.columns]
table = "string"
type = "string"
ts = "timestamp"
sequence = "long"
xoffset = "int"
id = "long"
name = "string"
rate = "double"
[rules]
key = "id"
time = "ts"
type = "type"
"""
APPLY = """
[sink]
path = "out.db"
table = "people"
mode = "apply"
columns = ["id", "name"]
key = ["id"]
position = ["sequence", "xoffset"]
only = { table = "people" }
"""
POSTGRES = """
[sink]
format = "postgres"
url = "postgresql://me@db.example:5432/shop?sslmode=require"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    return tmp_path


def write(folder: Path, text: str) -> Path:
    file = folder / "pipeline.toml"
    file.write_text(text, encoding="utf-8")
    return file


def least(sink: str) -> str:
    return LEAST[: LEAST.index("[sink]")] + sink


def told(folder: Path, text: str) -> str:
    with pytest.raises(UsageError) as caught:
        load(write(folder, text))
    return str(caught.value)


def test_a_database_gets_the_defaults_that_are_promised(folder: Path) -> None:
    url = "postgresql://me@db.example:5432/shop?sslmode=require"
    assert load(write(folder, least(POSTGRES))).sink == PostgresDatabase(url, "public", "results")


def test_everything_that_is_said_of_a_database_is_taken(folder: Path) -> None:
    sink = (
        'sink = { format = "postgres", url = "postgresql:///shop", schema = "ours", table = "fines", mode = "results" }'
    )
    text = sink + least("")
    assert load(write(folder, text)).sink == PostgresDatabase("postgresql:///shop", "ours", "fines")


def test_a_mirror_is_taken_for_either_database(folder: Path) -> None:
    mirror = Mirror(("id", "name"), ("id",), ("sequence", "xoffset"), "type", {"table": "people"})
    assert load(write(folder, CHANGES + APPLY)).sink == SQLiteFile(folder / "out.db", "people", mirror)
    text = APPLY.replace('path = "out.db"', 'format = "postgres"\nurl = "postgres://h/d"')
    assert load(write(folder, CHANGES + text)).sink == PostgresDatabase("postgres://h/d", "public", "people", mirror)


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
        (('"postgres"', '"postgres"\nmode = "upsert"'), "[sink]: 'mode' must be one of results, apply, got 'upsert'"),
        (('"postgres"', '"postgres"\nkey = ["id"]'), "[sink]: 'key' is not known here"),
    ],
)
def test_a_wrong_database_gets_a_sentence_with_the_place_and_no_password(
    folder: Path, change: tuple[str, str], sentence: str
) -> None:
    said = told(folder, least(POSTGRES.replace(*change)))
    assert said.startswith(f"{folder}/pipeline.toml: {sentence}")
    assert "hush" not in said


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (('key = ["id"]', ""), "[sink]: 'key' is missing"),
        (('key = ["id"]', 'key = "id"'), "[sink]: 'key' must be a list, got 'id'"),
        (('key = ["id"]', "key = [1]"), "[sink]: 'key' must be a list of columns' names, got [1]"),
        (('key = ["id"]', "key = []"), "[sink]: 'key' must be a list of columns' names, got []"),
        (('key = ["id"]', 'key = ["id", "id"]'), "[sink]: the mirror's 'key' must name columns, each once"),
        (('key = ["id"]', 'key = ["ts"]'), "[sink]: the mirror's key 'ts' must be one of its columns, id, name"),
        (('columns = ["id", "name"]', 'columns = ["id", "nme"]'), "[sink]: the mirror names the column 'nme'"),
        (('["sequence", "xoffset"]', '["ts"]'), "[sink]: the mirror's position 'ts' must be a long or an int"),
        (('table = "people" }', "table = 5 }"), "[sink]: 'only' must give a text for 'table', got 5"),
        (('table = "people" }', 'id = "5" }'), "[sink]: the mirror looks at the text in 'id'"),
        (('mode = "apply"', 'mode = "results"'), "[sink]: 'key' is not known here"),
        (
            ('key = ["id"]', 'key = ["rate"]\noperation = "type"'),
            "[sink]: the mirror's key 'rate' must be one of its columns",
        ),
    ],
)
def test_a_wrong_mirror_gets_a_sentence_with_the_place(folder: Path, change: tuple[str, str], sentence: str) -> None:
    assert told(folder, CHANGES + APPLY.replace(*change)).startswith(f"{folder}/pipeline.toml: {sentence}")


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ('order = { wait = "1 h" }', "order"),
        ('deliver_at = { column = "ts" }', "deliver_at"),
        ('delay = [{ after = "insert", by = "1 h", emit = "x" }]', "delay"),
        ('expect = [{ type = "delete", after = "insert", within = "1 h", otherwise = "x" }]', "expect"),
        ('session = [{ gap = "1 h", emit = "x" }]', "quiet or session"),
    ],
)
def test_a_mirror_has_no_place_for_results_of_rules(folder: Path, rule: str, name: str) -> None:
    assert f"so {name} in [rules] would do nothing" in told(folder, f"{CHANGES}{rule}\n{APPLY}")


def test_a_mirror_keeps_events_so_they_cannot_be_switched_off(folder: Path) -> None:
    assert "and events = false in [rules] leaves them out" in told(folder, f"{CHANGES}events = false\n{APPLY}")


def test_duplicates_may_be_dropped_before_a_mirror(folder: Path) -> None:
    assert load(write(folder, f'{CHANGES}deduplicate = {{ within = "1 h" }}\n{APPLY}')).rules.within_us == 3_600_000_000


# The pipeline with it


def sink_of(store: Store) -> str:
    if isinstance(store, PostgresStore):
        return f'format = "postgres"\nurl = "{store.server.url()}"\nschema = "{store.schema}"'
    return f'path = "{store.path}"'  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", ["results", "apply"])
def test_a_pipeline_makes_the_tables_and_fresh_removes_them(folder: Path, store: Store, mode: str) -> None:
    from waterclock.spark.fresh import start_over
    from waterclock.spark.pipeline import configured

    text = APPLY if mode == "apply" else '[sink]\npath = "out.db"\ntable = "people"\n'
    config = load(write(folder, CHANGES + text.replace('path = "out.db"', sink_of(store))))
    start_over(config)
    with closing(configured(config)) as pipeline:
        pipeline.check()
    ours = ["people", "people_batches", "people_dead_letters"]
    assert store.tables() == sorted([*ours, *(["people_positions"] if mode == "apply" else [])])
    start_over(config)
    assert store.tables() == []
    assert not config.checkpoint.exists()
