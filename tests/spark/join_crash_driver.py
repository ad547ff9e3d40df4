"""Kafka, a join of the user's own, rules and PostgreSQL, in a driver that kills itself.

    python -m tests.spark.join_crash_driver FOLDER POINT BATCH

FOLDER/job.json is a `Job`. POINT and BATCH are those of crash_driver.py; `random` kills after so many milliseconds, and
`never` not at all. The topic is read by Spark's own connector: the way that docs/pipeline-api.md names, or, where the
job says "file", a pipeline's file with a query.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.spark.crash_driver import CrashingSink, die
from tests.spark.open_crash_driver import QUICK, RULES
from tests.spark.pipelines import COLUMNS, RULES_TEXT
from waterclock.bench.servers.connector import LIB
from waterclock.sinks import PostgresSink
from waterclock.spark import Pipeline
from waterclock.spark.pipeline import configured
from waterclock.spark.session.session import start
from waterclock.streaming.toml.config import load

DDL = "order string, at timestamp, what string, id string, n long"
NAMES = {"created": "opened", "paid": "closed"}
A_BATCH = 60
DELAY = (
    "3 hours"  # a batch takes its share of each partition: their events lie further apart than in the order of sending
)


@dataclass(frozen=True)
class Job:
    """Where the topic is, where the results go, and the cluster's master; none for this machine's own process."""

    servers: str
    topic: str
    url: str
    schema: str
    conf: dict[str, str] = field(default_factory=dict)
    source: str = "DataFrame"  # or "file": the same out of a pipeline's file

    def sink(self) -> PostgresSink:
        return PostgresSink(self.url, schema=self.schema)


def events(spark: SparkSession, job: Job) -> DataFrame:
    """The orders of the topic, each with a name for what happened, out of a table that does not stream."""
    where = {"kafka.bootstrap.servers": job.servers, "subscribe": job.topic, "startingOffsets": "earliest"}
    read = spark.readStream.format("kafka").options(**where, maxOffsetsPerTrigger=str(A_BATCH)).load()
    orders = read.select(F.from_json(F.col("value").cast("string"), DDL).alias("row")).select("row.*")
    names = spark.createDataFrame([*NAMES.items()], "what string, name string")
    return orders.join(F.broadcast(names), "what", "left").select("order", "at", "what", "id", "n", "name")


FILE = """
[pipeline]
name = "crash"
checkpoint = "checkpoint"
[source]
format = "kafka"
servers = "{servers}"
topics = ["{topic}"]
way = "connector"
per_batch = {per_batch}
query = '''SELECT `order`, at, what, id, n, name, _row_id_place
FROM source LEFT JOIN (VALUES {names}) AS names (what, name) USING (what)'''
{columns}[time]
watermark_delay = "{delay}"
{rules}[[rules.expect]]
type = "paid"
after = "created"
within = "20 minutes"
otherwise = "unpaid"
[[rules.quiet]]
after = "2 hours"
emit = "quiet"
[sink]
format = "postgres"
url = "{url}"
schema = "{schema}"
"""


def from_file(folder: Path, job: Job, sink: Any) -> Pipeline:
    """The same pipeline by TOML."""
    names = ", ".join(map(str, NAMES.items()))
    where = {"servers": job.servers, "topic": job.topic, "url": job.url, "schema": job.schema}
    text = FILE.format(**where, columns=COLUMNS, rules=RULES_TEXT, per_batch=A_BATCH, names=names, delay=DELAY)
    (folder / "pipeline.toml").write_text(text)
    return configured(load(folder / "pipeline.toml"), sink)


def main() -> None:
    folder, point, number = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    job = Job(**json.loads((folder / "job.json").read_text()))
    sink: Any = job.sink()
    if point not in ("random", "never"):
        sink = CrashingSink(sink, point, number, folder / "checkpoint")
    if point == "random":
        threading.Timer(number / 1000, die).start()
    conf = {**QUICK, "spark.driver.extraClassPath": f"{LIB}/*", **job.conf}
    spark = start("crash", 2, conf, folder / "spark.log").spark

    def tell(progress: object) -> None:
        if point == "told":
            die()

    if job.source == "file":
        made = from_file(folder, job, sink)
    else:
        made = Pipeline(events(spark, job), RULES, sink, folder / "checkpoint", watermark_delay=DELAY)
    with made as pipeline:
        pipeline.run(spark, report=tell)


if __name__ == "__main__":
    main()
