"""The contract of pipelines on a topic, by the way that needs nothing but pip, on our broker."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

if not importlib.util.find_spec("confluent_kafka") or not importlib.util.find_spec("kio"):
    pytest.skip("needs waterclock[kafka,broker]", allow_module_level=True)

from tests.samples import blocks
from tests.spark.pipelines import orders, table
from tests.spark.topic_contract import *  # noqa: F403
from tests.spark.topic_contract import run
from tests.spark.topic_steps import *  # noqa: F403
from tests.spark.topics import Sender, make_topic_pipeline
from tests.test_readme import ROOT
from waterclock.errors import EnvironmentMissing
from waterclock.testing import Broker

pytestmark = pytest.mark.spark
_numbers = count()


@pytest.fixture
def way() -> str:
    return "python"


@pytest.fixture
def bootstrap(kafka_broker: Broker) -> str:
    return kafka_broker.bootstrap


@pytest.fixture
def new_topic(kafka_broker: Broker) -> Callable[[int], str]:
    def make(partitions: int) -> str:
        name = f"orders-{next(_numbers)}"
        kafka_broker.create_topic(name, partitions)
        return name

    return make


# where Spark's own connector is not there ----------------------------------------------------------------


def test_without_the_connector_one_sentence_names_the_three_ways(
    spark: SparkSession,
    tmp_path: Path,
    bootstrap: str,
    new_topic: Callable[[int], str],
) -> None:
    file = make_topic_pipeline(tmp_path, bootstrap, new_topic(1), way="connector")
    with pytest.raises(EnvironmentMissing) as caught:
        run(spark, file)
    sentence = str(caught.value)
    for way in ('"spark.jars"', '"spark.jars.packages"', 'way = "python"'):
        assert way in sentence
    assert "\n" not in sentence


@pytest.mark.long(seconds=8)
def test_packages_that_cannot_be_had_are_told_and_not_the_gateway(tmp_path: Path) -> None:
    # PySpark knows no more than JAVA_GATEWAY_EXITED
    settings = tmp_path / "ivy.xml"
    settings.write_text(
        "<ivysettings><settings defaultResolver='none'/><resolvers><filesystem name='none'>"
        f"<artifact pattern='{tmp_path}/[artifact].jar'/></filesystem></resolvers></ivysettings>"
    )
    extra = {"spark.jars.packages": "nobody:nothing:1.0", "spark.jars.ivySettings": str(settings)}
    code = (
        "from pathlib import Path; from waterclock.spark.session.session import start; "
        f"start('none', 1, {extra!r}, Path({str(tmp_path / 'log')!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("waterclock.errors.EnvironmentMissing: the packages nobody:nothing:1.0 could not be had")
    assert "JAVA_GATEWAY_EXITED" not in last


# steps of the user's own ---------------------------------------------------------------------------------

STEPS = """
query = "SELECT key, kind, due, emitted_at FROM results WHERE kind <> 'event'"
transform = "steps_of_topics:without_time"
"""


@pytest.mark.long(seconds=12)
def test_results_of_a_topic_go_through_a_query_and_a_function_on_their_way_to_the_sink(
    spark: SparkSession, tmp_path: Path, bootstrap: str, new_topic: Callable[[int], str]
) -> None:
    topic = new_topic(2)
    Sender(bootstrap, topic).orders(orders(30))
    plain = make_topic_pipeline(tmp_path / "plain", bootstrap, topic)
    run(spark, plain)
    stepped = make_topic_pipeline(tmp_path / "stepped", bootstrap, topic)
    stepped.write_text(stepped.read_text().replace('path = "out.db"', f'path = "out.db"{STEPS}'))
    module = "def without_time(results):\n    return results.drop('emitted_at')\n"
    (tmp_path / "stepped" / "steps_of_topics.py").write_text(module)
    run(spark, stepped)
    expected = [row[:3] for row in table(plain.parent, "kind, key, due") if row[0] != "event"]
    assert sorted(table(stepped.parent, "kind, key, due")) == sorted(expected)
    assert len(expected) > 30


@pytest.mark.long(seconds=6)
def test_the_sample_of_a_step_behind_a_topic_runs_as_it_stands(
    spark: SparkSession, tmp_path: Path, kafka_broker: Broker
) -> None:
    kafka_broker.create_topic("scans", 2)
    scans = [
        ("P1", "Accepted", "01.03.2026 08:00"),
        ("P1", "Test", "01.03.2026 09:00"),
        ("P2", "Accepted", "01.03.2026 10:00"),
        ("P1", "Delivered", "02.03.2026 07:30"),
    ]
    for number, scan in enumerate(scans):
        row = dict(zip(("Sendung", "Status", "Zeit"), scan, strict=True))
        Sender(kafka_broker.bootstrap, "scans").put(json.dumps(row), partition=number % 2)
    (text,) = [text for _, text in blocks(ROOT / "docs" / "pipeline-file.md", "toml") if "_row_id_place" in text]
    file = tmp_path / "pipeline.toml"
    file.write_text(text.replace("localhost:9092", kafka_broker.bootstrap))
    run(spark, file)
    with closing(sqlite3.connect(tmp_path / "parcels.db")) as db:
        told = db.execute("SELECT kind, key, due FROM results WHERE kind IN ('met', 'expired') ORDER BY key").fetchall()
    assert told == [("met", "P1", "2026-03-03 08:00:00.000000"), ("expired", "P2", "2026-03-03 10:00:00.000000")]
