"""The file source: new files of a folder, read by Python workers straight into packed rows.

Spark's own file source finds the files and remembers which are done; only their names travel through it, so a file of
any size is read in blocks, and each line keeps its number. Of a place behind a URI, Spark's executors bring the bytes too,
each file whole: a Python worker has no way there, and Spark has everybody's (hdfs://, s3a://, with their passwords).

Rule 1: the watermark is taken from packed rows (`ts` is the largest time in their block) and the column dropped before
        grouping: with no event time in its input, Spark drops nothing as late; the engine has its own rule for that.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.errors import EnvironmentMissing, PlaceLost
from waterclock.rules.model import Rules
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.packing.packs import FIRST, NO_TIME, TIMED, Packs, as_time, in_workers, timed
from waterclock.spark.packing.transform import delay_text
from waterclock.spark.source import Stream, names_of
from waterclock.streaming import frames
from waterclock.streaming.buckets import BUCKETS
from waterclock.streaming.files.folder import check_source, count_files
from waterclock.streaming.files.reading import Layout, name_of, read_file
from waterclock.streaming.layout import END_US, dead_letters, end_of
from waterclock.streaming.places.place import is_remote
from waterclock.streaming.toml.config import Files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NAMED = ["path", "written", "beat"]
_MISSING = re.compile(
    r"FileNotFoundException: (?:File does not exist: |No such file or directory: |File )(\S.*?)(?: does not exist|$)",
    re.MULTILINE,
)
_GONE = "it was moved or deleted before it was read: put it back under another name"


class FileStream(Stream):
    """A `Stream` of the files in a folder."""

    unit = "files"
    packs_itself = reads_again = True

    def __init__(self, source: Files, rules: Rules, delay_us: int, checkpoint: Checkpoint) -> None:
        self._source = source
        self._delay_us = delay_us
        self._checkpoint = checkpoint
        self._layout = Layout(source.format, dict(source.columns), rules)

    def schema(self) -> pa.Schema:
        return self._layout.schema()

    def settings(self) -> dict[str, Any]:
        return {"columns": dict(self._source.columns), "path": str(self._source.path)}

    def check(self) -> None:
        check_source(self._source.path)

    def refuse_if_closed(self) -> None:
        self._checkpoint.refuse_if_closed(self._source.path)

    def packed(self, session: SparkSession, live: bool, count: int) -> DataFrame:
        content = ("content",) if is_remote(self._source.path) else ()
        files = names_of(session, self._source.path, self._source.files_per_batch, False, *content)
        beats = names_of(session, self._checkpoint.heartbeats, 1, True, *content)
        rows = in_workers(files.unionByName(beats), reader(self._layout, self._delay_us, count), TIMED)
        return rows.withWatermark("ts", delay_text(self._delay_us)).drop("ts")

    def progress(self, totals: Mapping[str, int]) -> tuple[int, int]:
        done = totals.get("files", 0)
        try:
            return done, count_files(self._source.path)
        except (OSError, PlaceLost):
            return done, done  # the folder is away: that is for the listing of files to wait for

    def vanished(self, batch_id: int, taken: Sequence[pa.Table]) -> list[pa.Table]:
        read, folder = {frames.note(frame, "file") for frame in taken}, self._source.path
        unread = [name for name in self._checkpoint.files_of(batch_id) if name not in read]
        gone = [name for name in unread if not (folder / name).exists()]  # others are empty: no worker is given these
        said = [frames.note(frame, "unseen") for frame in taken]
        # a worker that does not see what is there has another folder under that path, or none
        if unseen := [each for each in said if each is not None and each[0] in {*unread} - {*gone}]:
            name, host = min(unseen)
            raise EnvironmentMissing(self._not_seen(name, f"the worker on {host}"))
        scheme = "" if is_remote(folder) else "file:"  # as Spark names files
        letters = dead_letters([(f"{scheme}{folder}/{name}", None, _GONE, None) for name in gone])
        counters = {"files": len(unread), "dead_letters": len(gone)}
        return [frames.with_counters(letters, counters, "dead")] if unread else []

    def _not_seen(self, name: str, by: str) -> str:
        return (
            f"the file {name} is in the source folder {self._source.path}, and {by} does not see it: mount the folder "
            "there under the same path. Nothing of the batch was written; the same command goes on from there"
        )

    def explain(self, story: str) -> str | None:
        """Spark looks at each file before a worker gets its name, and fails if one is not there for it."""
        missing = _MISSING.search(story)
        if missing is None:
            return None
        name = name_of(missing[1])
        if missing[1].rpartition("/")[0].endswith(str(self._checkpoint.heartbeats)):
            return (
                f"a machine of the cluster does not see the checkpoint {self._checkpoint.path}: mount the folder there "
                "under the same path. Nothing of the batch was written; the same command goes on from there"
            )
        if (self._source.path / name).exists():
            return self._not_seen(name, "a machine of the cluster")
        return (
            f"the file {name} was taken away while its batch began. The same command goes on, and notes that it is gone"
        )


def reader(
    layout: Layout | None, delay_us: int = 0, count: int = BUCKETS
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Names of files in, packed rows out; a file's rows are ordered by when it was written, then by its name.

    Without a layout there are heartbeats only. `delay_us` is how far the watermark stays behind, `count` the number of
    buckets.
    """

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            contents: Iterable[pa.Buffer | None] = repeat(None, batch.num_rows)
            if "content" in batch.schema.names:  # as they lie in memory, if Spark brought them
                contents = (value.as_buffer() for value in batch.column("content"))
            for file, content in zip(batch.select(_NAMED).to_pylist(), contents, strict=True):
                packs = Packs(f"{file['written']:020d} {file['path']}", count)
                if file["beat"] or layout is None:
                    yield timed(
                        packs, as_time(END_US)
                    )  # the closing heartbeat: there is no other file beside the source
                else:
                    yield from _file_if_there(packs, (file["path"], content), layout, delay_us)

    return read


def _file_if_there(
    packs: Packs, file: tuple[str, pa.Buffer | None], layout: Layout, delay_us: int
) -> Iterator[pa.RecordBatch]:
    try:
        yield from _file(packs, file, layout, delay_us)
    except FileNotFoundError:
        packs.add(
            FIRST,
            frames.to_bytes(
                frames.noted(frames.DEAD_SCHEMA.empty_table(), unseen=[name_of(file[0]), socket.gethostname()])
            ),
        )
        yield timed(packs, NO_TIME)


def _file(packs: Packs, file: tuple[str, pa.Buffer | None], layout: Layout, delay_us: int) -> Iterator[pa.RecordBatch]:
    dead, heartbeats, (path, content) = 0, 0, file
    for block in read_file(path, layout, content):
        keyed = block.rows.filter(pc.is_valid(block.rows.column(layout.rules.key))).combine_chunks()
        for batch in keyed.to_batches():
            packs.add_rows(batch, layout.rules.key)
        heartbeats += block.rows.num_rows - keyed.num_rows  # these do their work at the watermark
        if block.dead.num_rows:
            packs.add(FIRST, frames.to_bytes(block.dead))
        dead += block.dead.num_rows
        latest_us = pc.max(block.rows.column(layout.rules.time).cast(pa.int64())).as_py()
        if latest_us is not None:
            packs.add_early(latest_us - delay_us)
        yield timed(packs, NO_TIME if latest_us is None else as_time(end_of(latest_us)))
    counters = {"files": 1, "dead_letters": dead, "heartbeats": heartbeats}
    counted = frames.with_counters(frames.DEAD_SCHEMA.empty_table(), counters, "dead")
    packs.add(FIRST, frames.to_bytes(frames.noted(counted, file=name_of(path))))
    yield timed(packs, NO_TIME)
