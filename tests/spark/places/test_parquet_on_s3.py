"""Parquet files with a manifest on a real S3 server: commits by Spark's conditional put, files by pyarrow.

The server is not brought by this: `python -m waterclock.bench.servers.s3` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from tests.conftest import QUICK
from tests.sinks.collisions import collide
from tests.sinks.file_stores import ByExecutors
from tests.sinks.stores import COUNTERS, SCHEMA, batch
from tests.spark.lakes import PARQUET, lake_pipeline
from tests.spark.pipelines import orders
from waterclock.bench.servers import s3
from waterclock.errors import SinkLost, StateMismatch, UsageError
from waterclock.sinks import LastBatch, ParquetSink, apply_once
from waterclock.sinks.epochs import Epoch
from waterclock.sinks.parquet.parquet_tables import batches, dead_letters, files, orphans, read
from waterclock.spark.pipeline import configured
from waterclock.spark.places.place import place_of
from waterclock.spark.session.session import start
from waterclock.spark.toml.config import load

pytestmark = [pytest.mark.spark, pytest.mark.servers]
# Spark's settings of a store, and what pyarrow takes from the environment
_NAMES = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "endpoint": "AWS_ENDPOINT_URL",
    "endpoint.region": "AWS_REGION",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[s3.S3]:
    if not s3.is_here():
        pytest.skip("the S3 server is not here: python -m waterclock.bench.servers.s3")
    made = s3.S3(tmp_path_factory.mktemp("s3") / "server")
    yield made
    made.stop()


@pytest.fixture(scope="module")
def spark(server: s3.S3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    conf = {**QUICK, **server.settings}
    with pytest.MonkeyPatch.context() as patched:
        for name, variable in _NAMES.items():
            patched.setenv(variable, conf[f"spark.hadoop.fs.s3a.{name}"])
        session = start("places", 2, conf, tmp_path_factory.mktemp("spark") / "spark.log").spark
        yield session
        session.stop()


class Table:
    """A table in a new place on the server."""

    def __init__(self, server: s3.S3, by: str) -> None:
        self.url, self._by = f"{server.uri}/{uuid4().hex}/results", by

    def sink(self) -> Any:
        made = ParquetSink(self.url, written_by=self._by)
        made.reached_by(lambda url: place_of(url, Path()))
        made.open(SCHEMA)
        return made if self._by == "driver" else ByExecutors(made)

    def holds(self, spark: SparkSession, count: int) -> None:
        expected = sorted(f"{i}-{n}" for i in range(count) for n in range(2))
        assert sorted(read(self.url)["source_id"].to_pylist()) == expected
        assert sorted(row.source_id for row in spark.read.parquet(self.url).collect()) == expected
        assert (dead_letters(self.url).num_rows, batches(self.url).num_rows) == (count, count)


@pytest.fixture(params=["driver", "executors"])
def table(spark: SparkSession, server: s3.S3, request: pytest.FixtureRequest) -> Table:
    return Table(server, request.param)


def test_of_two_writers_of_one_batch_the_store_refuses_one(spark: SparkSession, table: Table) -> None:
    with closing(table.sink()) as one, closing(table.sink()) as other:
        for number in range(12):
            apply_once(one, batch(number))
        collide(one, other, 12)
        assert one.totals() == {name: 13 * value for name, value in COUNTERS.items()}
    with closing(table.sink()) as again:
        assert again.last_applied() == LastBatch("q", 12)
        with pytest.raises(UsageError, match="waterclock removes nothing behind a URL"):
            again.remove()
    table.holds(spark, 13)
    assert orphans(table.url) == []
    assert files(table.url)[0].startswith("s3://")


def test_a_run_that_was_taken_over_in_the_middle_of_a_batch_commits_nothing(spark: SparkSession, table: Table) -> None:
    with closing(table.sink()) as old, closing(table.sink()) as new:
        old.fence(Epoch("a", 1))
        apply_once(old, batch(0))
        old.begin()
        old.write(batch(1))
        new.fence(Epoch("a", 2))
        with pytest.raises(SinkLost):
            old.commit()
        with pytest.raises(StateMismatch, match="epoch 2"):
            apply_once(old, batch(1))
        assert apply_once(new, batch(1)) is True
    table.holds(spark, 2)


def test_a_pipeline_writes_there_and_goes_on(spark: SparkSession, server: s3.S3, tmp_path: Path) -> None:
    url = f"{server.uri}/{uuid4().hex}/orders"
    file = lake_pipeline(tmp_path, orders(10), PARQUET.replace("lake/orders", url), files=3)
    with closing(configured(load(file))) as pipeline:
        done = pipeline.run(spark)
    assert read(url).num_rows == spark.read.parquet(url).count() == done.totals["results"]
    with closing(configured(load(file))) as pipeline:
        assert pipeline.run(spark).batches == 0


def test_without_a_pipeline_nothing_is_committed_there(spark: SparkSession, server: s3.S3) -> None:
    with pytest.raises(UsageError, match=r"a commit behind a URL is made through Spark\. Write to it by a pipeline"):
        ParquetSink(f"{server.uri}/{uuid4().hex}/orders").open(SCHEMA)
