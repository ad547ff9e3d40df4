"""Parts of state become the state of a new checkpoint: its batch 0, of a query that reads nothing else.

In all that Spark stores of it, the query has the pipeline's own operator: key, names and types of state, timers.
So the pipeline's query goes on where this one ends.

Rule 1: one batch, and its watermark is none: no timer rings in it. Each bucket's alarm is the one that it would have set
        in the old checkpoint's last batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgpack
import pyarrow as pa
from pyspark.sql import Row

from waterclock.errors import StateMismatch
from waterclock.rules.model import Rules
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.packing.by_place import in_workers
from waterclock.spark.packing.operator import RulesProcessor
from waterclock.spark.rescale.parts import JoinedBucket, StateClock, StatePart, part_of
from waterclock.spark.rescale.reading import PARTS
from waterclock.spark.source import literal
from waterclock.streaming.buckets import labels
from waterclock.streaming.places.place import Place, is_remote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = "spark.sql.shuffle.partitions"
_Frame = Row("frame")


@dataclass(frozen=True, slots=True)
class Written:
    """What was written: keys, deadlines, bytes of state."""

    keys: int
    deadlines: int
    bytes: int


class PartsProcessor(RulesProcessor):
    """Puts each bucket together of its parts; its frames say what it wrote."""

    def __init__(self, rules: Rules, clock: StateClock, watermark_ms: int) -> None:
        super().__init__(rules)
        self._clock, self._watermark_ms = clock, watermark_ms

    def handleInputRows(self, key: Any, rows: Iterable[Row], timerValues: Any) -> Iterator[Row]:
        taken = sorted((row.origin, bytes(row.frame)) for row in rows)
        parts = [part_of(frame) for _, frame in taken]
        bucket = JoinedBucket(self._rules, self._clock, parts, self._blobs)
        self._keep(bucket, self._watermark_ms)
        yield _Frame(msgpack.packb([_sum(parts, "keys"), _sum(parts, "deadlines"), bucket.grown]))


def lay_down(session: SparkSession, parts: DataFrame, folder: Place, count: int) -> Written:
    """Write parts, and an empty one for each bucket, into the new folder `folder`; the sums of what they hold."""
    empty = [(None, label, "", StatePart(None).to_bytes()) for label in labels(count)]
    parts.unionByName(session.createDataFrame(empty, PARTS)).write.parquet(
        str(folder) if is_remote(folder) else f"file:{folder}"
    )
    laid = in_workers(
        session.read.schema(PARTS).parquet(literal(folder)), _summed, "held long, deadlines long"
    ).collect()
    return Written(sum(row.held for row in laid), sum(row.deadlines for row in laid), 0)


def write_state(
    session: SparkSession, new: Checkpoint, folder: Place, processor: PartsProcessor, partitions: int
) -> Written:
    """Run the query over the parts in `folder` with the checkpoint `new`, its state in so many `partitions`."""
    found: list[Written] = []

    def take(batch: DataFrame, batch_id: int) -> None:
        told = [msgpack.unpackb(row.frame) for row in batch.collect()]
        found.append(Written(*map(sum, zip(*told, strict=True))))

    before = session.conf.get(PARTITIONS)
    session.conf.set(PARTITIONS, str(partitions))
    try:
        rows = session.readStream.schema(PARTS).parquet(literal(folder))
        packed = rows.withWatermark("ts", "0 seconds").drop("ts").groupBy("bucket")
        worked = packed.transformWithState(processor, "frame binary", outputMode="append", timeMode="EventTime")
        writer = worked.writeStream.option("checkpointLocation", str(new.path)).foreachBatch(take)
        writer.trigger(availableNow=True).start().awaitTermination()
    finally:
        session.conf.set(PARTITIONS, str(before))
    if len(found) != 1 or new.last_done() != 0:
        raise StateMismatch(f"the state was not written in one batch but in {len(found)}: nothing was handed over")
    return found[0]


def _sum(parts: list[StatePart], name: str) -> int:
    return sum(getattr(part, name) for part in parts)


def _summed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Parts in, how many keys and deadlines each batch of them holds out: the parts themselves stay where they are."""
    for batch in batches:
        parts = [part_of(frame) for frame in batch.column("frame").to_pylist()]
        sums = [pa.array([_sum(parts, name)], pa.int64()) for name in ("keys", "deadlines")]
        yield pa.RecordBatch.from_arrays(sums, ["held", "deadlines"])
