"""Rows on their way through Spark: columns by their place, and packed rows with the times that move Spark's watermark.

ts          the largest time of what is packed, null if there is none; dropped before grouping
bucket      the label of a bucket of keys
origin      where the rows come from: frames of a bucket are taken in its order
frame       rows as Arrow bytes, null in a row that only moves the watermark

Spark and PySpark read a column's name as an expression: a dot in it means a field, a backtick quotes. `mapInArrow` itself
looks each column up by its name.

Rule 1: a user's name never reaches a place that reads it so: there the columns are c0, c1, ... in their order.
Rule 2: what leaves Spark, batches in workers and DataFrames that a user sees, has the user's names again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import functions as F

from waterclock.rules.engine import NO_WATERMARK
from waterclock.spark.packing import operator
from waterclock.streaming import buckets, frames

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def by_place(rows: DataFrame) -> tuple[DataFrame, dict[str, Column]]:
    """`rows` with its columns called by their place; and those columns, by the names that they had."""
    ours = [f"c{place}" for place in range(len(rows.columns))]
    return rows.toDF(*ours), dict(zip(rows.columns, map(F.col, ours), strict=True))


def in_workers(rows: DataFrame, function: Batches, columns: Any) -> DataFrame:
    """What `function` makes of `rows` in Spark's Python workers: batches with the names of `rows` in, `columns` out."""
    names = rows.columns

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    return by_place(rows)[0].mapInArrow(named, columns)


TIMED = f"ts timestamp, {operator.PACKED}"
# where what belongs to no key travels: it leaves no state, so any label will do
FIRST = buckets.labels(buckets.BUCKETS)[0]
_SPARKS_FIRST_US = 1_000  # its watermark counts milliseconds, and 0 says that there is none
NO_TIME = pa.scalar(None, frames.TIMESTAMP)


class Packs:
    """Packed rows, with `origin` for their order: where they come from, then the order in which they were made."""

    def __init__(self, origin: str = "", count: int = buckets.BUCKETS) -> None:
        """`count` is the number of buckets."""
        context = TaskContext.get()
        self.origin = origin or f"{context.partitionId() if context else 0:08d}"
        self._count = count
        self._made = 0
        self._rows: list[tuple[int, str, bytes | None]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, label: int, frame: bytes | None) -> None:
        self._rows.append((label, f"{self.origin} {self._made:08d}", frame))
        self._made += 1

    def add_rows(self, rows: pa.RecordBatch, key: str) -> None:
        """Add rows, whose column `key` has no nulls, to the buckets of their keys."""
        for label, part in buckets.split(rows, rows.column(key), self._count):
            self.add(label, frames.to_travel(part))

    def add_to_each(self, frame: bytes) -> None:
        """Add a frame to every bucket."""
        for label in buckets.labels(self._count):
            self.add(label, frame)

    def add_early(self, watermark_us: int) -> None:
        """Tell every bucket of a watermark before 1970, which is none to Spark: its own never lies there."""
        if clock := early(watermark_us):
            self.add_to_each(frames.to_bytes(frames.clock(clock)))

    def take(self) -> pa.RecordBatch:
        label, origin, frame = zip(*self._rows, strict=True) if self._rows else ((), (), ())
        self._rows = []
        arrays = [pa.array(label, pa.int32()), pa.array(origin, pa.string()), pa.array(frame, pa.binary())]
        return pa.RecordBatch.from_arrays(arrays, ["bucket", "origin", "frame"])


def early(watermark_us: int) -> dict[str, int | None]:
    """What buckets keep of a watermark that is none to Spark; empty if it is one."""
    return {"stream": watermark_us} if NO_WATERMARK < watermark_us < _SPARKS_FIRST_US else {}


def as_time(us: int) -> pa.Scalar:
    """Microseconds since 1970 as a time."""
    return pa.scalar(us, pa.int64()).cast(frames.TIMESTAMP)


def timed(packs: Packs, latest: pa.Scalar) -> pa.RecordBatch:
    """What is packed so far, as rows of TIMED whose time is `latest`."""
    if not len(packs):
        packs.add(FIRST, None)  # nothing but heartbeats: a row without a frame still moves the watermark
    packed = packs.take()
    times = pa.repeat(latest, packed.num_rows).cast(frames.TIMESTAMP)
    return pa.RecordBatch.from_arrays([times, *packed.columns], ["ts", *packed.schema.names])
