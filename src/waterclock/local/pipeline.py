"""A pipeline on one machine without Spark, exactly once: results and what was read are one transaction, and the state is a
cache of the log.

A start, numbered:
    1. the sinks' tables are made or checked, the checkpoint is claimed; its last batch is the sinks'
    2. each bucket is loaded as its last snapshot has it, if all sinks have that batch
    3. each batch behind the oldest one is read once more, as its record says, and applied; its results are thrown away, but
       for a sink that lacks them (outlets.py, rule 1)
    4. the batches go on behind the last record

A batch, numbered (2 to 5 stand in sinks/base.py):
    1. rows are taken, and the rules applied   2. begin   3. refuse what is applied   4. write, with the record   5. commit
    6. the buckets whose turn it is, are written; of a live run also while nothing comes

Rule 1: state is what the engine makes of the recorded inputs, in their order (state.py, rule 1).
Rule 2: what a batch read is recorded, not asked again (record.py, rule 2).
Rule 3: rows of a batch are in the order of topic, partition and offset, or of files: not as they arrived.
Rule 4: a replay must find the watermark and the counts that were recorded, or it read other bytes: StateMismatch.
Rule 5: a crash leaves seconds to be derived again: by the same version and the same settings, else StateMismatch. A clean
        end writes every bucket, and leaves nothing.
Rule 6: the source keeps what was read since the oldest snapshot: about two rounds of `snapshot_s`.
Rule 7: dead letters and heartbeats are made of the same bytes in the same batch, and thrown away in a replay like results.
Rule 8: what a user's own function makes in front of the rules cannot be known to come again: it is Spark's.
Rule 9: a snapshot is never ahead of the sink; where the sink was put back to an older copy, it is not believed.
Rule 10: a batch that is not in the sink was never seen: it is cut anew.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass
from importlib.metadata import version
from uuid import uuid4

import pyarrow as pa

from waterclock.clock import SystemClock, WallClock
from waterclock.errors import SinkLost, StateMismatch, UsageError
from waterclock.local.ahead import ahead
from waterclock.local.checkpoint import Kept, LocalCheckpoint, settings_with
from waterclock.local.outlets import Outlets
from waterclock.local.record import Record, begin_of, record_of
from waterclock.local.snapshots import Written
from waterclock.local.sources import Input, Source
from waterclock.local.state import Buckets, Outcome
from waterclock.rules.engine import NO_WATERMARK
from waterclock.rules.model import Rules
from waterclock.signals import StopEvent, interrupt_heard
from waterclock.sinks import Batch, RecordingSink
from waterclock.streaming import frames
from waterclock.streaming.checkpoint import refuse_handed_over
from waterclock.streaming.layout import CLOSING_US, EARLIEST_US, END_US, came_after_the_close, was_closed
from waterclock.streaming.state import bucket
from waterclock.streaming.statistics import Gatherer, PipelineStatistics, Progress, Summary
from waterclock.streaming.toml.steps import Outlet
from waterclock.wording import counted

log = logging.getLogger(__name__)
SYSTEM = SystemClock()
SNAPSHOT_S = 2.0  # in which every bucket is written once
FOLDED = 1_000  # so many rows of batches that are in every snapshot become one


def turns(seconds: float, buckets: int) -> int:
    """How many of so many buckets are to be written, so long after some were.

    >>> turns(0.4, 4), turns(0.5, 4), turns(60.0, 4)
    (0, 1, 4)
    """
    return min(int(seconds * buckets / SNAPSHOT_S), buckets)


@dataclass(frozen=True, slots=True)
class Made:
    """A batch for the sink, and the buckets that are written behind it."""

    batch: Batch
    written: list[Written]
    newest_us: int | None
    seconds: float
    anew: Mapping[str, str]


class LocalPipeline:
    """A source, rules and sinks, with a checkpoint. One run at a time."""

    def __init__(
        self, source: Source, rules: Rules, sinks: Sequence[Outlet[RecordingSink]], checkpoint: LocalCheckpoint, *,
        watermark_delay_us: int = 0, close: bool = True, name: str = "pipeline", buckets: int = 4, linger_s: float = 0.0,
        clock: WallClock = SYSTEM,
    ) -> None:  # fmt: skip
        self._source, self._rules, self._outlets, self._name = source, rules, Outlets(sinks), name
        self._delay_us, self._closes, self._count, self._linger_s = watermark_delay_us, close, buckets, linger_s
        event = source.schema()
        self._schema = frames.result_schema(event.field(rules.key).type, event)
        self._checkpoint = checkpoint
        self._settings, self._digest = settings_with(source, rules, watermark_delay_us, buckets)
        self._version = version("waterclock")
        self._last_us = CLOSING_US - watermark_delay_us
        self._clock = clock
        self._gathering = Gatherer(name, clock)
        self._ended, self._has_failed, self._is_checked = StopEvent(), False, False
        self._totals: dict[str, int] = {}
        self._batches = self._events = self.replayed = self._folded = 0

    def __enter__(self) -> LocalPipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def end(self) -> None:
        """Let a live run end behind the batch that is under way; for another thread, and for a handler of signals."""
        self._ended.set()

    def statistics(self) -> PipelineStatistics:
        """What the pipeline did so far; for any thread."""
        return self._gathering.seen(self._source.unit, lambda totals: None)

    def check_source(self) -> None:
        """UsageError or EnvironmentMissing for what cannot be read."""
        self._source.check()

    def check(self) -> None:
        """Steps 1 and 2, and what must be right before: UsageError, StateMismatch or EnvironmentMissing."""
        if self._is_checked:
            return
        self.check_source()
        self._checkpoint.take(self._settings, self._outlets.place, self._source)
        serves = self._outlets.open(self._schema)
        refuse_handed_over(self._checkpoint.path, serves)
        self._query = serves or self._checkpoint.query or uuid4().hex  # 1
        self._count_all()
        self._batch, self._whole = self._outlets.last, self._outlets.whole
        self._snapshots = snapshots = self._checkpoint.snapshots()
        if (had := snapshots.last(self._query)) > self._batch:
            log.warning(
                "%s has no batch behind %d, and the checkpoint %s was at batch %d: what came behind it is read again, as "
                "far as the source has it still",
                self._outlets.describe(), self._batch, self._checkpoint.path, had,
            )  # fmt: skip
        stored = snapshots.load(self._query, self._whole)
        self._kept = {place: stored.get(place, (-1, None))[0] for place in range(self._count)}
        self._buckets = Buckets(self._rules, self._count, snapshots, stored)
        if self._checkpoint.is_another_source and (self._source.refuses_another or self._buckets.at() < self._batch):
            raise StateMismatch(
                f"a topic of [source] was made anew since the checkpoint {self._checkpoint.path} was made: what is in it "
                "now was never read. Start over with --fresh, or name another checkpoint and another table"
            )
        self._checkpoint.begin(self._query)
        self._is_checked = True

    def run(self, live: bool = False, report: Callable[[Progress], None] | None = None) -> Summary:
        """Read what there is and close; with `live`, go on until `end`, Ctrl-C, or the close of all of the source."""
        with interrupt_heard(lambda *_: self.end()) if live else nullcontext():
            return self._run(live, report)

    def _run(self, live: bool, report: Callable[[Progress], None] | None) -> Summary:
        self.check()
        if self._has_failed:  # its source and its buckets may be ahead of the sinks
            raise UsageError("the last run failed: close this pipeline, and make another with its checkpoint")
        self._has_failed = True  # until it ends
        began_s, self._report = self._clock.monotonic_s(), report
        self._gathering.begin()
        self._begin(live)
        self._snapped_s = self._moment_s = self._clock.monotonic_s()
        if not self._closed:
            made = self._ruled(self._live() if live else ahead(self._all()))
            with closing(made if live else ahead(made, self._source.hurry)) as batches:
                for each in batches:
                    self._write(each)
        self._keep(self._buckets.all_written())
        self._ended, self._has_failed = StopEvent(), False
        seconds = self._clock.monotonic_s() - began_s
        return Summary(
            self._name, self._outlets.describe(), self._batches, self._events, seconds, self._outlets.totals()
        )

    def kept(self) -> Kept:
        """What another engine goes on from; UsageError or StateMismatch if its buckets lack what the sink has."""
        self.check()
        only, at, records, path = self._outlets.only(), self._buckets.at(), self._records(), self._checkpoint.path
        self._refuse_others(records, at)
        if self._batch < 0:
            raise UsageError(
                f"{self._outlets.describe()} has no batch yet, so there is no state to carry over: write the other engine "
                "and another checkpoint under [pipeline]"
            )
        if at < self._batch:
            raise StateMismatch(
                f"the state in the checkpoint {path} lacks batches up to {self._batch}, which {self._outlets.describe()} "
                "has: the last run did not end cleanly. Start it once more with this engine, let it end, then carry over"
            )
        last = records[at]
        self._buckets.watermarks = bucket.Watermarks(last.clock)
        if self._is_closed():
            raise was_closed(path)
        stored = [held for _, (_, held) in sorted(self._snapshots.load(self._query, at).items())]
        places = [record.place for _, record in sorted(records.items())]
        first, shelf = self._checkpoint.first, self._snapshots.shelf
        return Kept(path, self._rules, only.sink, only.schema, at, first, places, last.clock, stored, shelf)

    def close(self) -> None:
        """End of use."""
        self._source.close()
        self._outlets.close()
        self._checkpoint.close()

    def _count_all(self) -> None:
        self._totals = self._outlets.totals()
        self._gathering.holds(self._totals)

    # a start -------------------------------------------------------------------------------------------------

    def _begin(self, live: bool) -> None:
        first, at = self._checkpoint.first, self._buckets.at()
        records = self._records()
        self._refuse_others(records, at)
        if at >= 0:
            self._buckets.watermarks = bucket.Watermarks(records[at].clock)
        for number in range(at + 1, self._batch + 1):  # 3
            self._replay(number, records[number])
        if self._whole < self._batch:
            self._count_all()
        self._snapshots.forget_others(self._query, self._batch)
        last = records.get(self._batch)
        self._closed, self._place = self._is_closed(), last.place if last else first
        self._source.begin([first, *(record.place for record in records.values())], live)
        if self._closed and (behind := sum(self._source.behind(self._place).values())):
            raise came_after_the_close(counted(behind, self._source.unit[:-1]), self._source.where)

    def _records(self) -> dict[int, Record]:
        return {batch: record_of(text, self._outlets.describe()) for batch, text in self._outlets.inputs(self._query)}

    def _refuse_others(self, records: dict[int, Record], at: int) -> None:
        """Rule 5, and a log that is not whole."""
        last = records.get(self._batch)
        if last is not None and last.settings != self._digest:
            raise StateMismatch(
                f"{self._outlets.describe()} was written with other rules, columns, delay or source: its state would mean "
                "something else now. Undo the change, or start over with --fresh."
            )
        since = max(at, 0) if self._source.forgets else min(max(at, 0), begin_of(records))
        if missing := [number for number in range(since, self._batch + 1) if number not in records]:
            what = self._outlets.older() or ("the checkpoint" if self._source.forgets else "its rows of batches")
            raise StateMismatch(
                f"{self._outlets.describe()} lacks the record of batch {missing[0]}, and the checkpoint "
                f"{self._checkpoint.path} does not have what it read: restore {what}, or start over with --fresh."
            )
        if others := {records[n].version for n in range(at + 1, self._batch + 1)} - {self._version}:
            raise StateMismatch(
                f"the last batches were made by waterclock {min(others)}, which did not end cleanly, and this is "
                f"{self._version}: their state has to be derived by the same. Start once with that version, let it end, "
                "and go on with this one."
            )

    def _replay(self, number: int, record: Record) -> None:
        given = Input(record.place, record.clock) if record.closes else self._source.again(record.start, record.place)
        began_s, ruled = self._clock.monotonic_s(), self._buckets.apply(number, given)
        self.replayed += 1
        clock, read = self._buckets.watermarks.dump(), given.read()
        for what, found, known in (("times", clock, record.clock), ("counts", read, record.read)):
            if known and found != dict(known):
                raise StateMismatch(
                    f"batch {number} was read once more, and says other {what} than before ({found}, not {dict(known)}): "
                    "its source was changed, or cannot be read. Put it back as it was, or start over with --fresh."
                )
        if number > self._whole:
            self._snapshots.forget_others(self._query, number - 1)
            seconds = self._clock.monotonic_s() - began_s
            self._outlets.write(self._batch_of(number, given, ruled, ruled.written, record, seconds))
        self._keep(ruled.written)

    # a run ---------------------------------------------------------------------------------------------------

    def _all(self) -> Generator[Input | None]:
        """What there is, and behind it None, which closes."""
        while not self._ended.is_set():
            if (given := self._source.take()) is None:
                if self._closes:
                    yield None
                return
            yield given

    def _live(self) -> Generator[Input | None]:
        while not (self._ended.is_set() or self._is_closed()):
            if (given := self._source.take()) is not None:
                yield given
            else:  # rule 6 holds where nothing comes, too
                self._keep(self._due(self._batch > min(self._kept.values())))
            if given is None or not given.is_full:  # who has more to read rests for nothing
                self._ended.wait(self._source.idle_s if given is None else self._linger_s)

    def _ruled(self, inputs: Generator[Input | None]) -> Generator[Made]:
        number = self._batch
        with closing(inputs):
            for given in inputs:  # 1
                began_s, number = self._clock.monotonic_s(), number + 1
                yield self._made(number, given, began_s)

    def _made(self, number: int, given: Input | None, began_s: float) -> Made:
        start, closes = self._place, given is None
        if given is None:
            clock = dict.fromkeys(self._buckets.watermarks.dump() or {"files": None}, END_US - self._delay_us)
            given = Input(start, clock)
        self._place = given.place
        ruled = self._buckets.apply(number, given)
        written = [*ruled.written, *(self._buckets.all_written() if given.anew else self._due())]
        came = self._buckets.watermarks.dump(), closes, given.read()
        record = Record(self._digest, self._version, start, given.place, *came)
        now_s = self._clock.monotonic_s()
        batch = self._batch_of(number, given, ruled, written, record, now_s - self._moment_s)
        self._moment_s = now_s
        return Made(batch, written, bucket.newest_us(given.rows, self._rules.time), now_s - began_s, given.anew)

    def _due(self, is_behind: bool = True) -> list[Written]:
        now_s = self._clock.monotonic_s()
        if due := turns(now_s - self._snapped_s, self._count):
            self._snapped_s = now_s
        return self._buckets.next_written(due) if is_behind else []

    def _batch_of(
        self, number: int, given: Input, ruled: Outcome, written: list[Written], record: Record, seconds: float
    ) -> Batch:
        """What comes to the sinks."""
        found = [frames.conform(frames.chosen(frame, self._schema.names), self._schema) for frame in ruled.results]
        rows = frames.up_to(self._last_us, pa.concat_tables([self._schema.empty_table(), *found]))
        grown = sum(each.grown for each in written)
        counters = frames.sum_counters(
            [given.counters, ruled.counters, {"results": rows.num_rows, "state_bytes": grown}]
        )
        dead = pa.concat_tables([frames.DEAD_SCHEMA.empty_table(), *given.dead])
        return Batch(
            self._query, number, record.text(), rows, dead, counters, self._watermark(), seconds, is_logged=True
        )

    def _watermark(self) -> int | None:
        us = self._buckets.watermark_us()
        return min(us, self._last_us) if us != NO_WATERMARK and us >= EARLIEST_US else None

    def _is_closed(self) -> bool:
        """Whether the watermark has passed everything: by the batch that closes, or by heartbeats."""
        return self._watermark() == self._last_us

    def _write(self, made: Made) -> None:
        began_s, batch = self._clock.monotonic_s(), made.batch
        written = self._outlets.write(batch)  # 2 3 4 5
        self._batch = batch.batch_id
        self._batches += 1
        self._events += written.counters.get("events", 0)
        self._totals = frames.sum_counters([self._totals, written.counters])
        phases = {"take": made.seconds, "sink": self._clock.monotonic_s() - began_s}
        times = (batch.watermark_us, made.newest_us)
        self._gathering.took(batch.batch_id, written.counters, self._totals, times, phases, None, batch.dead_letters)
        self._keep(made.written)  # 6
        if made.anew:  # no start needs what was there before
            self._checkpoint.begin(self._query, identity=made.anew)
        if self._report is not None:
            done = self._totals.get(self._source.unit, 0)
            self._report(Progress(batch.batch_id, self._totals, done, done, self._source.unit, batch.watermark_us))

    def _keep(self, written: list[Written]) -> None:
        if not written:
            return
        self._kept |= {each.bucket: each.batch_id for each in written}
        oldest = min(self._kept.values())
        folds = self._source.forgets and oldest - self._folded >= FOLDED
        self._snapshots.write(self._query, written, lasts=folds)
        self._buckets.wrote(written)
        if folds:
            with suppress(SinkLost):  # the next one does it
                self._outlets.fold(self._query, oldest)
                self._folded = oldest
