"""`waterclock run` with engine = "local": the pipeline of a file, its bar, and its summary."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from waterclock.local.checkpoint import LocalCheckpoint
from waterclock.local.csv import csv_of
from waterclock.local.pipeline import LocalPipeline
from waterclock.local.sources import FileSource, Source, refuse_spark
from waterclock.rules.model import Rules
from waterclock.signals import heard
from waterclock.sinks.destination import Destination, Findings, remove_all
from waterclock.streaming.frames import result_schema
from waterclock.streaming.given import ChosenColumns
from waterclock.streaming.places.place import Place
from waterclock.streaming.statistics import Progress, Summary
from waterclock.streaming.toml.config import Config, Files, Local, read
from waterclock.streaming.toml.readers import Reader
from waterclock.streaming.toml.steps import Outlet
from waterclock.streaming.toml.topics import Topics


def configured(config: Config) -> LocalPipeline:
    """The pipeline of a file; UsageError for what only Spark can do."""
    about = (config.checkpoint, config.watermark_delay_us, config.close, config.name, config.local)
    return pipeline_of(config.source, config.rules, config.outlets, *about)


def pipeline_of(
    source: Any, rules: Rules | None, outlets: Sequence[Outlet[Any]], checkpoint: Place, watermark_delay_us: int,
    close: bool, name: str, local: Local,
) -> LocalPipeline:  # fmt: skip
    """The pipeline of a checked source; UsageError for what only Spark can do. A sink may be a record that makes it."""
    rules = refuse_spark(source, rules, outlets, checkpoint)
    sinks: list[Outlet[Any]] = [
        each.of(each.sink.sink()) if isinstance(each.sink, Destination) else each for each in outlets
    ]
    return LocalPipeline(
        source_of(source, rules, watermark_delay_us), rules, sinks, LocalCheckpoint(Path(str(checkpoint))),
        watermark_delay_us=watermark_delay_us, close=close, name=name, buckets=local.buckets,
        linger_s=local.linger_us / 1e6,
    )  # fmt: skip


def source_of(source: Any, rules: Rules, delay_us: int) -> Source:
    """What [source] names."""
    if isinstance(source, Files):
        return FileSource(source, rules, delay_us)
    if isinstance(source, Reader):
        files, csv = csv_of(source, rules)
        return FileSource(files, rules, delay_us, csv)
    assert isinstance(source, Topics), "refused"
    from waterclock.local.topics import TopicSource

    return TopicSource(source, rules, delay_us)


def check(file: str) -> Findings:
    """What is wrong with a pipeline, as far as it can be known without running it. Nothing is made or changed."""
    found = Findings()
    config, faults = read(file)
    found.faults.extend(map(str, faults))
    if config is None:
        found.unchecked.append("what the file names: the source, the checkpoint, the sink")
        return found
    made: list[Source] = []

    def look() -> None:
        rules = refuse_spark(config.source, config.rules, config.outlets, config.checkpoint)
        made.append(source_of(config.source, rules, config.watermark_delay_us))

    if found.try_to(look):
        with closing(made[0]) as source:
            found.try_to(source.check)
            event, rules = source.schema(), config.rules
            assert rules is not None, "refused"
            results = result_schema(event.field(rules.key).type, event)
            for outlet in config.outlets:
                found.try_to(partial(_look_at, outlet, results, found))
        found.unchecked.append("the checkpoint: a run looks at it")
    return found


def _look_at(outlet: Outlet[Destination], results: pa.Schema, found: Findings) -> None:
    given = ChosenColumns(outlet.columns, results).schema if outlet.columns else results
    outlet.sink.look(given, found)


def start_over(config: Config) -> None:
    """Remove the checkpoint and the sink's tables; UsageError, and nothing is removed, if the run could not start or
    one of them is something else."""
    with closing(configured(config)) as pipeline:
        pipeline.check_source()
    checkpoint = LocalCheckpoint(Path(str(config.checkpoint)))
    with closing(checkpoint):
        checkpoint.refuse_to_remove([outlet.sink.place for outlet in config.outlets])
        remove_all([outlet.sink for outlet in config.outlets])
        checkpoint.remove()


def run(pipeline: LocalPipeline, live: bool, report: Callable[[Progress], None]) -> Summary:
    """Run it to its end; Ctrl-C ends a live run behind its batch, and another one at once."""
    # A batch makes hundreds of thousands of tuples and leaves no cycles behind: the collector would walk them all.
    gc.collect()
    gc.freeze()
    with heard(lambda *_: pipeline.end()) if live else heard():
        return pipeline.run(live, report)
