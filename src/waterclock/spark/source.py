"""The file source: new files of a folder, read by Python workers straight into packed rows.

Spark's own file source finds the files and remembers which are done; only their names travel through it, so a file of
any size is read in blocks, and each line keeps its number.

Rule 1: the watermark is taken from packed rows (`ts` is the largest time in their block) and the column dropped before
        grouping: with no event time in its input, Spark drops nothing as late; the engine has its own rule for that.
"""

from __future__ import annotations

import json
import re
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
from waterclock.spark.reading import Layout, open_file, read_file
from waterclock.spark.transform import Packs, delay_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILES = "path string, modificationTime timestamp, length long, content binary"
TIMED = f"ts timestamp, {operator.PACKED}"
_FIRST = buckets.labels(operator.BUCKETS)[0]  # where what belongs to no key travels
_FOREVER = "36500d"  # by default, files a week older than the newest one seen are passed over in silence
_NO_TIME = pa.scalar(None, frames.TIMESTAMP)


def packed_files(session: SparkSession, config: Config, checkpoint: Checkpoint) -> DataFrame:
    """The packed stream of the pipeline's folder and its heartbeats, with the watermark set."""
    files = _names(session, config.source.path, config.source.files_per_batch, beat=False)
    beats = _names(session, checkpoint.heartbeats, 1, beat=True)
    layout = Layout(config.source.format, dict(config.source.columns), config.rules)
    timed = files.unionByName(beats).mapInArrow(reader(layout), TIMED)
    return timed.withWatermark("ts", delay_text(config.watermark_delay_us)).drop("ts")


def _names(session: SparkSession, folder: Path, at_once: int, beat: bool) -> DataFrame:
    stream = (
        session.readStream.format("binaryFile").schema(_FILES).options(maxFilesPerTrigger=at_once, maxFileAge=_FOREVER)
    )
    written = F.unix_micros("modificationTime").alias("written")
    # Spark takes a path as it stands, no %20 for a space, but reads it as a pattern
    literal = "file:" + re.sub(r"([\[\]{}*?\\])", r"\\\1", str(folder))
    return stream.load(literal).select("path", written, F.lit(beat).alias("beat"))


def reader(layout: Layout) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Names of files in, packed rows out; a file's rows are ordered by when it was written, then by its name."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.to_pylist():
                packs = Packs(f"{file['written']:020d} {file['path']}")
                yield from _beat(packs, file["path"]) if file["beat"] else _file(packs, file["path"], layout)

    return read


def _file(packs: Packs, path: str, layout: Layout) -> Iterator[pa.RecordBatch]:
    dead_letters = 0
    for block in read_file(path, layout):
        _add_rows(packs, block.rows, layout.rules.key)
        if block.dead.num_rows:
            packs.add(_FIRST, frames.to_bytes(block.dead))
        dead_letters += block.dead.num_rows
        yield _timed(packs, pc.max(block.rows.column(layout.rules.time)))
    counted = frames.DEAD_SCHEMA.empty_table()
    packs.add(
        _FIRST,
        frames.to_bytes(frames.with_counters(counted, {"files": 1, "dead_letters": dead_letters}, b"dead")),
    )
    yield _timed(packs, _NO_TIME)


def _add_rows(packs: Packs, rows: pa.Table, key: str) -> None:
    keyed = rows.filter(pc.is_valid(rows.column(key))).combine_chunks()
    for batch in keyed.to_batches():
        for label, part in buckets.split(batch, batch.column(key), operator.BUCKETS):
            packs.add(label, frames.to_bytes(part))


def _beat(packs: Packs, path: str) -> Iterator[pa.RecordBatch]:
    with open_file(path) as file:
        moment = datetime.fromisoformat(json.loads(file.read())["closing"])
    yield _timed(packs, pa.scalar(datetime_us(moment), pa.int64()).cast(frames.TIMESTAMP))


def _timed(packs: Packs, latest: pa.Scalar) -> pa.RecordBatch:
    if not len(packs):
        packs.add(_FIRST, None)  # nothing but heartbeats: a row without a frame still moves the watermark
    packed = packs.take()
    times = pa.repeat(latest, packed.num_rows).cast(frames.TIMESTAMP)
    return pa.RecordBatch.from_arrays([times, *packed.columns], ["ts", *packed.schema.names])
