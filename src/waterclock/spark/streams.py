"""Which stream a source means: files of a folder, topics of Kafka, a streaming DataFrame, or results of one.

Rule 1: a source is a value: what `[source]` of a file says, as a record. The stream of it is made for one pipeline.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from pyspark.sql import DataFrame

from waterclock.rules.model import Rules
from waterclock.spark.batch.results import Results, ResultStream
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.source import Stream
from waterclock.streaming.toml.config import Files
from waterclock.streaming.toml.fitting import check_fits
from waterclock.streaming.toml.readers import Reader
from waterclock.streaming.toml.topics import Topics

Source: TypeAlias = (
    Files | Topics | Reader | Results | Any
)  # a streaming DataFrame, for which PySpark has no types here


def stream_of(source: Source, rules: Rules | None, delay_us: int, checkpoint: Checkpoint) -> Stream:
    """The stream of `source`; EnvironmentMissing where a package for it is not installed."""
    if isinstance(source, Results):
        return ResultStream(source, checkpoint)
    if isinstance(source, Reader):
        from waterclock.spark.dataframe.reader import ReaderStream

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
    """Raise UsageError or TypeError where `source` is none, or does not fit the rules."""
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
