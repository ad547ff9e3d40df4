"""The file source: new files of a folder, read by Python workers straight into packed rows.

Spark's own file source finds the files and remembers which are done; only their names travel through it, so a file of
any size is read in blocks, and each line keeps its number.

Rule 1: the watermark is taken from packed rows (`ts` is the largest time in their block) and the column dropped before
        grouping: with no event time in its input, Spark drops nothing as late; the engine has its own rule for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.rules.model import Rules
from waterclock.spark import buckets, frames, operator
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.files.reading import Layout, name_of, read_file
from waterclock.spark.layout import dead_letters
from waterclock.spark.packs import END_US, FIRST, NO_TIME, TIMED, Packs, end_of, timed
from waterclock.spark.source import names_of
from waterclock.spark.source_folder import check_source, count_files
from waterclock.spark.toml.config import Files
from waterclock.spark.transform import delay_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_GONE = "it was moved or deleted before it was read: put it back under another name"


class FileStream:
    """A `Stream` of the files in a folder of this machine."""

    unit = "files"
    closes = packs_itself = True

    def __init__(self, source: Files, rules: Rules, delay_us: int, checkpoint: Checkpoint) -> None:
        self._source, self._delay_us, self._checkpoint = source, delay_us, checkpoint
        self._layout = Layout(source.format, dict(source.columns), rules)

    def begin(self, session: SparkSession) -> None:
        """Nothing: it is known what is read."""

    def schema(self) -> pa.Schema:
        return self._layout.schema()

    def settings(self) -> dict[str, Any]:
        return {"columns": dict(self._source.columns), "path": str(self._source.path)}

    def check(self) -> None:
        check_source(self._source.path)

    def refuse_if_closed(self) -> None:
        self._checkpoint.refuse_if_closed(self._source.path)

    def packed(self, session: SparkSession, live: bool) -> DataFrame:
        files = names_of(session, self._source.path, self._source.files_per_batch, beat=False)
        beats = names_of(session, self._checkpoint.heartbeats, 1, beat=True)
        rows = files.unionByName(beats).mapInArrow(reader(self._layout, self._delay_us), TIMED)
        return rows.withWatermark("ts", delay_text(self._delay_us)).drop("ts")

    def trigger(self, live: bool) -> dict[str, Any]:
        return {}

    def progress(self, totals: Mapping[str, int]) -> tuple[int, int]:
        done = totals.get("files", 0)
        try:
            return done, count_files(self._source.path)
        except OSError:
            return done, done  # the folder is away: that is for the listing of files to wait for

    def vanished(self, batch_id: int, taken: Sequence[pa.Table]) -> list[pa.Table]:
        read, folder = {frames.file_of(frame) for frame in taken}, self._source.path
        unread = [name for name in self._checkpoint.files_of(batch_id) if name not in read]
        gone = [name for name in unread if not (folder / name).exists()]  # others are empty: no worker is given these
        letters = dead_letters([(f"file:{folder}/{name}", None, _GONE, None) for name in gone])
        counters = {"files": len(unread), "dead_letters": len(gone)}
        return [frames.with_counters(letters, counters, b"dead")] if unread else []

    def explain(self, story: str) -> str | None:
        return None

    def close(self) -> None:
        pass


def reader(layout: Layout | None, delay_us: int = 0) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Names of files in, packed rows out; a file's rows are ordered by when it was written, then by its name.

    Without a layout there are heartbeats only. `delay_us` is how far the watermark stays behind.
    """

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for file in batch.to_pylist():
                packs = Packs(f"{file['written']:020d} {file['path']}")
                if file["beat"] or layout is None:
                    yield timed(packs, _time(END_US))  # the closing heartbeat: there is no other file beside the source
                else:
                    yield from _file(packs, file["path"], layout, delay_us)

    return read


def _file(packs: Packs, path: str, layout: Layout, delay_us: int) -> Iterator[pa.RecordBatch]:
    dead = heartbeats = 0
    for block in read_file(path, layout):
        heartbeats += _add_rows(packs, block.rows, layout.rules.key)
        if block.dead.num_rows:
            packs.add(FIRST, frames.to_bytes(block.dead))
        dead += block.dead.num_rows
        latest_us = pc.max(block.rows.column(layout.rules.time).cast(pa.int64())).as_py()
        if latest_us is not None:
            packs.add_early(latest_us - delay_us)
        yield timed(packs, NO_TIME if latest_us is None else _time(end_of(latest_us)))
    counters = {"files": 1, "dead_letters": dead, "heartbeats": heartbeats}
    counted = frames.with_counters(frames.DEAD_SCHEMA.empty_table(), counters, b"dead")
    packs.add(FIRST, frames.to_bytes(frames.with_file(counted, name_of(path))))
    yield timed(packs, NO_TIME)


def _add_rows(packs: Packs, rows: pa.Table, key: str) -> int:
    """Add the events; how many rows are heartbeats, which do their work at the watermark."""
    keyed = rows.filter(pc.is_valid(rows.column(key))).combine_chunks()
    for batch in keyed.to_batches():
        for label, part in buckets.split(batch, batch.column(key), operator.BUCKETS):
            packs.add(label, frames.to_bytes(part))
    return rows.num_rows - keyed.num_rows  # type: ignore[no-any-return]


def _time(us: int) -> pa.Scalar:
    return pa.scalar(us, pa.int64()).cast(frames.TIMESTAMP)
