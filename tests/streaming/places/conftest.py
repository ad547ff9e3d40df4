"""What the tests on servers share: a server of each kind, and one Spark session that reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.streaming.places.servers import Store
    from waterclock.streaming.places.hadoop import HadoopPath


@pytest.fixture(scope="module", params=["hdfs", "s3a"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    from tests.streaming.places.servers import Store
    from waterclock.bench.servers import hdfs, s3

    if request.param == "s3a" and not s3.is_here():
        pytest.skip("the S3 server is not here: python -m waterclock.bench.servers.s3")
    folder = tmp_path_factory.mktemp(request.param) / "server"
    made = hdfs.Hdfs(folder) if request.param == "hdfs" else s3.S3(folder)
    try:
        yield Store(made)
    finally:
        made.stop()


@pytest.fixture(scope="module")
def spark(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session for each store. Java starts once, with what either of them needs of classes."""
    from tests.conftest import QUICK
    from waterclock.bench.servers import s3
    from waterclock.spark.session.session import start

    classes = {"spark.driver.extraClassPath": f"{s3.LIB}/*"} if s3.is_here() else {}
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    session = start("places", 2, {**QUICK, **classes, **store.settings}, log).spark
    yield session
    session.stop()


@pytest.fixture
def place(spark: SparkSession, store: Store) -> HadoopPath:
    return store.folder()


@pytest.fixture(scope="module")
def clean(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    """What a run on this machine's own folders writes, without a kill."""
    from tests.spark.pipelines import make_pipeline, orders, table
    from waterclock.spark.pipeline import configured
    from waterclock.streaming.toml.config import load

    here = make_pipeline(tmp_path_factory.mktemp("clean"), orders(60), 3)
    with closing(configured(load(here))) as pipeline:
        pipeline.run(spark)
    return table(here.parent)
