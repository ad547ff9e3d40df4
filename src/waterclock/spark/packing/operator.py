"""The rules as ONE Spark operator: a `transformWithState` over buckets of keys, packed in and packed out.

    rows -> watermark -> pack (bucket, origin, frame) -> transformWithState -> result frames [-> unpack -> result rows]

Rule 1: one Spark timer a bucket, the alarm for its earliest deadline; everything due is done in that one pass.
Rule 2: what is due already is done inline: a deadline in the past that is registered again slips a batch.
Rule 3: a bucket of a topic keeps the watermark itself (streaming/state/watermarks.py), and what is due comes out in the
        batch that makes it due. Its alarm is for the close alone: until then Spark's watermark stands still. So does one
        of files while their time lies before 1970, where Spark has no watermark; from then on the later one of the two
        counts.
Rule 4: frames of a bucket are taken in the order of `origin` (for files: the time they were written, the name, the
        place in the file; for topics: topic, partition, offset), not as the shuffle brings them, so that a re-run gives
        the same bytes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructType

from waterclock.rules.engine import NO_WATERMARK
from waterclock.rules.model import Rules
from waterclock.spark.packing.compiled import refused_here
from waterclock.streaming import frames
from waterclock.streaming.state.blobs import MapState
from waterclock.streaming.state.bucket import Bucket, StoredBucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PACKED = "bucket int, origin string, frame binary"
_CLOSE_MS = 1  # any time will do: Spark's watermark goes from none to the year 9999
_Frame = Row("frame")
# not as texts: those Spark's Java would be asked to read, three times in each task of each batch
_BUCKET = StructType().add("alarm", LongType()).add("engine", BinaryType()).add("held", BinaryType())
_NUMBER, _BLOB = StructType().add("number", LongType()), StructType().add("blob", BinaryType())


class RulesProcessor(StatefulProcessor):  # type: ignore[misc]  # PySpark is untyped here
    """Applies rules to one bucket a call. Frames in, frames out; its state in one value and a map."""

    def __init__(self, rules: Rules, columns: tuple[str, ...] = ()) -> None:
        """`columns`: those that are asked for of results; all where none is named."""
        self._rules, self._columns = rules, columns

    def init(self, handle: StatefulProcessorHandle) -> None:
        # A batch makes hundreds of thousands of tuples and leaves no cycles behind: the collector would walk them all
        # several times over, a quarter of the operator's time.
        gc.disable()
        if not gc.get_freeze_count():
            gc.freeze()  # PySpark collects after every task: let it pass over what the modules made
        self._handle = handle
        self._state = handle.getValueState("bucket", _BUCKET)
        self._blobs = MapState(handle.getMapState("shelf", _NUMBER, _BLOB))

    def handleInputRows(self, key: Any, rows: Iterable[Row], timerValues: Any) -> Iterator[Row]:
        # by origin: Spark reads a file twice where the name of another one of its batch matches it as a pattern
        taken = {row.origin: row.frame for row in rows if row.frame is not None}
        tables = [frames.from_bytes(taken[origin]) for origin in sorted(taken)]
        yield from (_Frame(frames.to_bytes(table)) for table in tables if frames.is_dead(table))
        clocks = [table for table in tables if frames.is_clock(table)]
        events = [table for table in tables if not frames.is_dead(table) and not frames.is_clock(table)]
        if events or clocks:
            yield _Frame(self._step(events, clocks, timerValues.getCurrentWatermarkInMs()))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        yield _Frame(self._step([], [], timerValues.getCurrentWatermarkInMs(), expiredTimerInfo.getExpiryTimeInMs()))

    def close(self) -> None:
        gc.enable()

    def _step(
        self, events: list[pa.Table], clocks: list[pa.Table], watermark_ms: int, rang_ms: int | None = None
    ) -> bytes:
        stored: tuple[Any, Any, Any] = self._state.get() or (None, None, None)
        alarm, engine, held = stored
        bucket = Bucket(self._rules, None if engine is None else StoredBucket(engine, held), self._blobs)
        # Spark's watermark starts at 0 and never lies before 1970: 0 says that there is none yet.
        results = bucket.step(events, watermark_ms * 1000 if watermark_ms else NO_WATERMARK, clocks)
        self._keep(bucket, watermark_ms, alarm, rang_ms)
        results = frames.chosen(results, self._columns) if self._columns else results
        results = frames.with_refused(results, refused) if (refused := refused_here()) else results
        return frames.to_travel(frames.more_counted(results, {"state_bytes": bucket.grown}))

    def _keep(self, bucket: Bucket, watermark_ms: int, was_ms: int | None = None, rang_ms: int | None = None) -> None:
        alarm = self._set_alarm(_alarm_ms(bucket, watermark_ms), was_ms, rang_ms)
        after = bucket.store()
        bucket.close()
        self._state.update((alarm, after.engine, after.rows))

    def _set_alarm(self, due_ms: int | None, was_ms: int | None, rang_ms: int | None) -> int | None:
        if due_ms != was_ms:
            if was_ms is not None and was_ms != rang_ms:
                self._handle.deleteTimer(was_ms)
            if due_ms is not None:
                self._handle.registerTimer(due_ms)
        return due_ms


def _alarm_ms(bucket: Bucket, watermark_ms: int) -> int | None:
    """When Spark is to call the bucket, None where nothing is pending.

    Always behind Spark's watermark, for deadlines before 1970 too: another one rings in this very batch, in vain, and
    Spark forgets it after the call that would set it again.
    """
    due_us = bucket.next_due_us()
    if due_us is None:
        return None
    if bucket.has_partitions and not watermark_ms:
        return _CLOSE_MS
    return max(-(-due_us // 1000), watermark_ms + 1)


def apply(rules: Rules, packed: DataFrame, columns: tuple[str, ...] = ()) -> DataFrame:
    """Result frames (one column, `frame`) of a packed stream whose watermark is set; `columns` as in RulesProcessor."""
    return packed.groupBy("bucket").transformWithState(
        RulesProcessor(rules, columns), "frame binary", outputMode="append", timeMode="EventTime"
    )
