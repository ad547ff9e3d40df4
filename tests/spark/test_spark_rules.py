"""The same rules give the same answers in process, on a Spark batch and on a Spark stream."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.pipelines import orders
from waterclock import Rules
from waterclock.errors import UsageError

pytestmark = pytest.mark.spark

ORDERS = (
    Rules(key="order", time="at", type="what", id="id", sequence="n")
    .deduplicate(within="1 day")
    .order(wait="1 hour")
    .delay(after="created", by="30 minutes", emit="remind")
    .expect("paid", after="created", within="20 minutes", otherwise="unpaid")
)
BY_TIME = (
    Rules(key="order", time="at", type="what", id="id").deduplicate(within="1 day").order().quiet("1 hour", "quiet")
)
DDL = "order string, at timestamp, what string, id string, n long"


def told(rows: Any) -> Counter[tuple[Any, ...]]:
    return Counter((r.kind, r.key, r.rule, r.due.replace(tzinfo=None), r.source_id, r.result_id) for r in rows)


def on_a_stream(spark: SparkSession, rows: list[dict[str, Any]], rules: Rules, folder: Path) -> list[Any]:
    """The results of a stream of four files and a last one far in the future."""
    end = {"order": "end", "at": rows[0]["at"].replace(year=2099), "what": "end", "id": "end", "n": 1}
    size = -(-len(rows) // 4)
    for number, part in enumerate([*(rows[i : i + size] for i in range(0, len(rows), size)), [end]]):
        spark.createDataFrame(part, DDL).coalesce(1).write.parquet(str(folder / f"in/{number}"))
    stream = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).option("recursiveFileLookup", "true")
    taken: list[Any] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        taken.extend(batch.collect())

    results = stream.parquet(str(folder / "in")).transform(rules.on_spark("1 hour"))
    query = results.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / "checkpoint")).start()
    query.processAllAvailable()
    query.stop()
    return [row for row in taken if row.key != "end"]


@pytest.mark.parametrize("rules", [ORDERS, BY_TIME], ids=["by sequence", "by time"])
def test_a_batch_frame_gives_what_the_rules_give_in_process(spark: SparkSession, rules: Rules) -> None:
    rows = orders(60)
    found = spark.createDataFrame(rows, DDL).transform(rules.on_spark()).collect()
    assert told(found) == told(rules.run(rows, "1 hour"))


@pytest.mark.parametrize(
    "rules", [ORDERS, pytest.param(BY_TIME, marks=pytest.mark.long(seconds=15))], ids=["by sequence", "by time"]
)
def test_a_stream_gives_what_the_rules_give_in_process(spark: SparkSession, rules: Rules, tmp_path: Path) -> None:
    rows = orders(60)
    assert told(on_a_stream(spark, rows, rules, tmp_path)) == told(rules.run(rows, "1 hour"))


def test_a_released_event_comes_back_with_all_its_columns(spark: SparkSession) -> None:
    rows = orders(5)
    found = spark.createDataFrame(rows, DDL).transform(ORDERS.on_spark()).where("kind = 'event'").collect()
    clean = {row["id"]: row for row in rows}
    assert found
    assert [r.event.asDict() for r in found] == [{**clean[r.source_id], "at": r.event.at} for r in found]


def test_a_column_that_is_missing_is_refused_before_anything_runs(spark: SparkSession) -> None:
    events = spark.createDataFrame([], DDL.replace("what string", "kind string"))
    with pytest.raises(UsageError, match=r"the rules name the column 'what'; the events have order, at, kind, id, n"):
        events.transform(ORDERS.on_spark())


def test_a_time_that_is_no_timestamp_is_refused_with_the_remedy(spark: SparkSession) -> None:
    events = spark.createDataFrame([], DDL.replace("at timestamp", "at long"))
    with pytest.raises(UsageError, match=r"the column 'at' must be a timestamp, it is bigint: cast it first"):
        events.transform(ORDERS.on_spark())


def test_rows_without_an_id_are_told_apart_by_all_their_columns(spark: SparkSession) -> None:
    rows = [{**row, "id": None} for row in orders(20)]
    rules = BY_TIME
    found = spark.createDataFrame(rows, DDL).transform(rules.on_spark()).collect()
    kept = Counter((r.kind, r.key, r.rule, r.due) for r in found)
    assert kept == Counter((r.kind, r.key, r.rule, r.due.replace(tzinfo=None)) for r in rules.run(rows, "1 hour"))


def test_rows_that_differ_by_a_microsecond_are_two(spark: SparkSession) -> None:
    # Spark's own JSON has milliseconds: the second row was dropped as a duplicate of the first
    texts = ["2026-01-01 00:00:00.100001", "2026-01-01 00:00:00.100002"]
    events = spark.createDataFrame([("o", text, text) for text in texts], "k string, at string, other string")
    whole = events.selectExpr("k", "cast('2026-01-01' AS timestamp) AS at", "cast(other AS timestamp_ntz) AS other")
    for frame in (events.selectExpr("k", "cast(at AS timestamp) AS at"), whole):
        found = frame.transform(Rules(key="k", time="at").deduplicate(within="1 day").on_spark()).collect()
        assert len({row.source_id for row in found}) == 2


def test_a_column_of_waterclocks_own_name_is_refused(spark: SparkSession) -> None:
    events = spark.sql("SELECT 'o' AS k, current_timestamp() AS at, 1 AS _Row_Id")
    with pytest.raises(UsageError, match=r"the events have a column '_Row_Id', which is waterclock's own: rename it"):
        events.transform(Rules(key="k", time="at").order(wait="1 hour").on_spark())


@pytest.mark.parametrize(
    ("at", "n", "why"),
    [("NULL", 1, "the time 'at'"), ("now()", "NULL", "the sequence 'n'"), ("now()", 0, "the sequence 'n'")],
)
def test_a_row_that_the_rules_cannot_take_is_told_with_the_remedy(
    spark: SparkSession, at: str, n: Any, why: str
) -> None:
    events = spark.sql(f"SELECT 'o' AS k, cast({at} AS timestamp) AS at, cast({n} AS bigint) AS n")
    rules = Rules(key="k", time="at", sequence="n").order(wait="1 hour")
    with pytest.raises(
        PythonException, match=rf"UsageError: {why} of a row with a key .*: filter such rows away first"
    ):
        events.transform(rules.on_spark()).collect()


def test_a_row_without_a_key_that_says_more_than_its_time_is_no_heartbeat(spark: SparkSession) -> None:
    rules = Rules(key="k", time="at", id="i").order(wait="1 hour")
    beat = spark.sql("SELECT cast(NULL AS string) AS k, timestamp'2026-01-01' AS at, cast(NULL AS string) AS i")
    assert beat.transform(rules.on_spark()).collect() == []
    with pytest.raises(
        PythonException, match=r"UsageError: the key 'k' of a row is null, and the row says more than a time .in 'i'."
    ):
        beat.unionByName(beat.selectExpr("k", "at", "'x' AS i")).transform(rules.on_spark()).collect()


@pytest.mark.parametrize("column", ["v", "struct(1 AS a, v) AS s", "array(v) AS a", "map('a', v) AS m"])
def test_a_variant_is_refused_before_anything_runs(spark: SparkSession, column: str) -> None:
    events = spark.sql("SELECT 'o' AS k, timestamp'2026-01-01' AS at, parse_json('1') AS v").selectExpr(
        "k", "at", column
    )
    with pytest.raises(UsageError, match=r"the column '\w' is .*variant.*, and a VARIANT that is null does not come"):
        events.transform(Rules(key="k", time="at").on_spark())
