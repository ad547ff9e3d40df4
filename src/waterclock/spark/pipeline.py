"""A pipeline from its source to a sink, exactly once.

Start, numbered:
    1. the sink's tables are made or checked; refuse a sink that is ahead of the checkpoint
    2. the checkpoint is claimed for these settings; refuse others
    3. the query starts where the checkpoint ends

A batch, numbered (2 to 5 stand in sinks/base.py, and each crash point between two numbers has a test):
    1. the result frames are taken, once: every action on a batch's frame would run the whole plan again. Where the sink has
       executors write, their tasks do it here, and what is taken names the files (batch/batches.py)
    2. begin   3. refuse what is applied   4. write   5. commit

With a source and sinks of ours 2 to 5 are done by a thread, while Spark notes the batch as done and is at the next one,
which waits for it behind its own step 1 (batch/beside.py; what a kill leaves then: checkpoint/taken_back.py). Where the
source brings changes of tables there are no rules: its packed rows are the result frames.

A bounded run (`--once`) ends with the closing heartbeat: nothing stays held but what lies behind a gap with `hold`. A live
run ends on Ctrl-C or `end`, or when its source was closed: when the watermark passes everything.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException, StreamingQueryException

from waterclock.clock import SystemClock
from waterclock.durations import Duration, duration_us
from waterclock.errors import StateMismatch
from waterclock.rules.model import Rules
from waterclock.sinks import Batch, Sink
from waterclock.spark.batch.account import Account
from waterclock.spark.batch.batches import batch_of, refuse_rows_in
from waterclock.spark.batch.beside import BesideWriter
from waterclock.spark.batch.outlets import Outlets, outlets_of
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.checkpoint.reads import Reads, set_aside
from waterclock.spark.checkpoint.state_files import refuse_unseen_state
from waterclock.spark.fresh import removal_of
from waterclock.spark.packing import operator
from waterclock.spark.session.cluster import cores_of
from waterclock.spark.session.session import check as check_session
from waterclock.spark.session.session import interpreted, session_for
from waterclock.spark.session.starts import Starts, call_interruptible, explained
from waterclock.spark.source import results_schema
from waterclock.spark.streams import check_source, stream_of
from waterclock.spark.succession import Succession
from waterclock.spark.watching import Behind, listening
from waterclock.streaming.buckets import BUCKETS, by_cores, checked
from waterclock.streaming.checkpoint import settings_of
from waterclock.streaming.layout import CLOSING_US
from waterclock.streaming.owner import owner_of
from waterclock.streaming.places.place import Place, is_remote, place_of
from waterclock.streaming.statistics import PipelineStatistics, Progress, Summary
from waterclock.streaming.toml.config import Config
from waterclock.streaming.toml.table import check_places, plain_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from waterclock.spark.streams import Source

_LOOK_EVERY_S = 0.1


class Pipeline:
    """A source, rules and a sink, with a checkpoint that keeps how far it has come; docs/pipeline-api.md is its guide.

    `source` is a `folder(...)`, `topics(...)`, or a streaming DataFrame; `rules` is None if topics bring changes of
    tables. `sink` is one of waterclock.sinks, an object with the five verbs of sinks/base.py, or a list of such.
    ValueError, TypeError or UsageError if they do not fit together.
    """

    def __init__(
        self,
        source: Source,
        rules: Rules | None,
        sink: Any,
        checkpoint: str | Path | Place,
        *,
        watermark_delay: Duration = 0,
        close: bool = True,
        name: str = "pipeline",
        buckets: int | None = None,
    ) -> None:
        self._name, self._rules = plain_name("Pipeline(name=)", name), rules
        self._outlets = Outlets(sink)
        self._delay_us = duration_us(watermark_delay, "Pipeline(watermark_delay=)")
        self._source, self._clock, self._session = source, SystemClock(), getattr(source, "sparkSession", None)
        folder = place_of(checkpoint, Path.cwd())
        check_source(source, rules)
        self.check_place(folder)
        self._have(Checkpoint(folder))
        self._asked, self.buckets = checked("Pipeline(buckets=)", buckets), BUCKETS
        self._closes, self._schema = close and self._stream.closes, results_schema(self._stream, self._rules)
        self._query: StreamingQuery | None = None
        self._ended = self._closed = self._was_closed = self._stopped = False
        self._failure: BaseException | None = None
        self._starts, self._account = Starts(lambda: self._stopped, self._clock), Account(name, self._clock)
        self._last_us = CLOSING_US - self._delay_us  # the watermark that the close is shown at

    def _have(self, checkpoint: Checkpoint) -> None:
        """All that belongs to one checkpoint."""
        self._checkpoint, self._owner, self._reads = checkpoint, owner_of(checkpoint.path), Reads(checkpoint)
        self._stream = stream_of(self._source, self._rules, self._delay_us, checkpoint)
        self._behind = Behind(self._source, checkpoint)
        self._is_beside = self._stream.reads_again and self._outlets.need_no_spark and not is_remote(checkpoint.path)
        self._writer = BesideWriter(checkpoint)
        self._succession = Succession(checkpoint, self._clock, self._outlets.only)

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self,
        session: SparkSession | None = None,
        live: bool = False,
        report: Callable[[Progress], None] | None = None,
    ) -> Summary:
        """Read what there is and close; with `live`, go on until Ctrl-C, `end`, or the close of the source.

        It runs in the session of a DataFrame that it reads; else in `session`, the active one, or a new one. `report` is
        called behind each batch, by another thread. Raises what made a batch fail.
        """
        session = self._session or session or self._own_session()
        check_session(session, self._count(session))
        self.check(session)
        self._checkpoint.sweep()
        set_aside(self._checkpoint)
        self._checkpoint.close_again()
        self._report, self._last_moment = report, (started := self._clock.monotonic_s())
        self._stopped, self._failure = False, None  # what a run before left
        self._starts, self._writer = Starts(lambda: self._stopped, self._clock), BesideWriter(self._checkpoint)
        self._closed = self._was_closed = self._checkpoint.is_source_closed()
        self._account.begin()
        self._succession.begin(session.sparkContext.master)
        with listening(session, self._heard):
            self._run(session, live)
        seconds, totals = self._clock.monotonic_s() - started, self._outlets.first.sink.totals()
        return self._account.summary(self._outlets.describe(), seconds, totals)

    def progress(self) -> list[Any]:
        """Spark's own record of the run's recent batches."""
        return list(self._query.recentProgress) if self._query is not None else []

    def statistics(self) -> PipelineStatistics:
        """What the pipeline did so far and what waits now; for any thread, one at a time.

        Of the source it looks up what it has by now: a broker too, which is given 5 s for an answer.
        """
        return self._account.gathering.seen(self._stream.unit, self._behind.of)

    def end(self) -> None:
        """Let a live run end after the batch that is under way; for another thread."""
        self._ended = True

    def close(self) -> None:
        self._stream.close()
        self._behind.close()
        self._outlets.close()
        self._owner.let_go()

    def check(self, session: SparkSession | None = None) -> None:
        """Refuse, before Spark is started, what could not go right; `run` does it too. From then on to `close` no other run
        may have the checkpoint.

        What only Spark knows, such as columns that are to be inferred, is looked at if there is a `session`.
        """
        self._stream.check()
        self._checkpoint.refuse_unusable()
        self._checkpoint.refuse_another_engine()
        self._owner.take()
        removal_of(self._checkpoint).finish()
        if session is not None:
            self._stream.begin(session)
            self._schema = results_schema(self._stream, self._rules)
        self.buckets = self._count(session)
        if self._schema is not None and self._outlets.plan(session, self._schema):
            checkpoint, removal = self._checkpoint, removal_of(self._checkpoint)
            with removal.explaining(self._outlets.place):
                try:
                    self._outlets.open(checkpoint)  # 1
                except StateMismatch:  # of a run that made the folder meanwhile, and has it
                    self._owner.take()
                    raise
                self._stream.refuse_if_closed()
                checkpoint.claim(self.settings())  # 2
            removal.serves(self._outlets.place)
            self._owner.take()  # if the folder is new
            self._outlets.fence(self._owner.epoch)
            self._reads.begin(self._owner.epoch, max(self._outlets.held(checkpoint)))
            self._account.holds(self._outlets.first.sink.totals())

    def check_place(self, checkpoint: Place) -> None:
        """UsageError if it, the source and a sink lie in each other."""
        for outlet in self._outlets:
            check_places(None, getattr(self._source, "path", None), checkpoint, outlet.path)

    @property
    def checkpoint(self) -> Checkpoint:
        return self._checkpoint

    def settings(self) -> dict[str, Any]:
        """What its state depends on."""
        return settings_of(self._stream.settings(), self._rules, self._delay_us, self.buckets)

    def kept(self, session: SparkSession | None = None) -> tuple[Checkpoint, Rules | None, Sink, pa.Schema | None]:
        """Checkpoint, rules, sink, and what that is written, once all is checked; UsageError if there is no state yet."""
        self._checkpoint.refuse_without_state()
        self.check(session)
        only = self._outlets.only()
        return self._checkpoint, self._rules, only.sink, only.schema

    def _count(self, session: SparkSession | None) -> int:
        return self._asked or self._checkpoint.buckets() or by_cores(session and cores_of(session))

    def _own_session(self) -> SparkSession:
        """The active session, or a new one whose story goes where the command's goes: into a folder that was looked at."""
        folder = self._checkpoint.path
        if isinstance(folder, Path):
            self.check()
        return session_for(self._name, folder / "spark.log" if isinstance(folder, Path) else None)

    # start and end -------------------------------------------------------------------------------------------

    def _run(self, session: SparkSession, live: bool) -> None:
        try:
            self._query = self._start(session, live)
            call_interruptible(partial(self._work, session, live), self._stop)
            self._stop()  # so that no batch begins behind the last one that is waited for
            self._in_the_sink()
        except PySparkException as error:
            raise self._explained(self._failure or error) from error
        except KeyboardInterrupt:
            if not live:  # of a live run, it is the end
                raise
            self._in_the_sink()
        finally:
            self._stop()
            self._writer.wait()
            self._ended = False  # of the next run nobody has said so yet

    def _explained(self, error: BaseException) -> BaseException:
        folder = self._checkpoint.path
        story = "Spark's log" if is_remote(folder) else f"{folder}/spark.log or the session's log"
        return explained(error, self._stream.explain, story)

    def _in_the_sink(self, wait: Callable[[], None] | None = None) -> None:
        """Wait until the sink has all that Spark notes as done; raises why it has not."""
        try:
            (wait or self._writer.end)()
        except BaseException as error:
            raise self._explained(error) from error

    def _start(self, session: SparkSession, live: bool) -> StreamingQuery:
        packed, trigger = self._stream.packed(session, live, self.buckets), self._stream.trigger(live)
        if self._rules is None:
            worked = packed.select("frame").where("frame IS NOT NULL")
        else:
            worked = operator.apply(self._rules, packed, self._outlets.columns, self._succession.flag)
        writer = worked.writeStream.queryName(self._name)
        writer = writer.option("checkpointLocation", str(self._checkpoint.path)).foreachBatch(self._take)
        with interpreted(session) if self._stream.packs_itself else nullcontext():
            return (writer.trigger(**trigger) if trigger else writer).start()  # 3

    def _work(self, session: SparkSession, live: bool) -> None:
        """Come to the end of the run. If a worker of Spark's started too slowly, start the query again (starts.py); if
        another checkpoint takes the place of this one, with that (succession.py)."""
        while True:
            try:
                self._go_on() if live else self._finish(session)
                if self._closed or not self._succession.halts:
                    return
            except StreamingQueryException as error:
                self._in_the_sink()
                if not self._succession.halts and not self._starts.again(str(error)):
                    raise
            self._failure = None
            if self._succession.halts:
                self._in_the_sink()  # what Spark notes as done: who hands over trusts that
                if (new := self._succession.wait(lambda: self._stopped)) is not None:
                    self._move(session, new)
                if self._stopped:
                    return
            self._query = self._start(session, live)

    def _move(self, session: SparkSession, new: Checkpoint) -> None:
        """Hand the sink over to the checkpoint `new`, and go on with that."""
        old, succession = self._checkpoint, self._succession
        with ExitStack() as of_the_old:
            for end in (self._owner.let_go, self._behind.close, self._stream.close):
                of_the_old.callback(end)
            self._have(new)
            self._owner.take()
            self._outlets.hand_over(old, new)
            succession.switched()
        self._asked = new.buckets()
        self.check(session)

    def _go_on(self) -> None:
        assert self._query is not None
        while not (self._ended or self._closed or self._writer.failure or self._query.awaitTermination(_LOOK_EVERY_S)):
            self._succession.look(self._query)
        if self._closed:
            self._query.processAllAvailable()  # let Spark write down that the last batch is done

    def _finish(self, session: SparkSession) -> None:
        ends_by_itself = bool(self._stream.trigger(live=False))
        self._drain(ends_by_itself)
        if not self._closes or self._stopped:  # stopped is not drained: closed now, the rest would be late
            return
        self._checkpoint.close()
        if ends_by_itself:
            self._query = self._start(session, live=False)
        self._drain(ends_by_itself)

    def _drain(self, ends_by_itself: bool) -> None:
        """Take all there is; returns too if the query is stopped."""
        assert self._query is not None
        self._query.awaitTermination() if ends_by_itself else self._query.processAllAvailable()
        self._in_the_sink(self._writer.settle)  # no more: a batch of what comes meanwhile may begin

    def _stop(self) -> None:
        self._ended = self._stopped = True  # a query that begins behind this ends at once
        if self._query is not None:
            self._query.stop()

    # a batch -------------------------------------------------------------------------------------------------

    def _take(self, batch: DataFrame, batch_id: int) -> None:
        try:
            self._apply(batch, batch_id)
        except BaseException as error:
            self._failure = error
            raise

    def _apply(self, batch: DataFrame, batch_id: int) -> None:
        began, place = self._clock.monotonic_s(), (self._checkpoint, batch_id)
        self._owner.check()  # a run that was taken over leaves the state alone
        if not self._closed:
            self._succession.batch_begins(batch_id)
        self._reads.note(batch_id)
        assert self._schema is not None, "check comes first"
        taken = self._outlets.taken(batch, place, self._schema, self._last_us)  # 1
        if self._rules is not None and not self._account.batches:
            refuse_unseen_state(self._checkpoint, batch_id, batch.sparkSession.sparkContext.master, self._clock)
        taken += self._stream.vanished(batch_id, taken)
        now = self._clock.monotonic_s()
        made = batch_of(taken, place, self._outlets.frame_schema(self._schema), self._last_us, now - self._last_moment)
        self._last_moment = now
        if self._was_closed:
            refuse_rows_in(made)
        self._writer.settle()  # the batch before
        self._owner.check()  # soon, and not for sure: that is the sink's to judge
        write = partial(self._write, batch.sparkSession, batch_id, made, taken, now - began)
        is_last = made.watermark_us is not None and made.watermark_us >= self._last_us
        self._writer.begin(write) if self._is_beside and not is_last else write()
        if is_last:
            self._checkpoint.source_closes()  # before Spark notes the batch: killed behind that, no batch would come
            self._closed = True

    def _write(self, session: SparkSession, batch_id: int, made: Batch, taken: list[pa.Table], took_s: float) -> None:
        began = self._clock.monotonic_s()
        written = self._outlets.write(session, made)  # 2 3 4 5
        self._succession.batch_is_written(batch_id, made, taken)
        if written is not None:
            self._starts.came_further()
            written = replace(made, counters=written.counters)
            self._account.wrote(batch_id, written, taken, {"take": took_s, "sink": self._clock.monotonic_s() - began})
        if self._report is not None:
            done, found = self._stream.progress(self._account.totals)
            self._report(Progress(batch_id, self._account.totals, done, found, self._stream.unit, made.watermark_us))

    def _heard(self, query_id: str, progress: Any) -> None:
        if query_id == self._checkpoint.query_id():
            self._account.gathering.heard(progress)


def configured(config: Config, sink: Sink | None = None) -> Pipeline:
    """The pipeline of a file; `sink` is the configured one unless another is given."""
    return Pipeline(
        config.source,
        config.rules,
        outlets_of(sink, [outlet.of(outlet.sink.sink()) for outlet in config.outlets]),
        config.checkpoint,
        watermark_delay=config.watermark_delay_us,
        close=config.close,
        name=config.name,
        buckets=config.buckets or Checkpoint(config.checkpoint).buckets() or by_cores(config.cores),
    )
