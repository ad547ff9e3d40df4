"""What executors do with a batch's result frames where they write the results themselves (sinks/files.py).

    a result frame with rows             its rows go into the task's file; what it says beside them goes on to the driver
    a dead frame, or one without rows    goes on as it is
    behind the last frame                the file frame: name, size, rows, figures

So counters, dead letters and watermarks come to the driver as before, and are added up there in the same way.

Rule 1: rows become what the driver would have made of them: the same columns, no time behind that of the close.
Rule 2: a row that the table does not keep goes on as a dead letter, and is counted as one.
Rule 3: the frames of a part come in the same order each time the batch is run (operator.py, rule 4), so its rows do too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa
from pyspark import TaskContext

from waterclock.sinks.base import ResultFile
from waterclock.sinks.files import PartWriter, ResultFiles
from waterclock.streaming import frames


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
                    yield from map(_packed, _left_of(frames.from_bytes(frame), writer, shape))
            yield from map(_packed, _told(writer.end()))
        except BaseException:
            writer.drop()
            raise

    return write


def files_in(taken: Sequence[pa.Table]) -> tuple[ResultFile, ...]:
    """The files that tasks told of, in the order of their parts."""
    return tuple(ResultFile(**row) for frame in taken if frames.kind_of(frame) == "file" for row in frame.to_pylist())


def _left_of(frame: pa.Table, writer: PartWriter, shape: Shape) -> Iterator[pa.Table]:
    """What goes on to the driver."""
    if frames.kind_of(frame) == "dead" or not frame.num_rows:
        yield frame
        return
    letters = writer.add(shape.of(frame))
    yield pa.table({}).replace_schema_metadata(frame.schema.metadata)  # all that it says beside its rows
    if letters.num_rows:
        yield frames.with_counters(letters, {"dead_letters": letters.num_rows}, "dead")


def _told(file: ResultFile | None) -> Iterator[pa.Table]:
    if file is not None:
        yield pa.Table.from_pylist([asdict(file)], schema=frames.FILE_SCHEMA)


def _packed(frame: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([frames.to_bytes(frame)], pa.binary())], ["frame"])
