"""The state of a topic's pipeline is carried over in the middle; the partitions' watermarks and offsets go with it."""

from __future__ import annotations

import importlib.util
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

if not importlib.util.find_spec("confluent_kafka") or not importlib.util.find_spec("kio"):
    pytest.skip("needs waterclock[kafka,broker]", allow_module_level=True)

from tests.spark.pipelines import orders
from tests.spark.rescaling.staged import carry, outcomes, run
from tests.spark.topics import Sender, make_topic_pipeline
from waterclock.streaming.toml.config import load
from waterclock.testing import Broker

pytestmark = pytest.mark.spark


@pytest.mark.long(seconds=30)
def test_a_topics_pipeline_goes_from_sixteen_over_sixty_four_to_eight_buckets(
    spark: SparkSession, kafka_broker: Broker, tmp_path: Path
) -> None:
    kafka_broker.create_topic("orders-rescaled", 3)
    sender, rows = Sender(kafka_broker.bootstrap, "orders-rescaled"), orders(120)
    file = make_topic_pipeline(tmp_path, kafka_broker.bootstrap, "orders-rescaled", more="per_batch = 60")
    text = file.read_text()
    file.write_text(text.replace('watermark_delay = "1 hour"', 'watermark_delay = "1 hour"\nclose = false'))
    third = len(rows) // 3
    for stage, buckets in enumerate((64, 8, None)):
        sender.orders(rows[stage * third : None if buckets is None else (stage + 1) * third])
        if buckets is None:
            file.write_text(file.read_text().replace("close = false", "close = true"))
        run(spark, file)
        if buckets is not None:
            carry(spark, file, buckets)
    rules = load(file).rules
    assert rules is not None
    found = rules.run(rows, "1 hour")
    assert outcomes(file) == Counter(
        (r.kind, r.key, r.rule, r.due.strftime("%Y-%m-%d %H:%M:%S.%f"), r.source_id) for r in found
    )
