"""Apache Spark with its own Kafka connector, from jars that Maven brings.

Rule 1: the jars lie in SPARK_KAFKA_LIB, or else in build/spark-kafka/lib; who lacks them gets them once.
Rule 2: the connector is of the installed pyspark's release; where a mirror has none of that, pom.xml names one.
Rule 3: jars are on the JVM's class path from its start: a session that runs already cannot take them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POM = Path(__file__).parent / "spark_jars" / "pom.xml"
LIB = Path(os.environ.get("SPARK_KAFKA_LIB") or Path(__file__).parents[2] / "build" / "spark-kafka" / "lib")
QUICK = {
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "1",
    # a dozen rows a query: what Spark would compile for each costs more than it saves
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def fetch(version: str) -> None:
    """Bring the jars with Maven, once: of that release where it is to be had."""
    if any(LIB.glob("spark-sql-kafka-*.jar")):
        return
    if not shutil.which("mvn"):
        raise RuntimeError("Spark's Kafka connector needs Maven: apt install maven")
    copy = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={LIB}"]
    same = [f"-Dconnector.version={version}", f"-Dtoken.version={version}"]
    if subprocess.run([*copy, *same], stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode:
        subprocess.run(copy, check=True, stdin=subprocess.DEVNULL)


@contextmanager
def session(log: Path) -> Iterator[SparkSession]:
    """A session on two cores that knows `format("kafka")`; what Spark says goes to the file `log`."""
    import pyspark

    from waterclock.spark.session import start

    assert pyspark.SparkContext._active_spark_context is None, "a session without the connector runs already (rule 3)"
    fetch(pyspark.__version__)
    spark = start("conformance", 2, {**QUICK, "spark.driver.extraClassPath": f"{LIB}/*"}, log).spark
    yield spark
    spark.stop()
