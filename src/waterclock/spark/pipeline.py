"""A pipeline from files to a sink, exactly once.

Start, numbered:
    1. the sink's tables are made or checked; refuse a sink that is ahead of the checkpoint
    2. the checkpoint is claimed for these settings; refuse others
    3. the query starts where the checkpoint ends

A batch, numbered (2 to 5 stand in sinks/base.py, and each crash point between two numbers has a test):
    1. the result frames are taken, once: every action on a batch's frame would run the whole plan again
    2. begin   3. refuse what is applied   4. write   5. commit

A bounded run (`--once`) ends with the closing heartbeat, so that nothing stays held.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException

from waterclock.clock import Clock, SystemClock
from waterclock.errors import UsageError, WaterclockError
from waterclock.sinks import Batch, Sink, apply_once, check_belongs
from waterclock.spark import frames, interrupts, operator, source
from waterclock.spark.checkpoint import Checkpoint
from waterclock.spark.config import Config
from waterclock.spark.reading import Layout
from waterclock.spark.transform import conform

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


@dataclass(frozen=True, slots=True)
class Progress:
    """What a pipeline tells after each batch: the totals of the sink so far, and files on disk."""

    batch_id: int
    totals: dict[str, int]
    files_found: int
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


class Pipeline:
    """One pipeline, ready to run once or live. `sink` is the configured one unless another is given."""

    def __init__(self, config: Config, sink: Sink | None = None, clock: Clock | None = None) -> None:
        self._config = config
        self._checkpoint = Checkpoint(config.checkpoint)
        self._sink = sink or config.sink.sink()
        self._clock = clock or SystemClock()
        self._schema = frames.result_schema(*_types(config))
        self._query: StreamingQuery | None = None
        self._failure: BaseException | None = None
        self._batches = self._events = 0

    def run(self, session: SparkSession, live: bool = False, tell: Callable[[Progress], None] | None = None) -> Summary:
        """Read what there is and close; with `live`, go on until Ctrl-C. Raises what made a batch fail."""
        self.check()
        self._checkpoint.sweep()
        self._tell, self._last_moment = tell, self._clock.monotonic_s()
        started = self._last_moment
        self._query = self._start(session)
        try:
            interrupts.call(self._query.awaitTermination if live else self._finish, self._query.stop)
        except StreamingQueryException as error:
            raise _failure(self._failure or error, self._checkpoint) from error
        except KeyboardInterrupt:
            if not live:  # of a live run, it is the end
                raise
        finally:
            self._query.stop()
        return self._summary(self._clock.monotonic_s() - started)

    def progress(self) -> list[Any]:
        """Spark's own record of the run's recent batches."""
        return list(self._query.recentProgress) if self._query is not None else []

    def close(self) -> None:
        self._sink.close()

    def check(self) -> None:
        """Refuse, before Spark is started, what could not go right; `run` does it too."""
        if not self._config.source.path.is_dir():
            raise UsageError(f"the source folder {self._config.source.path} does not exist")
        self._sink.open(self._schema)  # 1
        checkpoint = self._checkpoint
        check_belongs(self._sink, str(checkpoint.path), checkpoint.query_id(), checkpoint.last_batch())
        checkpoint.refuse_if_closed(self._config.source.path)
        checkpoint.claim(_settings(self._config))  # 2

    # start and end -------------------------------------------------------------------------------------------

    def _start(self, session: SparkSession) -> StreamingQuery:
        packed = source.packed_files(session, self._config, self._checkpoint)
        writer = operator.apply(self._config.rules, packed).writeStream.queryName(self._config.name)
        return (
            writer.option("checkpointLocation", str(self._checkpoint.path)).foreachBatch(self._take).start()  # 3
        )

    def _finish(self) -> None:
        assert self._query is not None
        self._query.processAllAvailable()
        if self._config.close:
            self._checkpoint.close()
            self._query.processAllAvailable()

    # a batch -------------------------------------------------------------------------------------------------

    def _take(self, batch: DataFrame, batch_id: int) -> None:
        try:
            self._apply(batch, batch_id)
        except BaseException as error:
            self._failure = error
            raise

    def _apply(self, batch: DataFrame, batch_id: int) -> None:
        taken = [frames.from_bytes(f) for f in batch.toArrow().column("frame").to_pylist()]  # 1
        now = self._clock.monotonic_s()
        made = self._batch(taken, batch_id, now - self._last_moment)
        self._last_moment = now
        if apply_once(self._sink, made):  # 2 3 4 5
            self._batches += 1
            self._events += made.counters.get("events", 0)
        if self._tell is not None:
            found = sum(1 for path in self._config.source.path.iterdir() if path.is_file())
            self._tell(Progress(batch_id, self._sink.totals(), found, made.watermark_us))

    def _batch(self, taken: list[pa.Table], batch_id: int, seconds: float) -> Batch:
        results = [conform(f, self._schema) for f in taken if not frames.is_dead(f) and f.num_rows]
        dead = [f.select(frames.DEAD_SCHEMA.names) for f in taken if frames.is_dead(f)]
        query_id = self._checkpoint.query_id()
        assert query_id is not None
        return Batch(
            query_id=query_id,
            batch_id=batch_id,
            offsets=self._checkpoint.offsets(batch_id),
            results=pa.concat_tables([self._schema.empty_table(), *results]),
            dead_letters=pa.concat_tables([frames.DEAD_SCHEMA.empty_table(), *dead], promote_options="default"),
            counters=frames.sum_counters(map(frames.counters_of, taken)),
            watermark_us=_watermark(self._checkpoint.offsets(batch_id)),
            seconds=seconds,
        )

    def _summary(self, seconds: float) -> Summary:
        config, totals = self._config, self._sink.totals()
        return Summary(config.name, self._sink.describe(), self._batches, self._events, seconds, totals)


def start_over(config: Config) -> None:
    """Remove the checkpoint and the sink's tables: the next run starts from nothing.

    Raises UsageError, and removes nothing, where the run could not start or one of the two is something else.
    """
    if not config.source.path.is_dir():
        raise UsageError(f"the source folder {config.source.path} does not exist, so nothing was removed")
    Checkpoint(config.checkpoint).refuse_to_remove()
    config.sink.remove()
    shutil.rmtree(config.checkpoint, ignore_errors=True)


def _types(config: Config) -> tuple[pa.DataType, pa.Schema]:
    schema = Layout(config.source.format, config.source.columns, config.rules).schema()
    return schema.field(config.rules.key).type, schema


def _settings(config: Config) -> dict[str, Any]:
    """What a checkpoint's state depends on."""
    return {
        "state": 1,
        "buckets": operator.BUCKETS,
        "rules": repr(config.rules),
        "columns": dict(config.source.columns),
        "watermark_delay_us": config.watermark_delay_us,
    }


def _watermark(offsets: str | None) -> int | None:
    """The watermark of a batch in microseconds, from the second line of its offsets."""
    import json

    lines = (offsets or "").splitlines()
    ms = json.loads(lines[1]).get("batchWatermarkMs", 0) if len(lines) > 1 else 0
    return ms * 1000 or None


def _failure(error: BaseException, checkpoint: Checkpoint) -> BaseException:
    """What to tell of an error in a batch: our own as it is, Spark's by its last line, where the cause stands."""
    if isinstance(error, WaterclockError):
        return error
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    cause = next((line for line in reversed(lines) if "Error" in line or "Exception" in line), repr(error))
    return WaterclockError(
        f"the pipeline failed: {cause}. What was committed stays; the whole story is in {checkpoint.path}/spark.log "
        "or the session's log. The same command goes on from there."
    )
