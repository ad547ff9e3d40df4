"""Rules that ask for more columns of an event: the same answers in process, on a Spark batch and on a Spark stream."""

from __future__ import annotations

import random
from collections import Counter
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.pipelines import orders
from waterclock import Rules
from waterclock.errors import UsageError

pytestmark = pytest.mark.spark

COLUMNS = Rules(key="order", time="at", type="what", id="id")
ASKING = {
    "conditions": COLUMNS.expect(
        "paid",
        after="created",
        within="30 minutes",
        otherwise="unpaid",
        where="amount > 1.5",
        met_where="n is not None",
    ).delay("shipped", "1 hour", "ask", where="at > '2026-01-01T03:00:00Z' and not (price == 0.1 or flag)"),
    "carried columns": COLUMNS.expect(
        "paid", after="created", within="20 minutes", otherwise="unpaid", carry=["amount", "price", "at"]
    ).quiet("1 hour", "calm", carry=["flag"]),
    "ties": COLUMNS.order(tie=["n", "flag", "promised"]).expect(
        "paid", after="created", within="20 minutes", otherwise="unpaid"
    ),
    "several types": COLUMNS.expect(
        ["paid", "shipped"], after=["created", "paid"], within="20 minutes", otherwise="stands still"
    ).delay(["created", "shipped"], "5 minutes", "tell"),
    "a deadline from a column": COLUMNS.expect("paid", after="created", by="promised", otherwise="too late"),
}
DDL = (
    "order string, at timestamp, what string, id string, n long, "
    "promised timestamp, amount double, price decimal(9, 4), flag boolean"
)


def rows(keys: int) -> list[dict[str, Any]]:
    """Orders with a column of each kind, null in some of them."""
    return [
        {
            **row,
            "promised": row["at"] + timedelta(minutes=20),
            "amount": [None, 1.5, 1.6, float("nan")][place % 4],
            "price": [Decimal("0.1"), None, Decimal(1)][place % 3],
            "flag": [True, False, None][place // 2 % 3],
        }
        for place, row in enumerate(orders(keys))
    ]


def told(results: Any) -> Counter[tuple[Any, ...]]:
    return Counter(
        (r.kind, r.key, r.rule, r.due.replace(tzinfo=None), r.source_id, r.result_id, event_of(r)) for r in results
    )


def event_of(result: Any) -> str:
    """What stands in the event of a result, without nulls; in process an event has the columns that its rule carries."""
    event = result.event if result.event is None or isinstance(result.event, dict) else result.event.asDict()
    return repr(sorted((name, shown(value)) for name, value in (event or {}).items() if value is not None))


def shown(value: Any) -> str:
    if isinstance(value, Decimal):
        return str(value.normalize())
    return str(value.replace(tzinfo=None)) if isinstance(value, datetime) else repr(value)


def streamed(spark: SparkSession, events: list[dict[str, Any]], rules: Rules, folder: Path) -> list[Any]:
    """The results of a stream of two files and a last one far in the future."""
    end = {**events[0], "order": "end", "at": events[0]["at"].replace(year=2099), "what": "end", "id": "end"}
    half = len(events) // 2
    for number, part in enumerate((events[:half], events[half:], [end])):
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


@pytest.mark.parametrize("rules", ASKING.values(), ids=ASKING)
def test_a_batch_frame_gives_what_the_rules_give_in_process(spark: SparkSession, rules: Rules) -> None:
    events = rows(20)
    found = spark.createDataFrame(events, DDL).transform(rules.on_spark()).collect()
    assert told(found) == told(rules.run(events, "1 hour"))


@pytest.mark.long(seconds=15)
@pytest.mark.parametrize("rules", ASKING.values(), ids=ASKING)
def test_a_stream_gives_what_the_rules_give_in_process(spark: SparkSession, rules: Rules, tmp_path: Path) -> None:
    events = rows(20)
    assert told(streamed(spark, events, rules, tmp_path)) == told(rules.run(events, "1 hour"))


@pytest.mark.parametrize(
    ("rules", "sentence"),
    [
        (COLUMNS.expect("a", after="b", by="n", otherwise="x"), "the column 'n' must be a timestamp, it is bigint"),
        (COLUMNS.order(tie=["amount"]), "the column 'amount' must be a text, an integer, a boolean or a timestamp"),
        (COLUMNS.delay("a", 1, "x", where="what > 5"), "the condition 'what > 5' compares the column 'what' .a text."),
        (
            COLUMNS.quiet(1, "x", carry=["list"]),
            "the column 'list' is array<bigint>, which a result cannot carry: carry a column with a text of it",
        ),
        (
            COLUMNS.quiet(1, "x", where="list == list"),
            "cannot look at the column 'list': .* compared with None by `is None`",
        ),
        (COLUMNS.quiet(1, "x", where="day > at"), "compares the column 'day' .a date. with the column 'at' .a time."),
        (COLUMNS.quiet(1, "x", where="bytes == 'x'"), "compares the column 'bytes' .a binary. with 'x' .a text."),
        (COLUMNS.expect("a", after="b", by="due", otherwise="x"), "the rules name the column 'due'; the events have"),
    ],
)
def test_a_column_that_does_not_fit_is_refused_before_anything_runs(
    spark: SparkSession, rules: Rules, sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        spark.createDataFrame([], f"{DDL}, list array<long>, day date, bytes binary").transform(rules.on_spark())


def test_orders_whose_events_bear_one_time_are_paid(spark: SparkSession) -> None:
    """By id as text, 487 of 1,000 were not."""
    chance = random.Random(7)
    rules = COLUMNS.expect("paid", after="created", within="1 hour", otherwise="unpaid")
    events = [
        {"order": f"o{order}", "at": datetime(2026, 1, 1), "what": what, "id": f"{chance.getrandbits(64):x}"}
        for order in range(1000)
        for what in ("created", "paid")
    ]
    found = spark.createDataFrame(events, "order string, at timestamp, what string, id string").transform(
        rules.on_spark()
    )
    assert Counter(row.kind for row in found.collect()) == {"event": 2000, "met": 1000}


@pytest.mark.long(seconds=15)
def test_a_stream_has_a_watermark_before_1970_too(spark: SparkSession, tmp_path: Path) -> None:
    rules = COLUMNS.expect("paid", after="created", within="1 minute", otherwise="unpaid")
    events = [{**row, "at": row["at"].replace(year=1960)} for row in rows(20)]
    found = [result for result in streamed(spark, events, rules, tmp_path) if result.kind == "expired"]
    assert 1960 in {result.emitted_at.year for result in found}
    assert all(result.emitted_at >= result.due for result in found)
