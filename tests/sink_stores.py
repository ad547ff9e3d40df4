"""Places that sinks write to, seen from outside, with batches to write and ways to die while writing.

A `Store` makes sinks, looks with a connection of its own, and tells a child process how to make a sink. A new sink
joins the contract suite, `test_sink_contract.py`, with one more class in STORES.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from waterclock.sinks import Batch, Sink, SQLiteSink
from waterclock.spark import frames

EVENT = pa.schema([("case", pa.string()), ("n", pa.int64()), ("d", pa.float64()), ("b", pa.bool_())])
SCHEMA = frames.result_schema(pa.string(), EVENT)
COUNTERS = {"events": 2, "late": 1}


class Store(Protocol):
    """A place for results, seen from outside of the sink."""

    def sink(self, table: str = "results") -> Sink: ...

    def source(self) -> str:
        """An expression that makes the sink in another process."""

    def look(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        """Rows as another connection sees them."""


class SQLiteStore:
    def __init__(self, folder: Path) -> None:
        self.path = folder / "deep" / "results.db"

    def sink(self, table: str = "results") -> SQLiteSink:
        return SQLiteSink(self.path, table)

    def source(self) -> str:
        return f"SQLiteSink({str(self.path)!r})"

    def look(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path, timeout=0)) as other:
            return other.execute(f"SELECT {columns} FROM {table} ORDER BY 1, 2").fetchall()


STORES = [SQLiteStore]


def results(batch_id: int, count: int = 2) -> pa.Table:
    rows = [
        {
            "kind": "event",
            "key": "a",
            "rule": "order",
            "due": n,
            "emitted_at": None,
            "source_id": f"{batch_id}-{n}",
            "result_id": f"r{batch_id}-{n}",
            "event": {"case": "a" * (1 + n % 500), "n": n, "d": 0.5, "b": True},
        }
        for n in range(count)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def batch(batch_id: int, query_id: str = "q", count: int = 2, counters: Mapping[str, int] = COUNTERS) -> Batch:
    dead = pa.Table.from_pylist(
        [{"file": "f", "line": batch_id, "reason": "bad", "text": "{"}], schema=frames.DEAD_SCHEMA
    )
    return Batch(query_id, batch_id, f"offsets {batch_id}", results(batch_id, count), dead, counters, 1_000_000, 0.25)


def everything(store: Store) -> list[Any]:
    return [
        store.look("batch_id, source_id, result_id, kind, rule"),
        store.look("batch_id, line, file, reason, text", "results_dead_letters"),
        store.look("batch_id, query_id, offsets", "results_batches"),
    ]


def of_batches(*batch_ids: int) -> list[Any]:
    """What another connection sees of these batches, and of no others."""
    return [
        [(i, f"{i}-{n}", f"r{i}-{n}", "event", "order") for i in batch_ids for n in range(2)],
        [(i, i, "f", "bad", "{") for i in batch_ids],
        [(i, "q", f"offsets {i}") for i in batch_ids],
    ]


class Dying:
    """A sink that kills its process with SIGKILL right before or after one of its calls."""

    def __init__(self, sink: Sink, before: str | None, after: str | None) -> None:
        self._sink, self._before, self._after = sink, before, after

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if name == self._before:
                os.kill(os.getpid(), signal.SIGKILL)
            result = getattr(self._sink, name)(*arguments)
            if name == self._after:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return call


class Deadly(Mapping[str, int]):
    """Counters that kill the process that reads them: somewhere inside `write`."""

    def __getitem__(self, name: str) -> int:
        return os.kill(os.getpid(), signal.SIGKILL) or 0

    def __iter__(self) -> Iterator[str]:
        return iter(["events"] if self["events"] == 0 else [])

    def __len__(self) -> int:
        return 1


CHILD = """
import sys
sys.path.insert(0, {root!r})
from tests.sink_stores import Deadly, Dying, SCHEMA, batch
from waterclock.sinks import SQLiteSink, apply_once
sink = {sink}
sink.open(SCHEMA)
{body}
"""


def in_a_child(store: Store, body: str) -> subprocess.CompletedProcess[str]:
    script = CHILD.format(root=str(Path(__file__).parents[1]), sink=store.source(), body=body)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
