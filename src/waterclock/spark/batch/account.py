"""What a run has written: its batches, its events, the sink's totals, and what frames say beside their rows.

Rule 1: it is told of a batch once that is in the sink; where a batch is written beside Spark's next one, by that thread.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from waterclock.clock import WallClock
from waterclock.sinks import Batch
from waterclock.streaming import frames
from waterclock.streaming.statistics import Gatherer, Summary


class Account:
    """Of one run of the pipeline `name`; `gathering` is the record that others look at."""

    def __init__(self, name: str, clock: WallClock) -> None:
        self._name, self.gathering = name, Gatherer(name, clock)
        self.batches = self.events = 0
        self.totals: dict[str, int] = {}

    def begin(self) -> None:
        """A run starts: what one before it wrote is not its own."""
        self.batches = self.events = 0
        self.gathering.begin()

    def holds(self, totals: dict[str, int]) -> None:
        """The sink is open; so much it holds of earlier runs."""
        self.totals = totals
        self.gathering.holds(totals)

    def wrote(self, batch_id: int, batch: Batch, taken: list[pa.Table], phases: Mapping[str, float]) -> None:
        """Batch `batch_id`, made of the frames `taken`, is in the sink as `batch`; `phases` are seconds."""
        self.batches += 1
        self.events += batch.counters.get("events", 0)
        self.totals = frames.sum_counters([self.totals, batch.counters])  # a live run has batches without end
        said = [frames.note(frame, "newest") for frame in taken]
        newest = max((us for us in said if us is not None), default=None)
        slowest = next((some for frame in taken if (some := frames.note(frame, "watermarks"))), None)
        times, held = (batch.watermark_us, newest), [frames.note(frame, "held") for frame in taken]
        letters = batch.dead_letters
        self.gathering.took(batch_id, batch.counters, self.totals, times, phases, slowest, letters, held)

    def summary(self, where: str, seconds: float, totals: dict[str, int]) -> Summary:
        """Of a run that took so many `seconds`; `where` its sinks are, and the `totals` of the first one."""
        return Summary(self._name, where, self.batches, self.events, seconds, totals)
