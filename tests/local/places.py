"""Where a local pipeline writes: a place of the sinks' tests as [sink], and what is in it after a run."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.sinks.database_stores import DuckDBStore, MySQLStore
from tests.sinks.stores import PostgresStore, SQLiteStore, Store, TopicStore

EVENT = "event_order, event_at, event_what, event_id, event_n"
RESULTS = f'batch_id, kind, "key", rule, due, emitted_at, source_id, result_id, {EVENT}'
LETTERS = "batch_id, file, line, reason, text"
BATCHES = "batch_id, offsets, watermark, counters"
WRITTEN_AT_ANY_TIME = "state_bytes"  # when a bucket is written is another matter
ISO = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
Table = list[tuple[Any, ...]]


def sink_text(store: Store) -> str:
    """The lines of [sink]."""
    match store:
        case SQLiteStore():
            return f'path = "{store.path}"'
        case DuckDBStore():
            return f'format = "duckdb"\npath = "{store.path}"'
        case MySQLStore():
            return f'format = "mysql"\nurl = "{store.url}"'
        case PostgresStore():
            return f'format = "postgres"\nurl = "{store.server.url()}"\nschema = "{store.schema}"'
        case TopicStore():
            return f'format = "kafka"\nservers = "{store.servers}"\ntopic = "{store.named("results")}"\npartitions = 1'
    raise AssertionError(store)


def into(file: Path, store: Store) -> Path:
    """The same pipeline, but with its results there."""
    file.write_text(file.read_text().replace('path = "out.db"', sink_text(store)))
    return file


def found(store: Store) -> list[Table]:
    """Results and dead letters in their order, and the batches, but for what a replay may do at another time; each value
    as SQLite has it."""
    batches = [(*row[:3], _counted(row[3])) for row in store.look(BATCHES, "results_batches")]
    tables = [store.in_order(RESULTS), store.in_order(LETTERS, "results_dead_letters"), batches]
    return [[tuple(map(_plain, row)) for row in rows] for rows in tables]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.%f")
    if isinstance(value, str) and ISO.fullmatch(value):
        return value.replace("T", " ").removesuffix("Z")
    return value


def _counted(counters: Any) -> dict[str, int]:
    given = json.loads(counters) if isinstance(counters, str) else counters
    return {name: value for name, value in given.items() if name != WRITTEN_AT_ANY_TIME}
