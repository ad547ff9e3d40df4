"""The rules as ONE Spark operator: a `transformWithState` over buckets of keys, packed in and packed out.

    rows -> watermark -> pack (bucket, origin, frame) -> transformWithState -> result frames [-> unpack -> result rows]

Rule 1: one Spark timer a bucket, the alarm for its earliest deadline; everything due is done in that one pass.
Rule 2: what is due already is done inline: a deadline in the past that is registered again slips a batch.
Rule 3: a bucket of a topic keeps the watermark itself (streaming/state/bucket.py), and what is due comes out in the
        batch that makes it due. Its alarm is for the close alone: until then Spark's watermark stands still. So does one of
        files while their time lies before 1970, where Spark has no watermark; from then on the later one counts.
Rule 4: frames of a bucket are taken in the order of `origin` (for files: the time they were written, the name, the
        place in the file; for topics: topic, partition, offset), not as the shuffle brings them, so that a re-run gives
        the same bytes.
Rule 5: if an executor cannot load a compiled module that came from the driver's machine, the plain one gives the same
        results. The driver says so once a run, with both platforms: an executor's own log is read by nobody.
"""

from __future__ import annotations

import gc
import logging
import platform
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructType

import waterclock.errors
from waterclock.rules.engine import NO_WATERMARK
from waterclock.rules.model import Rules
from waterclock.spark.packing.recording import Recorder
from waterclock.streaming import frames
from waterclock.streaming.state.blobs import MapState
from waterclock.streaming.state.bucket import Bucket, StoredBucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)
_PACKAGE = Path(waterclock.errors.__file__).parent


@cache
def refused_here() -> str:
    """How many modules lie in waterclock's folder and cannot be loaded, and why; "" if there is none."""
    found: dict[Path, str] = {}  # a module may lie there for several Pythons
    for path in sorted(_PACKAGE.rglob("*.cpython-*.so")):
        module = path.with_name(path.name.partition(".")[0])
        if found.get(module) != "":
            found[module] = _refusal(path)
    refused = {module: why for module, why in found.items() if why}
    if not refused:
        return ""
    module, why = next(iter(refused.items()))
    here = f"CPython {platform.python_version()} on {sys.platform}, {platform.machine()}"
    return f"{len(refused)} of {len(found)} compiled modules on {here}, such as {module.name}: {why}"


@cache
def warn_of_refused(refused: str) -> None:
    """Log what an executor said by `refused_here`, once."""
    log.warning(
        "executors cannot load %s. They take plain Python in its place: the same results, more slowly. Start the pipeline "
        "from a machine like theirs, or give them a Python like the driver's",
        refused,
    )


def _refusal(path: Path) -> str:
    name, _, suffix = path.name.partition(".")
    if f".{suffix}" not in EXTENSION_SUFFIXES:
        return "it was compiled for another platform or Python"
    try:
        import_module(".".join(["waterclock", *path.parent.relative_to(_PACKAGE).parts, name]))
    except ImportError as error:
        return str(error)
    return ""


PACKED = "bucket int, origin string, frame binary"
_CLOSE_MS = 1  # any time will do: Spark's watermark goes from none to the year 9999
_Frame = Row("frame")
# not as texts: those Spark's Java would have to read, three times in each task of each batch
_BUCKET = StructType().add("alarm", LongType()).add("engine", BinaryType()).add("held", BinaryType())
_NUMBER, _BLOB = StructType().add("number", LongType()), StructType().add("blob", BinaryType())


class RulesProcessor(StatefulProcessor):  # type: ignore[misc]  # PySpark is untyped here
    """Applies rules to one bucket a call. Frames in, frames out; its state in one value and a map."""

    def __init__(self, rules: Rules, columns: tuple[str, ...] = (), flag: str | None = None) -> None:
        """`columns`: those that results are to have; all if none is named. `flag` as in `Recorder`."""
        self._rules, self._columns, self._flag = rules, columns, flag

    def init(self, handle: StatefulProcessorHandle) -> None:
        # A batch makes hundreds of thousands of tuples and leaves no cycles behind: the collector would walk them all
        # several times over, a quarter of the operator's time.
        gc.disable()
        if not gc.get_freeze_count():
            gc.freeze()  # PySpark collects after every task: let it pass over what the modules made
        self._handle, self._recorder, self._unrecorded = handle, Recorder(self._flag), ""
        self._state = handle.getValueState("bucket", _BUCKET)
        self._blobs = MapState(handle.getMapState("shelf", _NUMBER, _BLOB))

    def handleInputRows(self, key: Any, rows: Iterable[Row], timerValues: Any) -> Iterator[Row]:
        # by origin: Spark reads a file twice if the name of another one of its batch matches it as a pattern
        taken = {row.origin: row.frame for row in rows if row.frame is not None}
        sent = [taken[origin] for origin in sorted(taken)]
        tables = [frames.from_bytes(frame) for frame in sent]
        yield from (_Frame(frames.to_bytes(table)) for table in tables if frames.kind_of(table) == "dead")
        clocks = [table for table in tables if frames.kind_of(table) == "clock"]
        events = [table for table in tables if frames.kind_of(table) not in ("dead", "clock")]
        alive = (f for f, table in zip(sent, tables, strict=True) if frames.kind_of(table) != "dead")
        self._unrecorded = self._recorder.take(key[0], alive)
        if events or clocks:
            yield _Frame(self._step(key, events, clocks, timerValues.getCurrentWatermarkInMs()))

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        rang_ms, self._unrecorded = expiredTimerInfo.getExpiryTimeInMs(), ""
        yield _Frame(self._step(key, [], [], timerValues.getCurrentWatermarkInMs(), rang_ms))

    def close(self) -> None:
        gc.enable()

    def _step(
        self, key: Any, events: list[pa.Table], clocks: list[pa.Table], watermark_ms: int, rang_ms: int | None = None
    ) -> bytes:
        stored: tuple[Any, Any, Any] = self._state.get() or (None, None, None)
        alarm, engine, held = stored
        bucket = Bucket(self._rules, None if engine is None else StoredBucket(engine, held), self._blobs)
        # Spark's watermark starts at 0 and never lies before 1970: 0 says that there is none yet.
        results = bucket.step(events, watermark_ms * 1000 if watermark_ms else NO_WATERMARK, clocks)
        self._keep(bucket, watermark_ms, alarm, rang_ms)
        results = frames.chosen(results, self._columns) if self._columns else results
        results = frames.noted(results, refused=refused) if (refused := refused_here()) else results
        results = frames.noted(results, unrecorded=self._unrecorded) if self._unrecorded else results
        counters = frames.sum_counters([frames.counters_of(results), {"state_bytes": bucket.grown}])
        return frames.to_travel(frames.noted(results, counters=counters, held={key[0]: bucket.held_keys}))

    def _keep(self, bucket: Bucket, watermark_ms: int, was_ms: int | None = None, rang_ms: int | None = None) -> None:
        due_us = bucket.next_due_us()
        due_ms: int | None = None
        if due_us is not None and bucket.has_partitions and not watermark_ms:
            due_ms = _CLOSE_MS
        elif due_us is not None:
            # always behind Spark's watermark, for deadlines before 1970 too: another one rings in this very batch, in
            # vain, and Spark forgets it after the call that would set it again
            due_ms = max(-(-due_us // 1000), watermark_ms + 1)
        if due_ms != was_ms:
            if was_ms is not None and was_ms != rang_ms:
                self._handle.deleteTimer(was_ms)
            if due_ms is not None:
                self._handle.registerTimer(due_ms)
        after = bucket.store()
        bucket.close()
        self._state.update((due_ms, after.engine, after.rows))


def apply(rules: Rules, packed: DataFrame, columns: tuple[str, ...] = (), flag: str | None = None) -> DataFrame:
    """Result frames (one column, `frame`) of a packed stream whose watermark is set; the rest as in RulesProcessor."""
    return packed.groupBy("bucket").transformWithState(
        RulesProcessor(rules, columns, flag), "frame binary", outputMode="append", timeMode="EventTime"
    )
