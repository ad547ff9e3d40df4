"""A partition that is new holds the watermark where it is, for each key alike: as on Spark, it never goes back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from waterclock.clock import ManualClock
from waterclock.local.pipeline import LocalPipeline
from waterclock.local.record import Place
from waterclock.local.records import batch_of
from waterclock.local.sources import Input, Source
from waterclock.local.trial import MemoryCheckpoint, MemorySink
from waterclock.rules.model import Rules
from waterclock.sinks import Batch
from waterclock.streaming.toml.steps import Outlet
from waterclock.streaming.topics.offsets import from_json, to_json
from waterclock.streaming.topics.records import Records, TopicLayout, own_watermark

RULES = Rules(key="key", time="at", id="id")
LAYOUT = TopicLayout({"key": "string", "at": "timestamp", "id": "string"}, {}, RULES)
KEYS = [f"key {number}" for number in range(12)]
Told = Mapping[int, Sequence[tuple[str, int]]]  # of partitions: key and hour


class ToldBatches(Source):
    """Batches as they are told."""

    unit, where, idle_s = "records", "a list", 0.0

    def __init__(self, batches: Sequence[Told]) -> None:
        self._batches, self._at = list(batches), to_json({})

    def schema(self) -> pa.Schema:
        return LAYOUT.schema()

    def settings(self) -> Mapping[str, Any]:
        return {}

    def check(self) -> None: ...

    def first(self) -> Place:
        return to_json({})

    def begin(self, places: Sequence[Place], live: bool) -> None: ...

    def take(self) -> Input | None:
        if not self._batches:
            return None
        start, parts, ends = self._at, list[Records](), from_json(self._at)
        for partition, events in self._batches.pop(0).items():
            first = ends.get(("t", partition), 0)
            ends["t", partition] = first + len(events)
            values = [json.dumps({"key": key, "at": f"2026-01-01T{hour:02}:00:00Z"}).encode() for key, hour in events]
            nothing: list[Any] = [None] * len(events)
            if events:
                offsets = list(range(first, first + len(events)))
                parts.append(Records("t", partition, offsets, nothing, nothing, list(values), nothing))
        self._at = to_json(ends)
        return batch_of(parts, start, self._at, LAYOUT, partial(own_watermark, delay_us=0))

    def again(self, start: Place, place: Place) -> Input:
        raise NotImplementedError

    def behind(self, place: Place) -> Mapping[str, int]:
        return {}


class Watermarks(MemorySink):
    """A sink that also keeps the watermark of each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.watermarks: list[int | None] = []

    def write(self, batch: Batch) -> None:
        super().write(batch)
        self.watermarks.append(batch.watermark_us)


@pytest.mark.parametrize("buckets", [2, 16, 64])
def test_behind_a_new_partition_what_was_late_is_late_whichever_bucket_it_is_in(buckets: int) -> None:
    old, late = [(KEYS[0], 10)], [(key, 5) for key in KEYS]
    sink, source = Watermarks(), ToldBatches([{0: old}, {0: [(KEYS[1], 11)]}, {0: [], 1: []}, {0: late}, {1: late}])
    with closing(
        LocalPipeline(
            source, RULES, [Outlet(sink)], MemoryCheckpoint(), close=False, buckets=buckets, clock=ManualClock()
        )
    ) as pipeline:
        pipeline.run()
    rows = [row for table in sink.results for row in table.to_pylist()]
    assert [row["kind"] for row in rows] == ["event"] * 2 + ["late"] * 2 * len(KEYS)
    assert {row["emitted_at"].hour for row in rows[2:]} == {11}
    assert len(set(sink.watermarks[1:])) == 1
