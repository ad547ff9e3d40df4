"""The stored state of a checkpoint: read by Spark's own reader of state, and written as batch 0 of a new checkpoint.

It is read as of a batch that is done, by any process. It is written by a query that reads parts of state and nothing else:
in all that Spark stores of it, that query has the pipeline's own operator: key, names and types of state, timers. So the
pipeline's query goes on where this one ends.

Rule 1: reading writes nothing, and starts no query; a pipeline may run meanwhile.
Rule 2: writing is one batch, and its watermark is none: no timer rings in it. Each bucket's alarm is the one that it would
        have set in the old checkpoint's last batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgpack
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Row
from pyspark.sql import functions as F

from waterclock.errors import StateMismatch, UsageError, WaterclockError
from waterclock.rules.engine import NO_WATERMARK
from waterclock.rules.model import Rules
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.packing.operator import RulesProcessor
from waterclock.spark.packing.packs import in_workers
from waterclock.spark.rescaling.parts import (
    BucketSeen,
    JoinedBucket,
    StateClock,
    StatePart,
    StateSeen,
    part_of,
    seen,
    split,
)
from waterclock.spark.source import literal
from waterclock.streaming import frames
from waterclock.streaming.buckets import labels
from waterclock.streaming.places.place import Place, is_remote
from waterclock.streaming.state.blobs import Blobs
from waterclock.streaming.state.bucket import Bucket, StoredBucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS = "ts timestamp, bucket int, origin string, frame binary"  # of which a query makes state
_SEEN = "label int, keys long, own long, watermark long, partitions map<string, bigint>"
_OUR_STATE = {"bucket", "shelf"}


def look(session: SparkSession, checkpoint: Checkpoint) -> StateSeen:
    """What the checkpoint's state is; UsageError if it has none that can be read."""
    checkpoint.refuse_without_state()
    count, batch_id = checkpoint.buckets(), checkpoint.last_done()
    assert count is not None
    assert batch_id is not None
    partitions = _partitions(session, checkpoint)
    values, blobs = _state(session, checkpoint, batch_id)
    sizes = {row.label: row.size for row in blobs.groupBy("label").agg(F.sum(F.length("blob")).alias("size")).collect()}
    rows = in_workers(values, _look, _SEEN).collect()
    clock = StateClock()
    for row in rows:
        clock = clock.furthest(StateClock(row.watermark, row.partitions))
    place = {label: at for at, label in enumerate(labels(count))}
    found = [BucketSeen(place[row.label], row.keys, row.own + sizes.get(row.label, 0)) for row in rows]
    return StateSeen(batch_id, count, partitions, clock, tuple(sorted(found, key=lambda bucket: bucket.place)))


def parts(session: SparkSession, checkpoint: Checkpoint, before: StateSeen, rules: Rules, count: int) -> DataFrame:
    """What the state holds, as rows of PARTS for `count` buckets."""
    values, blobs = _state(session, checkpoint, before.batch_id)
    both = values.groupBy("label").cogroup(blobs.groupBy("label"))
    return both.applyInArrow(_splitter(rules, before.buckets, count), PARTS)


def _state(session: SparkSession, checkpoint: Checkpoint, batch_id: int) -> tuple[DataFrame, DataFrame]:
    """What every batch reads of the buckets, and the blobs beside it (state/bucket.py)."""

    def of(name: str) -> DataFrame:
        reader = session.read.format("statestore").option("stateVarName", name).option("batchId", batch_id)
        return reader.load(str(checkpoint.path))

    values = of("bucket").select(F.col("key.bucket").alias("label"), "value.engine", "value.held")
    blobs = of("shelf").select(
        F.col("key.bucket").alias("label"),
        F.col("user_map_key.number").alias("number"),
        F.col("user_map_value.blob").alias("blob"),
    )
    return values, blobs


def _partitions(session: SparkSession, checkpoint: Checkpoint) -> int:
    """Into how many partitions Spark has put the state; UsageError if it is not the rules' alone."""
    try:
        operators = session.read.format("state-metadata").load(str(checkpoint.path)).collect()
    except (PySparkException, Py4JError) as error:
        raise StateMismatch(
            f"Spark cannot read the state of the checkpoint {checkpoint.path}: {str(error).splitlines()[0]}"
        ) from error
    named = {name for row in operators for name in _OUR_STATE if f'"{name}"' in (row.operatorProperties or "")}
    if len(operators) != 1 or named != _OUR_STATE:
        raise UsageError(
            f"the checkpoint {checkpoint.path} keeps other state than that of the rules of one pipeline: it cannot be "
            "looked into here"
        )
    return int(operators[0].numPartitions)


# In the workers ------------------------------------------------------------------------------------------------


def _look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What every batch reads of buckets in, what it says of itself out."""
    for batch in batches:
        rows = batch.to_pylist()
        stored = [seen(row["engine"]) for row in rows]
        columns: list[Any] = [
            pa.array([row["label"] for row in rows], pa.int32()),
            pa.array([each.keys for each in stored], pa.int64()),
            pa.array([len(row["engine"]) + len(row["held"]) for row in rows], pa.int64()),
            pa.array([each.clock.watermark_us for each in stored], pa.int64()),
            pa.array([list(each.clock.partitions.items()) for each in stored], pa.map_(pa.string(), pa.int64())),
        ]
        yield pa.RecordBatch.from_arrays(columns, ["label", "keys", "own", "watermark", "partitions"])


def _splitter(rules: Rules, before: int, count: int) -> Callable[[pa.Table, pa.Table], pa.Table]:
    place = {label: at for at, label in enumerate(labels(before))}

    def splitter(values: pa.Table, blobs: pa.Table) -> pa.Table:
        (row,) = values.to_pylist()
        shelf = dict(zip(blobs.column("number").to_pylist(), blobs.column("blob").to_pylist(), strict=True))
        return parts_of(rules, StoredBucket(row["engine"], row["held"]), shelf, count, place[row["label"]])

    return splitter


def parts_of(rules: Rules, stored: StoredBucket, shelf: Blobs, count: int, at: int) -> pa.Table:
    """What the bucket at place `at` holds, as rows of PARTS for `count` buckets."""
    made = list(split(rules, stored, shelf, count, at))
    columns: list[Any] = [
        pa.nulls(len(made), pa.timestamp("us", tz="UTC")),
        pa.array([labels(count)[new] for new, _ in made], pa.int32()),
        pa.array([f"{at:05d} {number:08d}" for number in range(len(made))], pa.string()),
        pa.array([part.to_bytes() for _, part in made], pa.binary()),
    ]
    return pa.Table.from_arrays(columns, ["ts", "bucket", "origin", "frame"])


PARTITIONS = "spark.sql.shuffle.partitions"
_LOOK_EVERY_S = 0.05
ROUND = "round"  # in front of an origin: no part
_Frame = Row("frame")


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: keys, deadlines, bytes of state."""

    keys: int
    deadlines: int
    bytes: int


class PartsProcessor(RulesProcessor):
    """Puts each bucket together of its parts; its frames say what it wrote. Behind the parts it goes through batches that
    went through other buckets; the frames of these say what it counted, and by how much the bucket grew."""

    def __init__(self, rules: Rules, clock: StateClock, watermark_ms: int) -> None:
        super().__init__(rules)
        self._clock, self._watermark_ms = clock, watermark_ms

    def handleInputRows(self, key: Any, rows: Iterable[Row], timerValues: Any) -> Iterator[Row]:
        taken = sorted((row.origin, bytes(row.frame)) for row in rows)
        if taken[0][0].startswith(ROUND):
            ((_, batches),) = taken
            yield _Frame(msgpack.packb(self._go_through(msgpack.unpackb(batches))))
            return
        parts = [part_of(frame) for _, frame in taken]
        bucket = JoinedBucket(self._rules, self._clock, parts, self._blobs)
        self._keep(bucket, self._watermark_ms)
        yield _Frame(msgpack.packb([_sum(parts, "keys"), _sum(parts, "deadlines"), bucket.grown]))

    def _go_through(self, batches: list[tuple[int, list[bytes]]]) -> tuple[dict[str, int], int]:
        """The counters' changes, and by how much the bucket grew. Of each batch: Spark's watermark, and frames."""
        alarm, engine, held = self._state.get()
        bucket = Bucket(self._rules, StoredBucket(engine, held), self._blobs)
        counters, watermark_ms = dict[str, int](), 0
        for watermark_ms, given in batches:
            us, tables = watermark_ms * 1000 if watermark_ms else NO_WATERMARK, [*map(frames.from_bytes, given)]
            clocks = [table for table in tables if frames.kind_of(table) == "clock"]
            events = [table for table in tables if frames.kind_of(table) != "clock"]
            due_us = bucket.next_due_us()
            if tables or (due_us is not None and due_us <= us):
                results = bucket.step(events, us, clocks)
                counters = frames.sum_counters([counters, frames.counters_of(results), {"results": results.num_rows}])
        self._keep(bucket, watermark_ms, alarm)
        return counters, bucket.grown


def lay_down(session: SparkSession, parts: Iterable[DataFrame], folder: Place, count: int) -> Written:
    """Write parts, and an empty one for each bucket, into the new folder `folder`; the sums of what they hold."""
    empty = [(None, label, "", StatePart(None).to_bytes()) for label in labels(count)]
    for each in (session.createDataFrame(empty, PARTS), *parts):
        each.write.mode("append").parquet(str(folder) if is_remote(folder) else f"file:{folder}")
    laid = in_workers(
        session.read.schema(PARTS).parquet(literal(folder)), _summed, "held long, deadlines long"
    ).collect()
    return Written(sum(row.held for row in laid), sum(row.deadlines for row in laid), 0)


class StateQuery:
    """The query over parts in a folder, with the checkpoint `new`; its state lies in so many `partitions`."""

    def __init__(
        self, session: SparkSession, new: Checkpoint, folder: Place, processor: PartsProcessor, partitions: int
    ) -> None:
        self._new, self._found = new, dict[int, list[Any]]()
        before = session.conf.get(PARTITIONS)
        session.conf.set(PARTITIONS, str(partitions))
        try:
            rows = session.readStream.schema(PARTS).parquet(literal(folder))
            packed = rows.withWatermark("ts", "0 seconds").drop("ts").groupBy("bucket")
            worked = packed.transformWithState(processor, "frame binary", outputMode="append", timeMode="EventTime")
            writer = worked.writeStream.option("checkpointLocation", str(new.path)).foreachBatch(self._take)
            self._query = writer.trigger(processingTime="50 milliseconds").start()
        finally:
            session.conf.set(PARTITIONS, str(before))

    def batch(self, number: int, look: Callable[[], object]) -> list[Any]:
        """Wait until batch `number` is done, and `look` meanwhile; what the frames of all buckets say."""
        while self._new.last_done() != number:
            if self._query.awaitTermination(_LOOK_EVERY_S):
                raise WaterclockError(f"Spark's query into {self._new.path} was stopped: nothing was handed over")
            look()
        return self._found.pop(number)

    def stop(self) -> None:
        self._query.stop()

    def _take(self, batch: DataFrame, batch_id: int) -> None:
        self._found[batch_id] = [msgpack.unpackb(row.frame) for row in batch.collect()]


def _sum(parts: list[StatePart], name: str) -> int:
    return sum(getattr(part, name) for part in parts)


def _summed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parts in, how many keys and deadlines each batch of them holds out: the parts themselves stay where they are."""
    for batch in batches:
        parts = [part_of(frame) for frame in batch.column("frame").to_pylist()]
        sums = [pa.array([_sum(parts, name)], pa.int64()) for name in ("keys", "deadlines")]
        yield pa.RecordBatch.from_arrays(sums, ["held", "deadlines"])
