"""`write_once`: the results of `rules.on_spark()`, and of anything that was done with them, into a sink, exactly once.

Rule 1: a batch of results goes through the same numbered steps as one of a pipeline (pipeline.py), into the same sinks.
Rule 2: the stream is closed as a pipeline is, through the source that `on_spark` put beside its rows (closing.py). A stream
        that went through no `on_spark` has nothing that could be held back, and is not closed.
Rule 3: what the state depends on was told to `on_spark`: rules, delay, columns. A later run is held to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from waterclock.errors import UsageError
from waterclock.spark.batch.plans import watermarks_in
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.packing.by_place import in_workers
from waterclock.spark.packing.closing import OnSpark, bind, bindings_of, unbind
from waterclock.streaming import frames
from waterclock.streaming.places.place import is_remote

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
    """`stream` as a source; UsageError where it cannot be one."""
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


class ResultStream:
    """A `Stream` of results: its packed rows are the frames that a batch takes."""

    unit, packs_itself = "results", False

    def __init__(self, results: Results, checkpoint: Checkpoint) -> None:
        self._results, self._checkpoint = results, checkpoint
        self.closes = bool(results.made)

    def begin(self, session: SparkSession) -> None:
        """Nothing: it is known what is read."""

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

    def refuse_if_closed(self) -> None:
        """Nothing that can be known yet: the first batch that has results is refused."""

    def packed(self, session: SparkSession, live: bool, count: int) -> DataFrame:
        bind(self._results.made, self._folder())
        return in_workers(self._results.rows, as_frames, "frame binary")

    def trigger(self, live: bool) -> dict[str, Any]:
        return {}

    def progress(self, totals: Mapping[str, int]) -> tuple[int, int]:
        done = totals.get("results", 0)
        return done, done

    def vanished(self, batch_id: int, taken: Sequence[pa.Table]) -> list[pa.Table]:
        return []

    def explain(self, story: str) -> str | None:
        return None

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
