"""waterclock's pipelines on topics, by both ways, against either broker: the contract of tests/topic_contract.py.

Both ways run in one session, which has the jars of Spark's own connector.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import orders
from tests.spark.topics import Sender, make_topic_pipeline, value
from tests.topic_contract import *  # noqa: F403
from tests.topic_contract import by_files, counted, opened, run

pytestmark = [pytest.mark.servers, pytest.mark.spark]


@pytest.fixture(params=["python", "connector"])
def way(request: pytest.FixtureRequest, kind: str) -> str:
    if (request.param, kind) == ("python", "ours"):
        pytest.skip("tests/spark/test_topics.py has it: minutes for nothing new")
    return str(request.param)


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
