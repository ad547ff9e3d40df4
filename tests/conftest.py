"""One Spark session for all tests that need one, small and quick to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The same examples in every run: a landing must not depend on luck. To search further: HYPOTHESIS_PROFILE=search make test
settings.register_profile("steady", derandomize=True, database=None)
settings.register_profile("search", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

QUICK = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from waterclock.spark.session import start

    session = start("tests", 2, QUICK, tmp_path_factory.mktemp("spark") / "spark.log").spark
    yield session
    session.stop()
