"""Apache Spark with its own Kafka connector, from jars that Maven brings.

Rule 1: jars are on the JVM's class path from its start: a session that runs already cannot take them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from waterclock.bench.servers.connector import CLASS_PATH, fetch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    # a dozen rows a query: what Spark would compile for each costs more than it saves
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@contextmanager
def session(log: Path) -> Iterator[SparkSession]:
    """A session on two cores that knows `format("kafka")`; what Spark says goes to the file `log`."""
    import pyspark

    from waterclock.spark.session.session import start

    assert pyspark.SparkContext._active_spark_context is None, "a session without the connector runs already (rule 1)"
    fetch(pyspark.__version__)
    spark = start("conformance", 2, {**QUICK, **CLASS_PATH}, log).spark
    yield spark
    spark.stop()
