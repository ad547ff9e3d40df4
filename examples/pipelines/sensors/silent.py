"""Sensors that fell silent: nested JSON without a sequence number, through Spark's SQL, into SQLite exactly once.

python silent.py FOLDER        reads FOLDER/in, writes FOLDER/sensors.db
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from waterclock import Rules
from waterclock.sinks import SQLiteSink
from waterclock.spark import Pipeline, folder, reshaped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from waterclock.streaming.summary import Summary

# a message is {"device": {"id": ..., "site": {"name": ...}}, "sent_ms": ..., "values": [{"name": ..., "value": ...}, ...]}
COLUMNS = {
    "device": "struct<id: string, site: struct<name: string>>",
    "sent_ms": "bigint",
    "values": "array<struct<name: string, value: double>>",
}
FLAT = """
    SELECT device.id AS sensor, device.site.name AS site, timestamp_millis(sent_ms) AS at, v.name AS name, v.value AS value
    FROM source LATERAL VIEW explode(values) AS v
"""
RULES = Rules(key="sensor", time="at").deduplicate(within="1 hour").quiet("10 minutes", emit="silent")
SILENT = "SELECT key AS sensor, due AS silent_since FROM results WHERE kind = 'quiet'"


def run(place: Path, session: SparkSession | None = None) -> Summary:
    """Read what is in `place`/in; `results` of sensors.db says when each sensor had been silent for 10 minutes."""
    source = folder(place / "in", format="json", columns=COLUMNS, query=FLAT)
    sink = reshaped(SQLiteSink(place / "sensors.db"), query=SILENT)
    with Pipeline(source, RULES, sink, place / "checkpoint", watermark_delay="5 minutes", name="sensors") as pipeline:
        return pipeline.run(session)


if __name__ == "__main__":
    print(run(Path(sys.argv[1])))
