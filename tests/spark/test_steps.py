"""Steps of the user's own between source and rules, and between results and sink: SQL, a function, and what is refused."""

from __future__ import annotations

import gzip
import sqlite3
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tests.spark.dataframe.test_reader import CSV, REST, letters, lines, run
from tests.spark.pipelines import make_pipeline, orders, table, write_files
from tests.spark.test_pipeline_api import COLUMNS, ORDERS, TOLD, expected
from waterclock.errors import StateMismatch, UsageError, WaterclockError
from waterclock.sinks import SQLiteSink
from waterclock.spark import Pipeline, folder, reshaped
from waterclock.spark.batch.steps import SOURCE, ResultStep, applied, nothing
from waterclock.streaming.toml.steps import Step

pytestmark = pytest.mark.spark
QUERY = """query = '''SELECT o AS `order`, at, coalesce(name, what) AS what, id, n
FROM source LEFT JOIN names USING (what)'''
"""
DECLARED = '[source.columns]\no = "string"\nat = "timestamp"\nwhat = "string"\nid = "string"\nn = "bigint"\n'
COLUMNS_TOML = '[source.columns]\norder = "string"\nat = "timestamp"\nwhat = "string"\nid = "string"\nn = "long"\n'
MODULE = """
from pyspark.sql import functions as F

def upper(text):
    return text.upper()

def opened(rows):
    return rows.withColumn("what", F.when(F.col("what") == "created", "opened").otherwise(F.col("what")))

def broken(rows):
    return rows.limit(1 // 0)

def nothing(rows):
    pass

def shouted(rows):
    return rows.withColumn("key", F.udf(upper)("key"))
"""


def a_pipeline(place: Path, source: str, sink: str = "") -> Path:
    (place / "in").mkdir(exist_ok=True)
    (place / "own_steps.py").write_text(MODULE)
    (place / "own_wrong.py").write_text("1 / 0")
    (place / "pipeline.toml").write_text(source + REST + sink)
    return place / "pipeline.toml"


def named(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What QUERY makes of what came in."""
    return [{**row, "what": {"erstellt": "created"}.get(row["what"], row["what"])} for row in rows]


@pytest.fixture
def names(spark: SparkSession) -> Any:
    spark.createDataFrame([("erstellt", "created")], "what string, name string").createOrReplaceTempView("names")
    yield
    spark.catalog.dropTempView("names")


def test_a_query_joins_and_renames_before_the_rules_and_bad_lines_pass_it_by(
    spark: SparkSession, tmp_path: Path, names: None
) -> None:
    rows = [{**row, "what": "erstellt" if row["what"] == "created" else row["what"]} for row in orders(20)]
    file = a_pipeline(tmp_path, CSV.replace("[source.options]", QUERY + "[source.options]") + DECLARED)
    text = lines(rows).replace("order,", "o,") + "o1,yesterday,paid,x,1\n"
    (tmp_path / "in" / "a.csv.gz").write_bytes(gzip.compress(text.encode()))
    run(spark, file)
    assert Counter(table(tmp_path, TOLD)) == expected(named(rows))
    assert [(Path(path).name, text) for path, _, text in letters(tmp_path)] == [("a.csv.gz", "o1,yesterday,paid,x,1")]
    file.write_text(file.read_text().replace("coalesce(name, what)", "coalesce(what, name)"))
    with pytest.raises(StateMismatch, match=r"the pipeline changed .*\(query\)"):
        run(spark, file)


@pytest.mark.long(seconds=6)
def test_a_function_beside_the_file_works_on_both_sides_and_may_use_functions_of_its_module(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = orders(10)
    sink = """query = "SELECT key, kind, rule, due FROM results WHERE kind <> 'event'"\ntransform = "own_steps:shouted"\n"""
    file = a_pipeline(tmp_path, f'[source]\npath = "in"\ntransform = "own_steps:opened"\n{COLUMNS_TOML}', sink)
    make_pipeline(tmp_path / "other", rows, files=2)
    (tmp_path / "in").rmdir()
    (tmp_path / "other" / "in").rename(tmp_path / "in")
    run(spark, file)
    changed = [{**row, "what": "opened" if row["what"] == "created" else row["what"]} for row in rows]
    told = [r for r in ORDERS.run(changed, "1 hour") if r.kind != "event"]
    assert Counter(table(tmp_path, "key, kind, rule, due")) == Counter(
        (r.key.upper(), r.kind, r.rule, f"{r.due:%Y-%m-%d %H:%M:%S.%f}") for r in told
    )
    with closing(sqlite3.connect(tmp_path / "out.db")) as db:
        columns = [name for _, name, *_ in db.execute("PRAGMA table_info(results)")]
    assert columns == ["batch_id", "key", "kind", "rule", "due"]


@pytest.mark.long(seconds=5)
def test_in_python_a_step_may_be_a_function_and_its_sink_any(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(6)
    make_pipeline(tmp_path, rows, files=1)
    source = folder(tmp_path / "in", columns=COLUMNS, transform=lambda rows: rows.where("what <> 'shipped'"))
    sink = reshaped(SQLiteSink(tmp_path / "out.db"), query="SELECT key, due FROM results WHERE kind = 'met'")
    with Pipeline(source, ORDERS, sink, tmp_path / "checkpoint", watermark_delay="1 hour") as pipeline:
        pipeline.run(spark)
    told = [r for r in ORDERS.run([row for row in rows if row["what"] != "shipped"], "1 hour") if r.kind == "met"]
    assert Counter(table(tmp_path, "key")) == Counter((r.key,) for r in told)


def test_results_with_an_empty_chunk_between_others_go_through_a_step_whole(spark: SparkSession) -> None:
    # Spark reads a table of Arrow up to the first such chunk: half of a batch was lost, in silence
    rows = pa.table({"kind": ["met", "event", "met"], "key": ["a", "b", "c"]})
    chunks = pa.concat_tables([rows.slice(0, 1), rows.slice(0, 0), rows.slice(1)])
    step = ResultStep(Step("SELECT key FROM results WHERE kind = 'met'", None, Path.cwd()), spark, rows.schema)
    assert step.of(spark, chunks).to_pylist() == [{"key": "a"}, {"key": "c"}]


def test_a_column_that_a_query_makes_without_nulls_is_null_where_a_result_has_no_event(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Spark says of such a column that it is never null, and Arrow refused the whole batch
    query = "SELECT *, 1 AS one FROM source"
    file = a_pipeline(tmp_path, f'[source]\npath = "in"\nquery = "{query}"\n{COLUMNS_TOML}')
    (tmp_path / "in").rmdir()
    make_pipeline(tmp_path / "other", orders(6), files=1)
    (tmp_path / "other" / "in").rename(tmp_path / "in")
    run(spark, file)
    assert set(table(tmp_path, "kind IN ('event', 'late'), event_one")) == {(1, 1), (0, None)}


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ('query = "SELECT what, count(*) AS n FROM source GROUP BY what"', r"behind source holds an aggregation"),
        ('query = "SELECT *, rand() AS x FROM source"', r"behind source depends on chance"),
        ('query = "SELECT nothing FROM source"', r"cannot be made: \[UNRESOLVED_COLUMN"),
        ('query = "SELECT 1 AS a"', r"does not read source: write SELECT"),
        ('query = "WITH a AS (SELECT * FROM source) SELECT 1 AS a"', r"does not read source: write SELECT"),
        ('query = "SELECT id FROM source"', r"the rules name the column 'order'; the events have id"),
        ('transform = "no_such_module:f"', r"names the module 'no_such_module', which cannot be imported .*beside the"),
        ('transform = "own_wrong:f"', r"names the module 'own_wrong', which failed with ZeroDivisionError: .*Mend it"),
        ('query = "SELECT *, id FROM source"', r"the source: two columns are called 'id': rename one, or leave it out"),
        ('transform = "own_steps:broken"', r"'transform' failed with ZeroDivisionError: "),
        ('transform = "own_steps:nothing"', r"must give a DataFrame, its 'transform' gave NoneType"),
        ('transform = "own_steps:missing"', r"names the function 'missing', and the module 'own_steps' has none"),
    ],
)
def test_a_step_that_cannot_be_or_keeps_state_is_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, step: str, told: str
) -> None:
    file = a_pipeline(tmp_path, f'[source]\npath = "in"\n{step}\n{COLUMNS_TOML}')
    with pytest.raises(UsageError, match=told):
        run(spark, file)
    assert not (tmp_path / "pipeline-checkpoint" / "offsets").exists()


@pytest.mark.long(seconds=4)
def test_a_value_that_a_function_of_the_query_cannot_take_ends_the_run_and_nobody_is_told_to_try_again(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = a_pipeline(
        tmp_path, f'[source]\npath = "in"\nquery = "SELECT *, 1 / (n - 1) AS x FROM source"\n{COLUMNS_TOML}'
    )
    write_files(orders(2), tmp_path / "in", 1)
    with pytest.raises(
        WaterclockError, match=r"\[DIVIDE_BY_ZERO\].* It would end so again: .*\(try_\.\.\.\), with --fresh"
    ):
        run(spark, file)
    assert "SQLQueryContextLogger" not in capfd.readouterr().err  # PySpark's own story of it, in JSON, came first


def test_a_step_over_results_keeps_no_state_either(spark: SparkSession, tmp_path: Path) -> None:
    query = 'query = "SELECT kind, count(*) AS n FROM results GROUP BY kind"\n'
    file = a_pipeline(tmp_path, f'[source]\npath = "in"\n{COLUMNS_TOML}', query)
    with pytest.raises(UsageError, match=r"the step in front of the sink, over results, holds an aggregation"):
        run(spark, file)


@pytest.mark.long(seconds=4)
def test_a_view_of_the_users_that_is_called_as_the_rows_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    file = a_pipeline(tmp_path, f'[source]\npath = "in"\nquery = "SELECT * FROM source; "\n{COLUMNS_TOML}')
    write_files(orders(2), tmp_path / "in", 1)
    spark.createDataFrame([(1,)], "a int").createTempView("source")
    try:
        run(spark, file)
        assert Counter(table(tmp_path, TOLD)) == expected(orders(2))
        assert [row.a for row in spark.table("source").collect()] == [1]
    finally:
        spark.catalog.dropTempView("source")


def test_queries_of_pipelines_that_start_at_one_moment_do_not_know_each_other(spark: SparkSession) -> None:
    # one name of a view for all of them: the second one was refused, "the session has a view 'source' already"
    all_there = threading.Barrier(3, timeout=60)

    class Rows:
        """A stream that, once SQL knows its rows, waits for the others."""

        isStreaming, sparkSession = True, spark

        def __init__(self, column: str) -> None:
            self._rows = nothing(spark, StructType().add(column, "integer"))

        def createTempView(self, view: str) -> None:
            self._rows.createTempView(view)
            all_there.wait()

    def columns(name: str) -> list[str]:
        query = f"WITH more AS (SELECT `{name}`, 1 AS one FROM source) SELECT * FROM more -- all of it"
        return applied(Step(query, None, Path.cwd()), Rows(name), SOURCE).columns  # type: ignore[no-any-return]

    before = spark.catalog.listTables()
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(columns, "abc")) == [[name, "one"] for name in "abc"]
    assert spark.catalog.listTables() == before
