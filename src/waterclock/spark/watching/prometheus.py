"""A pipeline's statistics as Prometheus's text; docs/operations.md has the names in a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from waterclock.streaming.statistics import Phase, PipelineStatistics
from waterclock.web.metrics import Metric, Sample, text

# counter of the sink -> what it counts
COUNTED = {
    "events": "Events taken from the source, duplicates and late ones too.",
    "results": "Results written to the sink.",
    "released": "Events released in their order.",
    "reordered": "Events that came out of order.",
    "duplicates": "Events removed as seen before.",
    "late": "Events that came behind the watermark.",
    "dead_letters": "Lines and records that could not be read, or not be kept.",
    "heartbeats": "Rows that carry nothing but a time.",
}
GAUGES = {
    "held_events": ("held", "Events that wait for their order."),
    "pending_deadlines": ("pending", "Deadlines that are set: open expectations, delays, deliveries, silences."),
    "state_bytes": ("state_bytes", "What all buckets keep, as it is stored."),
}


def prometheus(statistics: PipelineStatistics) -> str:
    """The page for one pipeline; each sample carries its name.

    >>> page = prometheus(PipelineStatistics("orders", totals={"events": 1200}))
    >>> [line for line in page.splitlines() if line.startswith("waterclock_events")]
    ['waterclock_events_total{pipeline="orders"} 1200']
    """
    return text(metrics(statistics))


def metrics(s: PipelineStatistics) -> Iterator[Metric]:
    """The metrics of one pipeline."""
    mine = {"pipeline": s.pipeline}
    for name, what in COUNTED.items():
        yield Metric(f"waterclock_{name}_total", "counter", f"{what} Over all runs.", _total(s, name, mine))
    yield Metric("waterclock_batches_total", "counter", "Batches committed by this run.", (Sample(s.batches, mine),))
    for name, (counter, what) in GAUGES.items():
        yield Metric(f"waterclock_{name}", "gauge", what, _total(s, counter, mine))
    for name, value, what in _measured(s):
        yield Metric(f"waterclock_{name}", "gauge", what, () if value is None else (Sample(value, mine),))
    yield _behind(s, mine)
    yield _phases(s.phases or {}, mine)


def _total(s: PipelineStatistics, counter: str, mine: Mapping[str, str]) -> tuple[Sample, ...]:
    """None before the sink is open: a 0 in between would look like a counter that was set back."""
    return () if s.totals is None else (Sample(s.count(counter), mine),)


def _measured(s: PipelineStatistics) -> Iterator[tuple[str, float | None, str]]:
    """(name, value, what it is) of what may be unknown."""
    mark, newest = s.watermark_us, s.newest_us
    yield "watermark_timestamp_seconds", None if mark is None else mark / 1e6, "The watermark, since 1970."
    yield "newest_event_timestamp_seconds", None if newest is None else newest / 1e6, "The largest time of an event."
    yield "watermark_behind_newest_event_seconds", s.behind_newest_s, "From the watermark to the newest event."
    yield "watermark_behind_now_seconds", s.behind_now_s, "From the watermark to now."
    yield "state_rows", s.state_rows, "Rows in Spark's state store: one for each bucket that was used."
    yield "state_memory_bytes", s.state_memory_bytes, "Memory of Spark's state store, caches included."


def _behind(s: PipelineStatistics, mine: Mapping[str, str]) -> Metric:
    samples = []
    for place, count in (s.behind or {}).items():
        topic, _, partition = place.rpartition("/")
        samples.append(Sample(count, {**mine, **({"topic": topic, "partition": partition} if place else {})}))
    unit = s.unit or "files"
    what = f"What the source has and no batch took, in {unit}."
    return Metric(f"waterclock_source_behind_{unit}", "gauge", what, tuple(samples))


def _phases(phases: Mapping[str, Phase], mine: Mapping[str, str]) -> Metric:
    samples = []
    for name, phase in sorted(phases.items()):
        labels = {**mine, "phase": name}
        samples += [Sample(phase.total_s, labels, "_sum"), Sample(phase.count, labels, "_count")]
    return Metric(
        "waterclock_batch_phase_seconds", "summary", "Seconds of this run's batches by phase.", tuple(samples)
    )
