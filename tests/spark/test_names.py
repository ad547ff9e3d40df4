"""A column may be called whatever its source calls it: in every source, in every place of the rules, and in the sink.

The story: a dot or a backtick in any name ended every pipeline: PySpark asks for each column of a frame by its name, and
reads that as an expression. Arrow reads a name that begins with a dot as a path: `.order` was given the values of `order`.
"""

from __future__ import annotations

import ast
import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from tests.spark.pipelines import orders
from tests.spark.test_pipeline_api import expected
from tests.spark.topics import Sender
from waterclock import Rules
from waterclock.errors import UsageError
from waterclock.sinks import SQLiteSink
from waterclock.spark import Pipeline, folder, topics
from waterclock.spark.batch.steps import ResultStep
from waterclock.spark.packing.packs import in_workers
from waterclock.streaming import frames
from waterclock.streaming.toml.config import check_names_of
from waterclock.streaming.toml.steps import Step
from waterclock.testing import Broker

ROLES = ("order", "at", "what", "id", "n", "more", "due")
KINDS = dict(zip(ROLES, ("string", "timestamp", "string", "string", "long", "long", "timestamp"), strict=True))
STRANGE = (
    "a.b", ".order", "order", "x`y", "`", 'q"q', "it's", "a b", " a", "é🕰", "ÄÖ", "__x", "c0", "c1", "frame", "bucket",
    "ts", "origin", "kind", "key", "event", "event_key", "batch_id", "_metadata", "value", "select", "*", "a.*", "[0]",
    "{}", "%s", "$1", "?", "\\", "..", "1", "null", "source", "results",
)  # fmt: skip
SPARK_DIR = Path(frames.__file__).parent
Put = Callable[[Path, pa.Table], Any]  # puts rows somewhere, and gives a source that reads them


def named(turn: int) -> dict[str, str]:
    """A name for each role, and in another turn another one."""
    return {role: STRANGE[(turn * len(ROLES) + place) % len(STRANGE)] for place, role in enumerate(ROLES)}


def rules_of(name: dict[str, str]) -> Rules:
    """Rules that look at every column."""
    asked = f"column({name['more']!r}) is not None and column({name['more']!r}) >= 0"
    return (
        Rules(key=name["order"], time=name["at"], type=name["what"], id=name["id"], sequence=name["n"])
        .deduplicate(within="1 day")
        .order(wait="1 hour")
        .deliver_at(name["due"])
        .delay(after="created", by="30 minutes", emit="remind", where=asked, carry=[name["more"]])
        .expect("paid", after="created", by=name["due"], otherwise="unpaid")
    )


def renamed(rows: list[dict[str, Any]], name: dict[str, str]) -> list[dict[str, Any]]:
    more = [{**row, "more": place % 5 - 1, "due": row["at"]} for place, row in enumerate(rows)]
    return [{name[role]: value for role, value in row.items()} for row in more]


def as_table(rows: list[dict[str, Any]], name: dict[str, str]) -> pa.Table:
    types = {"string": pa.string(), "long": pa.int64(), "timestamp": frames.TIMESTAMP}
    return pa.Table.from_pylist(rows, pa.schema([(name[role], types[kind]) for role, kind in KINDS.items()]))


def columns_of(table: pa.Table) -> dict[str, str]:
    return dict(zip(table.column_names, KINDS.values(), strict=True))


def lines_of(table: pa.Table) -> list[str]:
    return [json.dumps(row, default=lambda moment: moment.isoformat()) for row in table.to_pylist()]


def json_lines(place: Path, table: pa.Table) -> Any:
    (place / "in" / "a").write_text("\n".join(lines_of(table)))
    return folder(place / "in", columns=columns_of(table))


def json_by_spark(place: Path, table: pa.Table) -> Any:
    json_lines(place, table)
    kinds = {column: "bigint" if kind == "long" else kind for column, kind in columns_of(table).items()}
    return folder(place / "in", format="json", columns=kinds, query="SELECT * FROM source")


def csv_by_spark(place: Path, table: pa.Table) -> Any:
    pa.csv.write_csv(table, place / "in" / "a.csv")
    kinds = {column: "bigint" if kind == "long" else kind for column, kind in columns_of(table).items()}
    options = {"header": True, "escape": '"', "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSSX"}
    return folder(place / "in", format="csv", columns=kinds, options=options)


def parquet(place: Path, table: pa.Table) -> Any:
    pq.write_table(table, place / "in" / "a.parquet")
    return folder(place / "in", format="parquet", columns=columns_of(table))


def parquet_by_spark(place: Path, table: pa.Table) -> Any:
    parquet(place, table)
    return folder(place / "in", format="parquet")


def a_dataframe(place: Path, table: pa.Table) -> Any:
    parquet(place, table)
    spark = SparkSession.getActiveSession()
    assert spark is not None
    path = str(place / "in")
    return spark.readStream.schema(spark.read.parquet(path).schema).parquet(path)


SOURCES: list[Put] = [json_lines, json_by_spark, csv_by_spark, parquet, parquet_by_spark, a_dataframe]


def run(spark: SparkSession, source: Any, rules: Rules, place: Path) -> None:
    sink = SQLiteSink(place / "out.db")
    with Pipeline(source, rules, sink, place / "checkpoint", watermark_delay="1 hour") as pipeline:
        assert pipeline.run(spark).totals.get("dead_letters", 0) == 0


def told(place: Path, *columns: str, where: str = "1") -> Counter[tuple[Any, ...]]:
    listed = ", ".join('"' + column.replace('"', '""') + '"' for column in columns)
    with closing(sqlite3.connect(place / "out.db")) as db:
        return Counter(db.execute(f"SELECT {listed} FROM results WHERE {where}").fetchall())


def check(rows: list[dict[str, Any]], name: dict[str, str], place: Path) -> None:
    """What the rules say in process; and each event with the values of its own columns."""
    assert told(place, "kind", "key", "rule", "due", "source_id") == expected(rows, rules_of(name))
    roles = [name[role] for role in ("order", "what", "id", "n", "more")]
    events = [result.event for result in rules_of(name).run(rows, "1 hour") if result.kind == "event"]
    of_events = told(place, *(f"event_{one}" for one in roles), where="kind = 'event'")
    assert of_events == Counter(tuple(event[one] for one in roles) for event in events)


@pytest.mark.spark
@pytest.mark.parametrize(("turn", "put"), list(enumerate(SOURCES)), ids=[each.__name__ for each in SOURCES])
def test_columns_of_any_name_are_read_ruled_and_written(
    spark: SparkSession, tmp_path: Path, turn: int, put: Put
) -> None:
    name = named(turn)
    rows = renamed(orders(4), name)
    (tmp_path / "in").mkdir()
    run(spark, put(tmp_path, as_table(rows, name)), rules_of(name), tmp_path)
    check(rows, name, tmp_path)


@pytest.mark.spark
@pytest.mark.parametrize("query", [None, "SELECT * FROM source"], ids=["as they are", "through a query"])
def test_of_records_of_topics_too(spark: SparkSession, tmp_path: Path, kafka_broker: Broker, query: str | None) -> None:
    name, topic = named(7 if query else 8), "named-by-a-query" if query else "named"
    kafka_broker.create_topic(topic, 1)
    rows = renamed(orders(4), name)
    table = as_table(rows, name)
    Sender(kafka_broker.bootstrap, topic).put(*lines_of(table))
    more = {} if query is None else {"query": query}
    run(spark, topics(kafka_broker.bootstrap, [topic], columns=columns_of(table), **more), rules_of(name), tmp_path)
    check(rows, name, tmp_path)


@pytest.mark.spark
def test_on_spark_takes_and_gives_columns_of_any_name(spark: SparkSession, tmp_path: Path) -> None:
    name = named(9)
    rows = renamed(orders(4), name)
    pq.write_table(as_table(rows, name), tmp_path / "a.parquet")
    frame = spark.read.parquet(str(tmp_path))
    found = frame.transform(rules_of(name).on_spark()).collect()
    results = list(rules_of(name).run(rows, "1 hour"))
    assert Counter((r.kind, r.key, r.rule, r.source_id) for r in found) == Counter(
        (r.kind, r.key, r.rule, r.source_id) for r in results
    )
    one = next(r for r in found if r.kind == "event")
    assert list(one.event.asDict()) == list(name.values())
    with pytest.raises(UsageError, match=r"rules\.on_spark\(\): two columns are called .* rename one"):
        frame.select("*", frame[f"`{name['n'].replace('`', '``')}`"]).transform(rules_of(name).on_spark())


@pytest.mark.spark
def test_a_query_over_results_sees_events_with_columns_of_any_name(spark: SparkSession) -> None:
    event = {name: f"of {name}" for name in STRANGE}
    results = pa.table({"key": ["k"], "event": pa.array([event])})
    named = ", ".join(f"event.`{name.replace('`', '``')}` AS `{name.replace('`', '``')}`" for name in STRANGE)
    step = ResultStep(Step(f"SELECT {named} FROM results", None, Path.cwd()), spark, results.schema)
    assert step.of(spark, results).to_pylist() == [event]


@pytest.mark.spark
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(names=st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=6, unique=True))
def test_a_worker_sees_each_column_under_its_name_whatever_that_is(spark: SparkSession, names: list[str]) -> None:
    frame = spark.range(1).toDF("a").selectExpr(*(f"{place} AS c{place}" for place in range(len(names)))).toDF(*names)

    def seen(batches: Any) -> Any:
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"seen": [json.dumps(batch.to_pylist()[0])]})

    ((found,),) = in_workers(frame, seen, "seen string").collect()
    assert json.loads(found) == {name: place for place, name in enumerate(names)}


def test_a_frame_gives_the_column_that_is_asked_for_and_not_the_one_that_arrow_reads_into_its_name() -> None:
    event = pa.array([{"order": 1, ".order": 2, "a.b": 3}])
    asked = ["event_.order", "event_a.b", "event_order"]
    assert frames.chosen(pa.table({"kind": ["event"], "event": event}), asked).to_pylist() == [
        {"kind": "event", "event_.order": 2, "event_a.b": 3, "event_order": 1}
    ]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["a", "A"], "'a' and 'A' differ by case only, which SQL does not tell apart"),
        (["a", "a"], "two columns are called 'a': rename one, or leave it out"),
        ([" "], "a column's name must be printable and not empty, got ' '"),
        ([""], "a column's name must be printable and not empty, got ''"),
        (["a\x00"], r"a column's name must be printable and not empty, got 'a\x00'"),
        (["_Row_id_file"], "'_Row_id_file' cannot be used: names that start with _row_id are waterclock's own"),
    ],
)
def test_names_that_no_table_could_hold_are_refused_in_a_sentence(names: list[str], why: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_names_of(names, "here")
    assert str(caught.value) == f"here: {why}"
    check_names_of(STRANGE)


def test_no_name_of_a_users_is_given_to_what_reads_it_as_an_expression() -> None:
    for file in SPARK_DIR.rglob("*.py"):
        for call in (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)):
            called = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            place = f"{file.name}:{call.lineno}"
            assert called != "mapInArrow" or file.name == "packs.py", f"{place}: in_workers() does it by place"
            made = [argument for argument in call.args if isinstance(argument, ast.JoinedStr)]
            assert called not in ("col", "getField", "drop", "selectExpr") or not made, (
                f"{place}: by_place() has columns"
            )
            assert called != "struct_field" or isinstance(call.args[1], ast.List), f"{place}: Arrow reads it as a path"
