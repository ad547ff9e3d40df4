"""The stream of any streaming DataFrame.

Rule 1: its columns are fixed while the checkpoint lives; what it reads is Spark's to remember and to check.
Rule 2: what in its plan would hold the watermark back, or differ when a batch is run again, is refused before it starts.
Rule 3: waterclock cannot know whether something came after the close before Spark has read it: the batch is refused then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from waterclock.errors import UsageError
from waterclock.rules.model import Rules
from waterclock.spark.batch.plans import refuse_stateful
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.dataframe.rows import ASIDE, pack_letters, row_packer
from waterclock.spark.files import reader
from waterclock.spark.packing.by_place import in_workers
from waterclock.spark.packing.packs import TIMED
from waterclock.spark.packing.transform import check_columns, delay_text, with_id
from waterclock.spark.source import names_of
from waterclock.streaming.toml.fitting import check_durations, check_names_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def check_dataframe(rows: DataFrame, rules: Rules | None, what: str = "Pipeline(source=)") -> None:
    """Raise UsageError where `rows`, which is called `what`, cannot be the source of a pipeline with these rules."""
    if rules is None:
        raise UsageError("Pipeline(rules=) is None, and only topics bring changes of tables: give the rules")
    if not rows.isStreaming:
        raise UsageError(
            f"{what} is a batch DataFrame: read it with spark.readStream, or apply the rules to it with "
            "rules.on_spark()"
        )
    if not hasattr(rows, "_jdf"):
        raise UsageError(f"{what} is a DataFrame of Spark Connect: use a session that is in this process")
    check_columns(rules, rows.schema)
    check_durations(rules)
    check_names_of(rows.columns, what)
    refuse_stateful(rows, what)


def event_schema(rows: DataFrame) -> pa.Schema:
    """The columns of events that `rows` become. Each may be null: where a result has no event, all of them are."""
    return pa.schema(list(map(_nullable, to_arrow_schema(rows.schema, timezone="UTC"))))


def _nullable(field: pa.Field) -> pa.Field:
    inner = pa.struct(list(map(_nullable, field.type))) if pa.types.is_struct(field.type) else field.type
    return pa.field(field.name, inner, metadata=field.metadata)


class DataFrameStream:
    """A `Stream` of the rows of a streaming DataFrame that `check_dataframe` found good."""

    unit = "rows"
    closes, packs_itself = True, False

    def __init__(
        self, rows: DataFrame, rules: Rules, delay_us: int, checkpoint: Checkpoint, letters: DataFrame | None = None
    ) -> None:
        """`letters` are lines that could not be read, where they do not stand among `rows`."""
        self._rows, self._rules, self._delay_us, self._checkpoint = rows, rules, delay_us, checkpoint
        self._letters = letters

    def begin(self, session: SparkSession) -> None:
        """Nothing: it is known what is read."""

    def schema(self) -> pa.Schema:
        return event_schema(self._rows.drop(*ASIDE))

    def settings(self) -> dict[str, Any]:
        return {
            "columns": {field.name: field.dataType.simpleString() for field in self._rows.drop(*ASIDE).schema.fields}
        }

    def check(self) -> None:
        """Nothing: it was looked at when the pipeline was made."""

    def refuse_if_closed(self) -> None:
        """Nothing that can be known yet: the first batch that has rows is refused."""

    def packed(self, session: SparkSession, live: bool, count: int) -> DataFrame:
        named = with_id(self._rows, self._rules, self._rows.drop(*ASIDE).columns)
        rows = in_workers(named, row_packer(self._rules, self._delay_us, count), TIMED)
        beats = in_workers(names_of(session, self._checkpoint.heartbeats, 1, beat=True), reader(None), TIMED)
        if self._letters is not None:
            rows = rows.unionByName(in_workers(self._letters, pack_letters, TIMED))
        return rows.unionByName(beats).withWatermark("ts", delay_text(self._delay_us)).drop("ts")

    def trigger(self, live: bool) -> dict[str, Any]:
        return {}

    def progress(self, totals: Mapping[str, int]) -> tuple[int, int]:
        done = totals.get("events", 0)
        return done, done  # how much more there is, Spark's source knows

    def vanished(self, batch_id: int, taken: Sequence[pa.Table]) -> list[pa.Table]:
        return []

    def explain(self, story: str) -> str | None:
        return None

    def close(self) -> None:
        pass
