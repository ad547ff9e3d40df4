"""A small pipeline for tests: orders that are disordered and doubled, in a folder of its own."""

from __future__ import annotations

import json
import os
import random
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from waterclock.streaming.statistics import Summary

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = """[source.columns]
order = "string"
at = "timestamp"
what = "string"
id = "string"
n = "long"
"""
RULES_TEXT = """[rules]
key = "order"
time = "at"
type = "what"
id = "id"
sequence = "n"
[rules.deduplicate]
within = "1 day"
[rules.order]
wait = "1 hour"
"""
PIPELINE = f"""
[pipeline]
name = "orders"
checkpoint = "checkpoint"
[source]
path = "in"
files_per_batch = {{files_per_batch}}
{COLUMNS}[time]
watermark_delay = "1 hour"
{RULES_TEXT}[[rules.delay]]
after = "created"
by = "30 minutes"
emit = "remind"
[[rules.expect]]
type = "paid"
after = "created"
within = "20 minutes"
otherwise = "unpaid"
[sink]
path = "out.db"
[spark.conf]
"spark.driver.memory" = "1g"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


def orders(keys: int, seed: int = 1) -> list[dict[str, Any]]:
    """Events in the order of arrival, at most 50 minutes late, one in ten doubled, one in twenty lost."""
    chance, arrivals = random.Random(seed), []
    for key in range(keys):
        at = START + timedelta(seconds=chance.randrange(36_000))
        for number, what in enumerate(("created", "paid", "shipped"), 1):
            row = {"order": f"o{key}", "at": at, "what": what, "id": f"o{key}-{number}", "n": number}
            for _ in range(chance.choices((0, 1, 2), (1, 17, 2))[0]):
                arrivals.append((at + timedelta(minutes=chance.uniform(0, 50)), len(arrivals), row))
            at += timedelta(minutes=chance.uniform(1, 40))
    return [row for *_, row in sorted(arrivals, key=lambda a: a[:2])]


def write_files(rows: list[dict[str, Any]], folder: Path, count: int) -> None:
    """`rows` as JSON lines in `count` files, a second apart."""
    folder.mkdir(parents=True, exist_ok=True)
    size = -(-len(rows) // count)
    for number in range(count):
        file = folder / f"{number:03d}.jsonl"
        lines = [json.dumps({**row, "at": row["at"].isoformat()}) for row in rows[number * size : (number + 1) * size]]
        file.write_text("".join(f"{line}\n" for line in lines))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def make_pipeline(folder: Path, rows: list[dict[str, Any]], files: int = 3, files_per_batch: int = 1) -> Path:
    """A ready folder; returns the pipeline's file."""
    write_files(rows, folder / "in", files)
    file = folder / "pipeline.toml"
    file.write_text(PIPELINE.format(files_per_batch=files_per_batch))
    return file


def behind(uri: str, file: Path) -> Path:
    """The same pipeline, but with its checkpoint and its files behind `uri`."""
    text = file.read_text().replace('path = "in"', f'path = "{uri}/in"')
    file.write_text(text.replace('checkpoint = "checkpoint"', f'checkpoint = "{uri}/checkpoint"'))
    return file


def into_postgres(file: Path, url: str, schema: str) -> Path:
    """The same pipeline, but with its results in a schema of PostgreSQL."""
    place = f'format = "postgres"\nurl = "{url}"\nschema = "{schema}"'
    file.write_text(file.read_text().replace('path = "out.db"', place))
    return file


def table(folder: Path, columns: str = "*", where: str = "1") -> list[tuple[Any, ...]]:
    """The results in the order in which they were written."""
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return db.execute(f"SELECT {columns} FROM results WHERE {where} ORDER BY rowid").fetchall()


def run(spark: SparkSession, file: Path) -> Summary:
    """Run the pipeline of a file to its end."""
    from waterclock.spark.pipeline import configured
    from waterclock.streaming.toml.config import load

    with closing(configured(load(file))) as pipeline:
        return pipeline.run(spark)
