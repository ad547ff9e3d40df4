"""A Spark that Delta Lake's and Iceberg's libraries were built for, with these: no release of theirs fits pyspark 4.3.

Rule 1: the jars lie in build/tables/lib, the package pyspark in build/tables/python; who lacks them gets them once, with
        Maven and pip (`python -m waterclock.bench.servers.tables`: half a minute, 450 MB).
Rule 2: a process has one pyspark. What is to run on this one is started with `python/` in front of its path (PYTHONPATH).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyspark

PYSPARK = "4.1.4"
_BUILD = Path(__file__).parents[2] / "build" / "tables"
POM = Path(__file__).parent / "tables" / "pom.xml"
LIB, PYTHON = _BUILD / "lib", _BUILD / "python"


def fetch() -> None:
    """Bring both, once. RuntimeError where they cannot be had."""
    if not any(LIB.glob("iceberg-spark-runtime-*.jar")):
        if not shutil.which("mvn"):
            raise RuntimeError("the libraries of Delta Lake and Iceberg need Maven: apt install maven")
        copy = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={LIB}"]
        subprocess.run(copy, check=True, stdin=subprocess.DEVNULL, stdout=sys.__stderr__)
    if not any(PYTHON.glob(f"pyspark-{PYSPARK}.dist-info")):
        alone = ["--quiet", "--no-deps", "--target", str(PYTHON), f"pyspark=={PYSPARK}"]
        pip = [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", "install", *alone]
        subprocess.run(pip, check=True, stdin=subprocess.DEVNULL, stdout=sys.__stderr__)


def missing() -> str | None:
    """Why no such table can be made in this process; None where it can."""
    if pyspark.__version__ != PYSPARK:
        return f"this is pyspark {pyspark.__version__}, and Delta Lake and Iceberg have libraries for {PYSPARK}"
    return (
        None if any(LIB.glob("iceberg-spark-runtime-*.jar")) else "the libraries of Delta Lake and Iceberg are not here"
    )


def settings(folder: Path) -> dict[str, str]:
    """What a session needs that keeps tables of Delta Lake in its own catalog, and those of Iceberg in `lake`."""
    return {
        "spark.driver.extraClassPath": f"{LIB}/*",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(folder / "delta"),
        "spark.databricks.delta.snapshotPartitions": "1",  # 50 tasks for each look at a table of a few rows
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "iceberg"),
    }


if __name__ == "__main__":
    fetch()
