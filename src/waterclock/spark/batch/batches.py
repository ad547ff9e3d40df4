"""A batch's result frames: the batch that a sink is given, and what executors do if they write the results themselves.

On executors (sinks/files.py says why):

    a result frame with rows             its rows go into the task's file; what it says beside them goes on to the driver
    a dead frame, or one without rows    goes on as it is
    behind the last frame                the file frame: name, size, rows, figures

So counters, dead letters and watermarks come to the driver in either way, and are added up there in the same one.

Rule 1: rows become what the driver would have made of them: the same columns, no time behind that of the close.
Rule 2: a row that the table does not keep goes on as a dead letter, and is counted as one.
Rule 3: the frames of a part come in the same order each time the batch is run (operator.py, rule 4), so its rows do too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa
from pyspark import TaskContext

from waterclock.errors import UsageError
from waterclock.sinks import Batch
from waterclock.sinks.base import ResultFile
from waterclock.sinks.files import PartWriter, ResultFiles
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.checkpoint.state_files import ahead
from waterclock.spark.packing.operator import warn_of_refused
from waterclock.streaming import frames
from waterclock.streaming.layout import EARLIEST_US


@dataclass(frozen=True)
class Shape:
    """What results are: the columns in their frames, those that the table is given, and when the close is shown."""

    taken: pa.Schema
    given: pa.Schema
    last_us: int

    def of(self, frame: pa.Table) -> pa.Table:
        """The results of a frame as the sink takes them."""
        rows = frames.up_to(self.last_us, frames.conform(frames.chosen(frame, self.taken.names), self.taken))
        return rows.select(self.given.names)


def writing(files: ResultFiles, shape: Shape) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that a task runs over its result frames; frames out."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        part, attempt = (context.partitionId(), context.taskAttemptId()) if context else (0, 0)
        writer = files.begin(part, attempt)
        try:
            for batch in batches:
                for frame in batch.column("frame").to_pylist():
                    yield from map(_as_row, _left_of(frames.from_bytes(frame), writer, shape))
            if (file := writer.end()) is not None:
                yield _as_row(pa.Table.from_pylist([asdict(file)], schema=frames.FILE_SCHEMA))
        except BaseException:
            writer.drop()
            raise

    return write


def files_in(taken: Sequence[pa.Table]) -> tuple[ResultFile, ...]:
    """The files that tasks reported, in the order of their parts."""
    return tuple(ResultFile(**row) for frame in taken if frames.kind_of(frame) == "file" for row in frame.to_pylist())


def _left_of(frame: pa.Table, writer: PartWriter, shape: Shape) -> Iterator[pa.Table]:
    """What goes on to the driver."""
    if frames.kind_of(frame) == "dead" or not frame.num_rows:
        yield frame
        return
    letters = writer.add(shape.of(frame))
    yield pa.table({}).replace_schema_metadata(frame.schema.metadata)  # all that it says beside its rows
    if letters.num_rows:
        counted = frames.with_counters(letters, {"dead_letters": letters.num_rows}, "dead")
        yield frames.noted(counted, put_aside=letters.num_rows)


def _as_row(frame: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([frames.to_bytes(frame)], pa.binary())], ["frame"])


def batch_of(
    taken: list[pa.Table], place: tuple[Checkpoint, int], schema: pa.Schema, last_us: int, seconds: float
) -> Batch:
    """The batch of the frames `taken`; `place` is (checkpoint, batch id), the close is shown at `last_us`."""
    checkpoint, batch_id = place
    for refused in {frames.note(f, "refused") for f in taken} - {None}:
        warn_of_refused(refused)
    files = files_in(taken)
    found = [f for f in taken if frames.kind_of(f) not in ("dead", "file") and f.num_rows]
    results = [frames.conform(frames.chosen(f, schema.names), schema) for f in found]
    dead = [f.select(frames.DEAD_SCHEMA.names) for f in taken if frames.kind_of(f) == "dead"]
    rows = frames.up_to(last_us, pa.concat_tables([schema.empty_table(), *results]))
    count = rows.num_rows + sum(file.rows for file in files)
    offsets, query_id = checkpoint.offsets(batch_id), checkpoint.query_id()
    watermark_us = watermark_of(offsets, taken)
    assert query_id is not None
    return Batch(
        query_id=query_id,
        batch_id=batch_id + ahead(checkpoint),
        offsets=offsets,
        results=rows,
        dead_letters=pa.concat_tables([frames.DEAD_SCHEMA.empty_table(), *dead], promote_options="default"),
        counters=frames.sum_counters([*map(frames.counters_of, taken), {"results": count}]),
        watermark_us=None if watermark_us is None else min(watermark_us, last_us),
        seconds=seconds,
        files=files,
    )


def refuse_rows_in(batch: Batch) -> None:
    """UsageError if `batch`, which comes after the close, has rows. Files and topics are looked at before; of a DataFrame,
    only the batch itself shows it."""
    if batch.counters.get("events") or batch.counters["results"]:
        raise UsageError(
            "the pipeline was closed, and rows came after that: nothing in them would be in time. Start over with a "
            "new checkpoint and an empty sink; and for input that goes on, set close=False"
        )


def watermark_of(offsets: str | None, taken: list[pa.Table]) -> int | None:
    """The watermark of a batch in microseconds: Spark's, from the second line of its offsets, or one that results say.

    Spark's begins at 0, which says that there is none; that of a topic may well lie before 1970. None for one that no
    calendar holds, so far back does `watermark_delay` reach.
    """
    ms = spark_ms(offsets)
    said = [frames.note(frame, "watermark") for frame in taken]
    reported = [us for us in said if us is not None and us >= EARLIEST_US]
    return max((*reported, *([ms * 1000] if ms else [])), default=None)


def spark_ms(offsets: str | None) -> int:
    """Spark's watermark of a batch in milliseconds, from what it notes of it; 0 if there is none."""
    lines = (offsets or "").splitlines()
    return int(json.loads(lines[1]).get("batchWatermarkMs", 0)) if len(lines) > 1 else 0
