"""Crashes with a topic as the source: driver or broker is killed; run again, the table is the same byte for byte."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

if not importlib.util.find_spec("confluent_kafka") or not importlib.util.find_spec("kio"):
    pytest.skip("needs waterclock[kafka,broker]", allow_module_level=True)

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.spark.crash_driver import AHEAD, BACK, POINTS
from tests.spark.pipelines import orders, table
from tests.spark.test_crashes import TWO_STEPS, kill_at_each_step, kill_at_random, killed, run_to_the_end
from tests.spark.topics import Sender, make_topic_pipeline
from waterclock.errors import WaterclockError
from waterclock.spark.pipeline import configured
from waterclock.streaming.statistics import Progress
from waterclock.streaming.toml.config import load
from waterclock.testing import Broker

pytestmark = [pytest.mark.spark, pytest.mark.long(seconds=50)]
MORE = "per_batch = 60"
JOINED = f"""{MORE}
query = '''SELECT `order`, at, what, id, n, coalesce(name, '?') AS name, _row_id_place
FROM source LEFT JOIN (VALUES ('created', 'opened'), ('paid', 'closed')) AS names (what, name) USING (what)'''
"""


@pytest.fixture(scope="module")
def topic(kafka_broker: Broker) -> str:
    """120 orders, in three partitions."""
    kafka_broker.create_topic("orders-of-crashes", 3)
    Sender(kafka_broker.bootstrap, "orders-of-crashes").orders(orders(120))
    return "orders-of-crashes"


@pytest.fixture
def file(kafka_broker: Broker, topic: str, tmp_path: Path) -> Path:
    return make_topic_pipeline(tmp_path / "killed", kafka_broker.bootstrap, topic, more=MORE)


@pytest.fixture(scope="module")
def clean(
    spark: SparkSession, kafka_broker: Broker, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[Any, ...]]:
    folder = tmp_path_factory.mktemp("clean")
    return run_to_the_end(spark, make_topic_pipeline(folder, kafka_broker.bootstrap, topic, more=MORE))


def test_a_topic_that_is_joined_before_the_rules_is_killed_and_changes_nothing(
    spark: SparkSession, kafka_broker: Broker, topic: str, tmp_path: Path, campaign_seed: int
) -> None:
    # the small one; on a cluster and into PostgreSQL: test_join_crashes.py
    made = [make_topic_pipeline(tmp_path / name, kafka_broker.bootstrap, topic, more=JOINED) for name in ("a", "b")]
    kill_at_each_step(made[0], POINTS[campaign_seed % 2 :: 2])
    kill_at_random(made[0], 2, campaign_seed)
    assert run_to_the_end(spark, made[0]) == run_to_the_end(spark, made[1])
    assert set(table(made[0].parent, "event_what, event_name", "kind = 'event'")) == {
        ("created", "opened"),
        ("paid", "closed"),
        ("shipped", "?"),
    }


@TWO_STEPS
def test_a_kill_at_each_numbered_step_changes_nothing(
    spark: SparkSession, file: Path, clean: list[tuple[Any, ...]], steps: Sequence[str]
) -> None:
    kill_at_each_step(file, steps)
    assert run_to_the_end(spark, file) == clean


def test_a_kill_while_spark_is_ahead_of_the_sink_and_while_that_is_taken_back_changes_nothing(
    spark: SparkSession, file: Path, clean: list[tuple[Any, ...]]
) -> None:
    kill_at_each_step(file, [*AHEAD[:3], *BACK])
    assert run_to_the_end(spark, file) == clean


@pytest.mark.parametrize("round_", range(2))
def test_kills_at_random_moments_change_nothing(
    spark: SparkSession, file: Path, clean: list[tuple[Any, ...]], campaign_seed: int, round_: int
) -> None:
    kill_at_random(file, 4, campaign_seed)
    assert run_to_the_end(spark, file) == clean


def test_the_first_batch_begins_after_a_crash_where_it_began_before(
    spark: SparkSession, kafka_broker: Broker, tmp_path: Path
) -> None:
    # its results are committed, Spark's note of it is not: read again from elsewhere, the state would lack what they had
    kafka_broker.create_topic("orders-deleted", 1)
    Sender(kafka_broker.bootstrap, "orders-deleted").put(*"01234")
    file = make_topic_pipeline(tmp_path, kafka_broker.bootstrap, "orders-deleted")
    assert killed(file, "committed", 0)
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition("orders-deleted", 0, 3)]).values()
    deleted.result(30)
    with pytest.raises(WaterclockError, match=r"records of orders-deleted/0 from offset 0 to 5 are gone"):
        run_to_the_end(spark, file)


def test_a_broker_that_is_away_for_a_while_is_waited_for(
    spark: SparkSession, kafka_broker_factory: Callable[..., Broker], clean: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    broker = kafka_broker_factory(tmp_path / "data")
    broker.create_topic("orders-of-crashes", 3)
    Sender(broker.bootstrap, "orders-of-crashes").orders(orders(120))
    port = int(broker.bootstrap.rpartition(":")[2])
    file = make_topic_pipeline(tmp_path / "away", broker.bootstrap, "orders-of-crashes", more=MORE)

    def cut(progress: Progress) -> None:
        if progress.batch_id == 1:
            broker.cut_power()
            broker.start()

    pipeline = configured(load(file))
    try:
        pipeline.run(spark, report=cut)
    finally:
        pipeline.close()
    assert int(broker.bootstrap.rpartition(":")[2]) == port
    assert table(file.parent) == clean
