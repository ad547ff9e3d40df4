"""The jars of Spark's own Kafka connector, which Maven brings: PySpark comes without them.

Rule 1: the jars lie in SPARK_KAFKA_LIB, or else in build/spark-kafka/lib; who lacks them gets them once.
Rule 2: the connector is of the installed pyspark's release; where a mirror has none of that, pom.xml names one.
Rule 3: jars are on the JVM's class path from its start: a session that runs already cannot take them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

POM = Path(__file__).parent / "spark" / "pom.xml"
LIB = Path(os.environ.get("SPARK_KAFKA_LIB") or Path(__file__).parents[2] / "build" / "spark-kafka" / "lib")
CLASS_PATH = {"spark.driver.extraClassPath": f"{LIB}/*"}


def fetch(version: str) -> None:
    """Bring the jars with Maven, once: of that release where it is to be had. RuntimeError where they cannot be had."""
    if any(LIB.glob("spark-sql-kafka-*.jar")):
        return
    if not shutil.which("mvn"):
        raise RuntimeError("Spark's Kafka connector needs Maven: apt install maven")
    copy = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={LIB}"]
    same = [f"-Dconnector.version={version}", f"-Dtoken.version={version}"]
    for command in ([*copy, *same], copy):
        if not subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False).returncode:
            return
    raise RuntimeError("Maven did not get the jars of Spark's Kafka connector")
