"""Which source a pipeline has, and which stream that means: files, topics, a streaming DataFrame, or results of `on_spark`.

Rule 1: a source is a value: what `[source]` of a file says, as a record. The stream of it is made for one pipeline.
Rule 2: what `write_once` is given is a source too. A batch of it goes through the same numbered steps (pipeline.py), into
        the same sinks. It is closed through the source that `on_spark` put beside its rows (packing/closing.py). A stream
        that went through no `on_spark` has nothing that could be held back, and is not closed.
Rule 3: what the state depends on was given to `on_spark`: rules, delay, columns. A later run is held to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from waterclock.errors import UsageError
from waterclock.rules.model import Rules
from waterclock.spark.batch.steps import watermarks_in
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.packing.closing import OnSpark, bind, bindings_of, unbind
from waterclock.spark.packing.packs import in_workers
from waterclock.spark.source import Stream
from waterclock.streaming import frames
from waterclock.streaming.places.place import is_remote
from waterclock.streaming.toml.config import Files, check_fits
from waterclock.streaming.toml.readers import Reader
from waterclock.streaming.toml.topics import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Results:
    """Results as the source of a pipeline without rules: what `write_once` runs."""

    rows: DataFrame
    made: Mapping[str, OnSpark]

    @property
    def delay_us(self) -> int:
        """The longest delay of a watermark in it."""
        return max((each.watermark_delay_us for each in self.made.values()), default=0)

    @property
    def sparkSession(self) -> SparkSession:
        """The session of its DataFrame."""
        return self.rows.sparkSession


def results_of(stream: DataFrame) -> Results:
    """`stream` as a source; UsageError if it cannot be one."""
    if not stream.isStreaming:
        raise UsageError(
            "write_once(stream) is a batch DataFrame: there is nothing to go on with, so write it with Spark's own writers"
        )
    if not hasattr(stream, "_jdf"):
        raise UsageError("write_once(stream) is a DataFrame of Spark Connect: use a session that is in this process")
    made = bindings_of(stream)
    if made and watermarks_in(stream) > len(made):
        raise UsageError(
            "write_once(stream) has a withWatermark of its own beside that of rules.on_spark(), which would hold the close "
            "back: leave it out in front of the rules; what needs one behind them, do in a query of its own"
        )
    return Results(stream, made)


class ResultStream(Stream):
    """A `Stream` of results: its packed rows are the frames that a batch takes."""

    unit = "results"

    def __init__(self, results: Results, checkpoint: Checkpoint) -> None:
        self._results, self._checkpoint = results, checkpoint
        self.closes = bool(results.made)

    def schema(self) -> pa.Schema:
        return to_arrow_schema(self._results.rows.schema, timezone="UTC")

    def settings(self) -> dict[str, Any]:
        made = self._results.made.values()
        counts = [each.buckets for each in made]
        both = {"rules": [each.rules for each in made], "columns": [each.columns for each in made]}
        return {**both, **({"buckets": counts[0] if len(set(counts)) == 1 else counts} if counts else {})}

    def check(self) -> None:
        """What Spark can know of it, it knew when the stream was made."""
        if self.closes and is_remote(self._checkpoint.path):
            raise UsageError(
                f"write_once cannot close a stream by the checkpoint {self._checkpoint.path}: the Python that plans it has "
                "no way there. Give a path that this machine has, or the rows and rules to Pipeline(source=)"
            )

    def packed(self, session: SparkSession, live: bool, count: int) -> DataFrame:
        bind(self._results.made, self._folder())
        return in_workers(self._results.rows, as_frames, "frame binary")

    def progress(self, totals: Mapping[str, int]) -> tuple[int, int]:
        done = totals.get("results", 0)
        return done, done

    def close(self) -> None:
        if self.closes and not is_remote(self._checkpoint.path):
            unbind(self._results.made, self._folder())

    def _folder(self) -> Path:
        return Path(str(self._checkpoint.heartbeats))


def as_frames(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Rows in, a frame for each batch of them out."""
    for batch in batches:
        if batch.num_rows:
            yield pa.RecordBatch.from_arrays([pa.array([frames.to_bytes(batch)], pa.binary())], ["frame"])


Source: TypeAlias = (
    Files | Topics | Reader | Results | Any
)  # a streaming DataFrame, for which PySpark has no types here


def stream_of(source: Source, rules: Rules | None, delay_us: int, checkpoint: Checkpoint) -> Stream:
    """The stream of `source`; EnvironmentMissing if a package for it is not installed."""
    if isinstance(source, Results):
        return ResultStream(source, checkpoint)
    if isinstance(source, Reader):
        from waterclock.spark.dataframe.stream import ReaderStream

        assert rules is not None
        return ReaderStream(source, rules, delay_us, checkpoint)
    if isinstance(source, DataFrame):
        from waterclock.spark.dataframe.stream import DataFrameStream

        assert rules is not None  # as check_source saw
        return DataFrameStream(source, rules, delay_us, checkpoint)
    if isinstance(source, Files):
        from waterclock.spark.files import FileStream

        assert rules is not None  # only topics bring changes
        return FileStream(source, rules, delay_us, checkpoint)
    from waterclock.spark.kafka.stream import TopicStream

    return TopicStream(source, rules, delay_us, checkpoint)


def check_source(source: Source, rules: Rules | None) -> None:
    """Raise UsageError or TypeError if `source` is none, or does not fit the rules."""
    if isinstance(source, Results):
        return
    if isinstance(source, DataFrame):
        from waterclock.spark.dataframe.stream import check_dataframe

        check_dataframe(source, rules)
        check_fits(None, rules)
        return
    if not isinstance(source, Files | Topics | Reader):
        raise TypeError(
            f"Pipeline(source=) must be a folder(...), topics(...) or a streaming DataFrame, got {source!r}"
        )
    check_fits(source.all_columns(), rules)
