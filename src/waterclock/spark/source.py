"""The file source: new files of a folder, read by Python workers straight into packed rows.

Spark's own file source finds the files and remembers which are done; only their names travel through it, so a file of
any size is read in blocks, and each line keeps its number.

Rule 1: the watermark is taken from packed rows (`ts` is the largest time in their block) and the column dropped before
        grouping: with no event time in its input, Spark drops nothing as late; the engine has its own rule for that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from waterclock.rules.durations import datetime_us
from waterclock.spark import buckets, frames, operator
from waterclock.spark.checkpoint import Checkpoint
from waterclock.spark.config import Config
from waterclock.spark.reading import Block, Layout, _open, read_file
from waterclock.spark.transform import Packs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILES = "path string, modificationTime timestamp, length long, content binary"
TIMED = f"ts timestamp, {operator.PACKED}"


def packed_files(session: SparkSession, config: Config, checkpoint: Checkpoint) -> DataFrame:
    """The packed stream of the pipeline's folder and its heartbeats, with the watermark set."""
    files = _names(session, config.source.path, config.source.files_per_batch)
    beats = _names(session, checkpoint.heartbeats, 1)
    layout = Layout(config.source.format, dict(config.source.columns), config.rules)
    named = files.withColumn("beat", F.lit(False)).unionByName(beats.withColumn("beat", F.lit(True)))
    timed = named.mapInArrow(reader(layout), TIMED)
    return timed.withWatermark("ts", f"{config.watermark_delay_us} microseconds").drop("ts")


def _names(session: SparkSession, folder: Path, at_once: int) -> DataFrame:
    stream = session.readStream.format("binaryFile").schema(_FILES).option("maxFilesPerTrigger", at_once)
    return stream.load(folder.as_uri()).select("path")


def reader(layout: Layout) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Names of files in, packed rows out."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        packs = Packs()
        for batch in batches:
            for path, beat in zip(batch.column("path").to_pylist(), batch.column("beat").to_pylist(), strict=True):
                if beat:
                    yield _beat(packs, path)
                else:
                    yield from (_pack(packs, block, layout) for block in read_file(path, layout))
                    yield _taken(packs, {"files": 1})

    return read


def _pack(packs: Packs, block: Block, layout: Layout) -> pa.RecordBatch:
    rules, rows = layout.rules, block.rows
    keyed = rows.filter(pc.is_valid(rows.column(rules.key))).combine_chunks()
    for batch in keyed.to_batches():
        for label, part in buckets.split(batch, batch.column(rules.key), operator.BUCKETS):
            packs.add(label, frames.to_bytes(part))
    if block.dead.num_rows:
        counted = frames.with_counters(block.dead, {"dead_letters": block.dead.num_rows}, b"dead")
        packs.add(buckets.labels(operator.BUCKETS)[0], frames.to_bytes(counted))
    return _timed(packs, pc.max(rows.column(rules.time)) if rows.num_rows else pa.scalar(None, frames.TIMESTAMP), rows)


def _beat(packs: Packs, path: str) -> pa.RecordBatch:
    with _open(path) as file:
        moment = json.loads(file.read())["closing"]
    packs.add(buckets.labels(operator.BUCKETS)[0], None)
    return _timed(packs, pa.scalar(datetime_us(datetime.fromisoformat(moment)), pa.int64()).cast(frames.TIMESTAMP))


def _taken(packs: Packs, counters: dict[str, int]) -> pa.RecordBatch:
    nothing = frames.with_counters(frames.DEAD_SCHEMA.empty_table(), counters, b"dead")
    packs.add(buckets.labels(operator.BUCKETS)[0], frames.to_bytes(nothing))
    return _timed(packs, pa.scalar(None, frames.TIMESTAMP))


def _timed(packs: Packs, latest: pa.Scalar, rows: pa.Table | None = None) -> pa.RecordBatch:
    if rows is not None and rows.num_rows and not len(packs):
        packs.add(buckets.labels(operator.BUCKETS)[0], None)  # heartbeats alone still move the watermark
    packed = packs.take()
    times = pa.repeat(latest, packed.num_rows).cast(frames.TIMESTAMP)
    return pa.RecordBatch.from_arrays([times, *packed.columns], ["ts", *packed.schema.names])
