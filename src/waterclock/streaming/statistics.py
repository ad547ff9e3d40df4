"""What a pipeline reports about itself: a frozen record while it runs; one after each batch, one at the end.

Each field says how it is shown to Prometheus. spark/watching.py brings Spark's part (times of phases, rows and
memory of the state), spark/watching.py how much of the source is not taken yet.

Rule 1: two threads write, each its own fields, and each field is replaced whole: a reader needs no lock. All that a batch
        changes is one field.
Rule 2: the counts are the sink's, over all runs; they agree with its tables after each batch. Spark's part comes a moment
        later than the batch, and begins with the run.
Rule 3: what is not known is None, or is left out. It is never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

from waterclock.clock import WallClock
from waterclock.letters import HIDDEN, LETTERS, LetterStatistics, newest, shortened
from waterclock.web.record import LABEL, Each, Shown, counter, gauge, page, summary

if TYPE_CHECKING:
    import pyarrow as pa

WINDOW_S = 60.0
HELD = 20  # keys
HeldKeys = Sequence[tuple[str | int, int, int | None, int | None]]  # streaming/state/held.py
BehindOf = Callable[[Mapping[str, int] | None], Mapping[str, int] | None]  # the sink's totals -> what no batch took
_TOGETHER_S = 0.5  # batches of one moment: there may be hundreds a second
Recent = tuple[tuple[float, int, int], ...]  # (when, events, results) of the batches of the last minute
COUNTED = {  # counter of the sink -> what it counts; the site's reference has a table of the metrics
    "events": "Events taken from the source, duplicates and late ones too.",
    "results": "Results written to the sink.",
    "released": "Events released in their order.",
    "reordered": "Events that came out of order.",
    "duplicates": "Events removed as seen before.",
    "late": "Events that came behind the watermark.",
    "dead_letters": "Lines and records that could not be read, or not be kept.",
    "heartbeats": "Rows that carry nothing but a time.",
}


@dataclass(frozen=True, slots=True)
class Phase:
    """Seconds that a phase of the batches took.

    >>> Phase(last_s=0.5, total_s=3.0, count=4).plus(1.0)
    Phase(last_s=1.0, total_s=4.0, count=5)
    """

    last_s: float
    # of all batches of this run
    total_s: float = field(
        metadata=summary("batch_phase_seconds", "Seconds of this run's batches by phase.", count="count")
    )
    count: int

    def plus(self, seconds: float) -> Phase:
        """With one batch more."""
        return Phase(seconds, self.total_s + seconds, self.count + 1)


def _total(name: str) -> Callable[[PipelineStatistics], int | None]:
    """None before the sink is open: a 0 in between would look like a counter that was set back."""
    return lambda record: None if record.totals is None else record.count(name)


def _totals() -> dict[str, Shown]:
    """How the sink's counters are shown."""
    return {
        **{name: shown for name, what in COUNTED.items()
           for shown in counter(name, what, " Over all runs.", of=_total(name)).values()},
        **gauge("held_events", "Events that wait for their order.", of=_total("held")),
        **gauge("pending_deadlines", "Deadlines that are set: open expectations, delays, deliveries, silences.",
                of=_total("pending")),
        **gauge("state_bytes", "What all buckets keep, as it is stored.", of=_total("state_bytes")),
    }  # fmt: skip


def _behind_in(unit: str) -> dict[str, Shown]:
    """How `behind` is shown in its unit, by topic and partition; of files there is one figure without labels."""

    def of(record: PipelineStatistics) -> dict[tuple[str, ...], int] | None:
        if record.behind is None or record.unit != unit:
            return None
        return {tuple(place.rsplit("/", 1)) if place else (): count for place, count in record.behind.items()}

    return gauge(f"source_behind_{unit}", f"What the source has and no batch took, in {unit}.", of, "topic partition")


@dataclass(frozen=True, slots=True)
class HeldStatistics:
    """A key whose events wait for their order: how many; the number that is missing, None of an order by time; and the
    watermark at which the first of them waits no longer, in microseconds, None if that is never."""

    key: str
    events: int
    missing: int | None
    until_us: int | None


@dataclass(frozen=True, slots=True)
class PipelineStatistics:
    """A pipeline at one moment; `Pipeline.statistics()` returns it. `dataclasses.asdict` makes what JSON takes.

    Times are microseconds since 1970; the watermark is None before the first one, and lies in the year 9999 once the
    pipeline is closed.

    >>> PipelineStatistics("orders", totals={"events": 5, "held": 2}, watermark_us=1_000_000, newest_us=4_000_000).held
    2
    """

    pipeline: str = field(metadata=LABEL)
    batches: int = field(default=0, metadata=counter("batches", "Batches committed by this run.", since=""))
    batch_id: int | None = None  # of the last one
    # the sink's counters, over all runs; None before it is open
    totals: Mapping[str, int] | None = field(default=None, metadata=_totals())
    events_per_second: float | None = None  # over the last minute, or since the start; None before it
    results_per_second: float | None = None
    watermark_us: int | None = field(
        default=None,
        metadata={
            **gauge("watermark_timestamp_seconds", "The watermark, since 1970."),
            **gauge("watermark_behind_newest_event_seconds", "From the watermark to the newest event.",
                    of=attrgetter("behind_newest_s")),
            **gauge("watermark_behind_now_seconds", "From the watermark to now.", of=attrgetter("behind_now_s")),
        },
    )  # fmt: skip
    # of the events that this run took
    newest_us: int | None = field(
        default=None, metadata=gauge("newest_event_timestamp_seconds", "The largest time of an event.")
    )
    now_us: int = 0  # wall time of this record
    unit: str = ""  # of `behind`: "files", "records"
    # what the source has and no batch took: by TOPIC/PARTITION, or ""
    behind: Mapping[str, int] | None = field(default=None, metadata={**_behind_in("files"), **_behind_in("records")})
    state_rows: int | None = field(
        default=None, metadata=gauge("state_rows", "Rows in Spark's state store: one for each bucket that was used.")
    )
    state_memory_bytes: int | None = field(
        default=None, metadata=gauge("state_memory_bytes", "Memory of Spark's state store, caches included.")
    )
    # by name; docs/operations.md says which lies in which
    phases: Mapping[str, Phase] | None = field(default=None, metadata={"": Each("phase")})
    # by TOPIC/PARTITION, those furthest behind, which hold back the others; None of one of which nothing was read
    watermarks: Mapping[str, int | None] | None = None
    letters: tuple[LetterStatistics, ...] = ()  # the last ones of this run
    # the fullest keys, of buckets that this run worked on; streaming/state/held.py says which of them are known
    held_keys: tuple[HeldStatistics, ...] = ()

    def hidden(self) -> PipelineStatistics:
        """Without what somebody sent: values and keys."""
        keys = tuple(replace(each, key=f"{HIDDEN} {n}") for n, each in enumerate(self.held_keys, 1))
        return replace(self, letters=tuple(each.hidden() for each in self.letters), held_keys=keys)

    def count(self, name: str) -> int:
        """One of the totals; 0 if nothing of it was counted."""
        return (self.totals or {}).get(name, 0)

    @property
    def events(self) -> int:
        """Events taken, duplicates and late ones too."""
        return self.count("events")

    @property
    def results(self) -> int:
        """Results that were written."""
        return self.count("results")

    @property
    def held(self) -> int:
        """Events that wait for their order."""
        return self.count("held")

    @property
    def pending(self) -> int:
        """Deadlines that are set: open expectations, delays, deliveries, silences."""
        return self.count("pending")

    @property
    def late(self) -> int:
        """Events that came behind the watermark."""
        return self.count("late")

    @property
    def dead_letters(self) -> int:
        """What could not be read, or not be kept."""
        return self.count("dead_letters")

    @property
    def state_bytes(self) -> int:
        """What all buckets keep, as it is stored."""
        return self.count("state_bytes")

    @property
    def behind_newest_s(self) -> float | None:
        """Seconds from the watermark to the newest event; 0 once the watermark has passed it."""
        return None if self.newest_us is None else self._behind(self.newest_us)

    @property
    def behind_now_s(self) -> float | None:
        """Seconds from the watermark to now; 0 if it lies ahead."""
        return self._behind(self.now_us)

    def _behind(self, moment_us: int) -> float | None:
        return None if self.watermark_us is None else max(0, moment_us - self.watermark_us) / 1e6


def prometheus(statistics: PipelineStatistics) -> str:
    """The page for one pipeline; each sample carries its name.

    >>> page = prometheus(PipelineStatistics("orders", totals={"events": 1200}))
    >>> [line for line in page.splitlines() if line.startswith("waterclock_events")]
    ['waterclock_events_total{pipeline="orders"} 1200']
    """
    return page(statistics, "")


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


@dataclass(frozen=True, slots=True)
class _Taken:
    """What the batches brought that were taken."""

    batches: int = 0
    batch_id: int | None = None
    totals: Mapping[str, int] | None = None  # None until the sink is known
    watermark_us: int | None = None
    newest_us: int | None = None
    recent: Recent = ()
    phases: Mapping[str, Phase] = field(default_factory=dict)
    watermarks: Mapping[str, int | None] | None = None
    letters: tuple[LetterStatistics, ...] = ()
    held: Mapping[str, HeldKeys] = field(default_factory=dict)  # by bucket

    def within(self, now_s: float) -> Recent:
        return tuple(each for each in self.recent if now_s - each[0] < WINDOW_S)

    def and_now(self, now_s: float, events: int, results: int) -> Recent:
        """`within`, and this batch."""
        before = self.within(now_s)
        if not before or now_s - before[-1][0] >= _TOGETHER_S:
            return (*before, (now_s, events, results))
        when, more, made = before[-1]
        return (*before[:-1], (when, events + more, results + made))


class Gatherer:
    """What is known of one run so far. `took` is the driver's to call, `heard` the listener's; `seen` anybody's."""

    def __init__(self, pipeline: str, clock: WallClock) -> None:
        self._pipeline, self._clock = pipeline, clock
        self._started_s: float | None = None
        self._taken = _Taken()
        self._sparks: Mapping[str, Phase] = {}
        self._state: tuple[int | None, int | None] = (None, None)

    def holds(self, totals: Mapping[str, int]) -> None:
        """The sink is open; so much it holds of earlier runs."""
        self._taken = replace(self._taken, totals=totals)

    def begin(self) -> None:
        """A run starts, with what the sink holds."""
        self._started_s, self._taken = self._clock.monotonic_s(), _Taken(totals=self._taken.totals)

    def took(
        self,
        batch_id: int,
        counters: Mapping[str, int],
        totals: Mapping[str, int],
        times: tuple[int | None, int | None],
        phases: Mapping[str, float],
        watermarks: Mapping[str, int | None] | None = None,
        dead: pa.Table | None = None,
        held: Iterable[Mapping[str, HeldKeys] | None] = (),
    ) -> None:
        """A batch is committed: what it counted, the totals after it, (watermark, newest event), seconds by phase, the
        watermarks of the partitions that are furthest behind, None if it says nothing of them; its dead letters; the
        keys that hold most, as each frame says them: the last one of a bucket is right."""
        now_s, before = self._clock.monotonic_s(), self._taken
        self._taken = _Taken(
            before.batches + 1,
            batch_id,
            totals,
            _later(before.watermark_us, times[0]),
            _later(before.newest_us, times[1]),
            before.and_now(now_s, counters.get("events", 0), counters.get("results", 0)),
            _added(before.phases, phases),
            before.watermarks if watermarks is None else watermarks,
            before.letters if dead is None else newest(_letters(dead, self._clock.wall_ms()), before.letters),
            {bucket: keys for said in (before.held, *held) for bucket, keys in (said or {}).items()},
        )

    def heard(self, progress: Any) -> None:
        """Spark's own record of a batch."""
        seconds = {name: ms / 1000 for name, ms in progress.durationMs.items()}
        self._sparks = _added(self._sparks, seconds)
        operators = progress.stateOperators
        if operators:
            self._state = (sum(o.numRowsTotal for o in operators), sum(o.memoryUsedBytes for o in operators))

    def seen(self, unit: str, behind_of: BehindOf) -> PipelineStatistics:
        """The record of now. `behind_of` gets the very totals that it shows: a batch may end meanwhile."""
        taken = self._taken
        behind, now_s = behind_of(taken.totals), self._clock.monotonic_s()
        recent, began_s = taken.within(now_s), now_s if self._started_s is None else self._started_s
        over_s = min(WINDOW_S, now_s - began_s)
        events, results = sum(r[1] for r in recent), sum(r[2] for r in recent)
        return PipelineStatistics(
            self._pipeline, taken.batches, taken.batch_id, taken.totals,
            events / over_s if over_s else None, results / over_s if over_s else None,
            taken.watermark_us, taken.newest_us, self._clock.wall_ms() * 1000, unit, behind, *self._state,
            {**self._sparks, **taken.phases}, taken.watermarks, taken.letters, _fullest(taken.held),
        )  # fmt: skip


def _letters(dead: pa.Table, now_ms: int) -> list[LetterStatistics]:
    """The last of a batch's."""
    rows = dead.slice(max(0, dead.num_rows - LETTERS)).to_pylist()
    return [
        LetterStatistics(
            row["file"] if row["line"] is None else f"{row['file']} {row['line']}", now_ms, row["reason"],
            shortened((row["text"] or "").encode()),
        )
        for row in rows
    ]  # fmt: skip


def _fullest(held: Mapping[str, HeldKeys]) -> tuple[HeldStatistics, ...]:
    most = nlargest(HELD, (key for some in held.values() for key in some), itemgetter(1))
    return tuple(HeldStatistics(shortened(str(key).encode()), n, missing, until) for key, n, missing, until in most)


def _later(before: int | None, moment: int | None) -> int | None:
    known = [us for us in (before, moment) if us is not None]
    return max(known, default=None)


def _added(phases: Mapping[str, Phase], seconds: Mapping[str, float]) -> Mapping[str, Phase]:
    none = Phase(0.0, 0.0, 0)
    return {**phases, **{name: phases.get(name, none).plus(each) for name, each in seconds.items()}}
