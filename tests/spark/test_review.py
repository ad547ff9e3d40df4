"""What a careful reading of the pipeline found, where only Spark shows it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

if not importlib.util.find_spec("confluent_kafka") or not importlib.util.find_spec("kio"):
    pytest.skip("needs waterclock[kafka,broker]", allow_module_level=True)

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.spark.test_crashes import killed, run_to_the_end
from tests.spark.topics import Sender, make_topic_pipeline
from waterclock.errors import WaterclockError
from waterclock.testing import Broker

pytestmark = pytest.mark.spark


def test_the_first_batch_begins_after_a_crash_where_it_began_before(
    spark: SparkSession, kafka_broker: Broker, tmp_path: Path
) -> None:
    # its results are committed, Spark's note of it is not: read again from elsewhere, the state would lack what they had
    kafka_broker.create_topic("first-batch", 1)
    Sender(kafka_broker.bootstrap, "first-batch").put(*"01234")
    file = make_topic_pipeline(tmp_path, kafka_broker.bootstrap, "first-batch")
    assert killed(file, "committed", 0)
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    (deleted,) = admin.delete_records([TopicPartition("first-batch", 0, 3)]).values()
    deleted.result(30)
    with pytest.raises(WaterclockError, match=r"records of first-batch/0 from offset 0 to 5 are gone"):
        run_to_the_end(spark, file)
