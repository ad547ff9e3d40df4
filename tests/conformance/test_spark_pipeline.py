"""waterclock's pipelines on topics, by both ways, against either broker: the contract of spark/topic_contract.py.

Both ways run in one session, which has the jars of Spark's own connector.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.pipelines import orders
from tests.spark.topic_contract import *  # noqa: F403
from tests.spark.topic_contract import Files, by_files, counted, opened, run
from tests.spark.topic_steps import *  # noqa: F403
from tests.spark.topics import Sender, make_topic_pipeline, value
from waterclock.errors import UsageError
from waterclock.sinks import SQLiteSink
from waterclock.spark import Pipeline
from waterclock.streaming.toml.config import load

pytestmark = [pytest.mark.servers, pytest.mark.spark]


@pytest.fixture(params=["python", "connector"])
def way(request: pytest.FixtureRequest, kind: str) -> str:
    if (request.param, kind) == ("python", "ours"):
        pytest.skip("tests/spark/test_topics.py has it: minutes for nothing new")
    return str(request.param)


def test_what_comes_while_a_run_closes_is_told_of_at_the_next_start(
    spark: SparkSession, bootstrap: str, new_topic: Callable[[int], str], pipeline_of: Files
) -> None:
    # Spark's connector reads it in the batch of the close, where it is passed over: it counted as read, and was lost
    topic = new_topic(1)
    sender = Sender(bootstrap, topic)
    sender.orders(orders(3))
    file = pipeline_of(topic)
    run(spark, file, report=lambda progress: sender.put("late comer") if not progress.batch_id else None)
    for _ in range(2):
        with pytest.raises(UsageError, match=rf"was closed, and 1 record came after that \({topic}/0\)"):
            run(spark, file)


@pytest.mark.parametrize("ways", [("python", "connector"), ("connector", "python")])
def test_one_way_goes_on_where_the_other_ended(
    spark: SparkSession, bootstrap: str, new_topic: Callable[[int], str], tmp_path: Path, ways: tuple[str, str]
) -> None:
    topic, rows = new_topic(1), orders(30)
    for number, way in enumerate(ways):
        Sender(bootstrap, topic).put(*map(value, rows[45 * number : 45 * (number + 1)]))
        file = opened(make_topic_pipeline(tmp_path / "p", bootstrap, topic, way=way, more="per_batch = 20"))
        run(spark, file)
    Sender(bootstrap, topic).put(*map(value, rows[90:]))
    run(spark, make_topic_pipeline(tmp_path / "p", bootstrap, topic, way=ways[1], more="per_batch = 20"))
    assert counted(file) == by_files(spark, tmp_path / "files", rows)


def test_a_topic_goes_through_steps_of_the_users_own_as_a_dataframe(
    spark: SparkSession, bootstrap: str, new_topic: Callable[[int], str], tmp_path: Path
) -> None:
    # the way that the refusal of `query` and `transform` beside topics names
    topic, rows = new_topic(1), orders(30)
    Sender(bootstrap, topic).orders(rows)
    where = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    read = spark.readStream.format("kafka").options(**where).load()
    ddl = "order string, at timestamp, what string, id string, n long"
    events = read.select(F.from_json(F.col("value").cast("string"), ddl).alias("row")).select("row.*")
    stepped = events.withColumn("what", F.lower("what")).where("order IS NOT NULL")
    plain = make_topic_pipeline(tmp_path / "p", bootstrap, topic)
    sink = SQLiteSink(tmp_path / "p" / "out.db")
    with Pipeline(stepped, load(plain).rules, sink, tmp_path / "c", watermark_delay="1 hour") as pipeline:
        pipeline.run(spark)
    assert counted(plain) == by_files(spark, tmp_path / "files", rows)
