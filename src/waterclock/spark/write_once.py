"""`write_once`: a stream of results, or of anything made of them, into a sink, each batch once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from waterclock.spark.pipeline import Pipeline
from waterclock.spark.streams import results_of
from waterclock.streaming.places.place import Place
from waterclock.streaming.statistics import Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_once(
    stream: DataFrame,
    sink: Any,
    checkpoint: str | Path | Place,
    *,
    live: bool = False,
    close: bool = True,
    name: str = "write_once",
) -> Summary:
    """Write `stream`, which went through `rules.on_spark()` and anything after it, into `sink`, each batch once.

    It runs until there is nothing new, and closes; with `live`, until Ctrl-C. docs/pipeline-api.md is its guide.
    """
    source = results_of(stream)
    with Pipeline(source, None, sink, checkpoint, watermark_delay=source.delay_us, close=close, name=name) as pipeline:
        return pipeline.run(live=live)
