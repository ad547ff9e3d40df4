"""The stored state of a checkpoint, read by Spark's own reader of state: as of a batch that is done, by any process.

Rule 1: nothing is written, and no query is started; a pipeline may run meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from waterclock.errors import StateMismatch, UsageError
from waterclock.rules.model import Rules
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.packing.by_place import in_workers
from waterclock.spark.rescale.parts import StateClock, seen, split
from waterclock.streaming.buckets import labels
from waterclock.streaming.state.bucket import StoredBucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTS = "ts timestamp, bucket int, origin string, frame binary"  # of which a query makes state (writing.py)
_SEEN = "label int, keys long, own long, watermark long, partitions map<string, bigint>"
_OUR_STATE = {"bucket", "shelf"}


@dataclass(frozen=True, slots=True)
class BucketSeen:
    """One bucket as it is stored: its place among all, what it holds, what that takes, and the partition it lies in."""

    place: int
    keys: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StateSeen:
    """The state of a checkpoint after batch `batch_id`; a bucket that holds nothing yet is not among `stored`."""

    batch_id: int
    buckets: int
    partitions: int
    clock: StateClock
    stored: tuple[BucketSeen, ...]

    @property
    def keys(self) -> int:
        return sum(bucket.keys for bucket in self.stored)

    @property
    def bytes(self) -> int:
        return sum(bucket.bytes for bucket in self.stored)


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
        told = [seen(row["engine"]) for row in rows]
        columns: list[Any] = [
            pa.array([row["label"] for row in rows], pa.int32()),
            pa.array([each.keys for each in told], pa.int64()),
            pa.array([len(row["engine"]) + len(row["held"]) for row in rows], pa.int64()),
            pa.array([each.clock.watermark_us for each in told], pa.int64()),
            pa.array([list(each.clock.partitions.items()) for each in told], pa.map_(pa.string(), pa.int64())),
        ]
        yield pa.RecordBatch.from_arrays(columns, ["label", "keys", "own", "watermark", "partitions"])


def _splitter(rules: Rules, before: int, count: int) -> Callable[[pa.Table, pa.Table], pa.Table]:
    place = {label: at for at, label in enumerate(labels(before))}

    def splitter(values: pa.Table, blobs: pa.Table) -> pa.Table:
        (row,) = values.to_pylist()
        shelf = dict(zip(blobs.column("number").to_pylist(), blobs.column("blob").to_pylist(), strict=True))
        stored, at = StoredBucket(row["engine"], row["held"]), place[row["label"]]
        made = list(split(rules, stored, shelf, count, at))
        columns: list[Any] = [
            pa.nulls(len(made), pa.timestamp("us", tz="UTC")),
            pa.array([labels(count)[new] for new, _ in made], pa.int32()),
            pa.array([f"{at:05d} {number:08d}" for number in range(len(made))], pa.string()),
            pa.array([part.to_bytes() for _, part in made], pa.binary()),
        ]
        return pa.Table.from_arrays(columns, ["ts", "bucket", "origin", "frame"])

    return splitter
