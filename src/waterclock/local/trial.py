"""A pipeline's file tried on a list of events: the same pipeline, with nothing of what is outside.

Rule 1: what reads, what applies the rules and what counts is what runs live. Other are the source (records.py), the sink,
        and the checkpoint, which are memory, and the clock, which stands still.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from waterclock.clock import ManualClock
from waterclock.errors import UsageError
from waterclock.local.checkpoint import LocalCheckpoint
from waterclock.local.csv import csv_of
from waterclock.local.pipeline import LocalPipeline
from waterclock.local.records import EventSource
from waterclock.local.snapshots import Snapshots
from waterclock.local.sources import Source, refuse_spark, watermark_of_files
from waterclock.sinks import Batch, LastBatch
from waterclock.streaming.frames import sum_counters
from waterclock.streaming.toml.config import load
from waterclock.streaming.toml.readers import Reader
from waterclock.streaming.toml.steps import Outlet
from waterclock.streaming.topics.records import TopicLayout, own_watermark


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """What a pipeline made of some events.

    `results` and `dead_letters` are the rows that a sink would have, in their order; times are datetimes with a zone, and
    `event` is a dictionary. `counters` are sums, such as "events", "late" and "duplicates".
    """

    results: list[dict[str, Any]]
    dead_letters: list[dict[str, Any]]
    counters: dict[str, int]


def run_pipeline(file: str | Path, events: Iterable[Mapping[str, Any] | str], per_batch: int = 1) -> PipelineRun:
    """See `waterclock.testing`."""
    if per_batch < 1:
        raise ValueError(f"per_batch must be 1 or more, got {per_batch}")
    config = load(file)
    given, sink = config.source, MemorySink()
    rules = refuse_spark(given, config.rules, config.outlets, config.checkpoint)
    known = csv_of(given, rules)[0].columns if isinstance(given, Reader) else given.all_columns()
    assert known is not None, "refused"
    columns = {name: "int" if kind == "integer" else kind for name, kind in known.items()}  # JSON has one integer
    own = own_watermark if given.format == "kafka" else watermark_of_files
    layout = TopicLayout(columns, {}, rules, getattr(given, "record", {}))
    source = EventSource(events, layout, partial(own, delay_us=config.watermark_delay_us), per_batch)
    pipeline = LocalPipeline(
        source, rules, [Outlet(sink)], MemoryCheckpoint(), watermark_delay_us=config.watermark_delay_us, close=config.close,
        name=config.name, buckets=config.local.buckets, clock=ManualClock(),
    )  # fmt: skip
    with closing(pipeline):
        pipeline.run()
    try:
        results, dead = ([row for table in tables for row in table.to_pylist()] for tables in (sink.results, sink.dead))
    except OverflowError:
        raise UsageError(
            "a result is due behind the year 9999, which no datetime can be: shorten the rules' durations"
        ) from None
    return PipelineRun(results, dead, sink.totals())


class MemorySink:
    """A `RecordingSink` that lasts as long as its run."""

    place = "memory"

    def __init__(self) -> None:
        self.results: list[pa.Table] = []
        self.dead: list[pa.Table] = []
        self._counters: list[Mapping[str, int]] = []

    def open(self, results: pa.Schema) -> None: ...

    def remove(self) -> None: ...

    def last_applied(self) -> LastBatch | None:
        return None

    def begin(self) -> None: ...

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        return False

    def write(self, batch: Batch) -> None:
        self.results.append(batch.results)
        self.dead.append(batch.dead_letters)
        self._counters.append(batch.counters)

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def inputs(self, query_id: str) -> list[tuple[int, str | None]]:
        return []

    def fold(self, query_id: str, batch_id: int) -> None: ...

    def totals(self) -> dict[str, int]:
        return sum_counters(self._counters)

    def close(self) -> None: ...

    def describe(self) -> str:
        return self.place


class MemoryCheckpoint(LocalCheckpoint):
    """One that lasts as long as its run."""

    def __init__(self) -> None:
        super().__init__(Path(":memory:"))

    def take(self, settings: Mapping[str, Any], sink: str, source: Source) -> None:
        self.first, self._snapshots = source.first(), Snapshots(self.path)

    def begin(self, query: str, first: Any = None, identity: Any = None) -> None: ...
