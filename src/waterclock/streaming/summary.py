"""What a pipeline says of itself after each batch, and at the end of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """What a pipeline says after each batch: the totals of the sink so far, and how much of its source is done."""

    batch_id: int
    totals: dict[str, int]
    done: int
    found: int
    unit: str  # of `done` and `found`: "files", "records"
    watermark_us: int | None


@dataclass(frozen=True, slots=True)
class Summary:
    """The end of a run. `totals` are the sink's over all runs; the rest is this run's."""

    pipeline: str
    sink: str
    batches: int
    events: int
    seconds: float
    totals: dict[str, int]

    @property
    def events_per_second(self) -> float:
        return self.events / self.seconds if self.seconds else 0.0
