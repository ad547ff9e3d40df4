"""waterclock's pipeline with engine = "local" in a process of its own, in which there is no Spark; a run for each line.

    python -m waterclock.bench.processors.local

    files INPUT sqlite|nothing FOLDER                the pipeline over the files, a file a batch
    floor INPUT sqlite FOLDER                        Arrow reads the files, and rows go into SQLite
    topic SERVERS INPUT_TOPIC OUTPUT_TOPIC FOLDER    the pipeline, topic to topic

Rule 1: it runs as `waterclock run` runs it, with as many buckets and records a batch as there are without a word.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyarrow import json

from waterclock.bench.orders import ALL, COLUMNS, SCHEMA
from waterclock.bench.processors.course import PARTITIONS
from waterclock.bench.processors.runs import BEHIND_US, Marks, Record, ThrownAway, serve
from waterclock.local import LocalPipeline
from waterclock.local.checkpoint import LocalCheckpoint
from waterclock.local.command import run
from waterclock.local.sources import FileSource, Source
from waterclock.local.topics import TopicSource
from waterclock.sinks import RecordingSink, SQLiteSink, TopicSink
from waterclock.streaming.toml.config import Files
from waterclock.streaming.toml.steps import Outlet
from waterclock.streaming.toml.table import FileTable
from waterclock.streaming.toml.topics import topics_from

ON: Final = f"no Spark: Arrow {pa.__version__}"
_NUMBERS: Final = pa.schema(
    [(each.name, pa.int64() if pa.types.is_timestamp(each.type) else each.type) for each in SCHEMA]
)


def files(given: str, sink: str, place: str) -> Record:
    """The pipeline over files."""
    marks, kept = Marks(ON), SQLiteSink(f"{place}/results.db") if sink == "sqlite" else ThrownAway()
    _run(FileSource(Files("jsonl", Path(given), 1, COLUMNS), ALL, BEHIND_US), kept, place, marks)
    return marks.record(dict(kept.counts) if isinstance(kept, ThrownAway) else {})


def topic(servers: str, given: str, output: str, place: str) -> Record:
    """The pipeline from topic to topic."""
    marks = Marks(ON)
    table = FileTable("[source]", {"servers": servers, "topics": [given], "columns": COLUMNS}, Path.cwd())
    sink = TopicSink(servers, output, partitions=PARTITIONS)
    _run(TopicSource(topics_from(table), ALL, BEHIND_US), sink, place, marks)
    return marks.record({})


def _run(source: Source, sink: RecordingSink, place: str, marks: Marks) -> None:
    checkpoint = LocalCheckpoint(Path(place, "checkpoint"))
    with closing(LocalPipeline(source, ALL, [Outlet(sink)], checkpoint, watermark_delay_us=BEHIND_US)) as pipeline:
        run(pipeline, live=False, report=marks.batch)


def floor(given: str, sink: str, place: str) -> Record:
    """No rules: a table of what comes."""
    marks, taken = Marks(ON), 0
    with closing(sqlite3.connect(f"{place}/results.db")) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("CREATE TABLE results (id TEXT, key TEXT, seq INTEGER, kind TEXT, ts INTEGER, deliver INTEGER)")
        for file in sorted(Path(given).iterdir()):
            rows = json.read_json(file, parse_options=json.ParseOptions(explicit_schema=SCHEMA)).cast(_NUMBERS)
            with db:
                columns = (column.to_pylist() for column in rows.columns)
                db.executemany("INSERT INTO results VALUES (?, ?, ?, ?, ?, ?)", zip(*columns, strict=True))
            taken += rows.num_rows
            marks.note(taken)
    return marks.record({"rows": taken})


RUNS: Final[dict[str, Callable[..., Record]]] = {"files": files, "topic": topic, "floor": floor}

if __name__ == "__main__":
    serve(RUNS)
