"""`waterclock run --check`: what can be known of a pipeline without running it. No session is started, nothing is written.

    1. the file            its tables, names, types, and what does not fit together
    2. what it runs on     Java, the packages that its source and its sinks need, Spark's settings in [spark.conf]
    3. the source          it is there, this user may read it, nothing in it stands in the way; its broker answers
    4. the checkpoint      this user may use it, it was made with the same settings, nothing came after its close
    5. each sink           its place may be written; of the tables that are there, all that a run would refuse

Rule 1: every fault that is found is said, not only the first: but of each of these, one does not hide another.
Rule 2: what only a run can show is said too: a file without faults is not a promise.
Rule 3: a pipeline that runs may be checked: nobody's lock is taken.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa

from waterclock.sinks.destination import Destination, Findings
from waterclock.spark.batch.outlets import refuse_beside_executors
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.session.runtimes import use_java
from waterclock.spark.session.session import refuse, settings
from waterclock.spark.source import Stream, results_schema
from waterclock.spark.streams import stream_of
from waterclock.streaming.buckets import by_cores
from waterclock.streaming.checkpoint import settings_of
from waterclock.streaming.given import ChosenColumns
from waterclock.streaming.places.place import is_remote
from waterclock.streaming.toml.config import Config, read
from waterclock.streaming.toml.steps import Outlet


def check(file: str | Path) -> Findings:
    """Look at the pipeline in `file`, and at what it names."""
    found = Findings()
    config, faults = read(file)  # 1
    found.faults.extend(map(str, faults))
    found.try_to(use_java)  # 2
    if config is None:
        found.unchecked.append("what the file names: the source, the checkpoint, the sinks")
        return found
    found.try_to(partial(refuse, {**settings(1), **config.spark_conf}.get))
    checkpoint = Checkpoint(config.checkpoint)
    schema: list[pa.Schema | None] = [None]

    def look_at_source() -> None:
        with closing(stream_of(config.source, config.rules, config.watermark_delay_us, checkpoint)) as stream:
            _check_source(config, stream, found)
            schema[0] = results_schema(stream, config.rules)
            _check_checkpoint(config, checkpoint, stream, found)

    found.try_to(look_at_source)
    found.try_to(partial(refuse_beside_executors, config.outlets))
    for outlet in config.outlets:
        _check_outlet(outlet, schema[0], found)
    return found


def _check_source(config: Config, stream: Stream, found: Findings) -> None:
    if is_remote(getattr(config.source, "path", None)):
        found.unchecked.append("the source: it lies behind a URI, which Spark reaches")
    else:
        found.try_to(stream.check)  # 3
    if (step := getattr(config.source, "step", None)) is not None:
        found.unchecked.append(
            f"{' and '.join(step.settings())} in [source], and the columns that come of it: Spark knows them"
        )
    elif stream.schema() is None:
        found.unchecked.append("the columns of the source: Spark reads them")


def _check_checkpoint(config: Config, checkpoint: Checkpoint, stream: Stream, found: Findings) -> None:
    if is_remote(checkpoint.path):
        found.unchecked.append("the checkpoint: it lies behind a URI, which Spark reaches")
        return
    if not (found.try_to(checkpoint.refuse_unusable) and found.try_to(checkpoint.refuse_another_engine)):  # 4
        return
    if not is_remote(getattr(config.source, "path", None)):
        found.try_to(stream.refuse_if_closed)
    if stream.schema() is None and config.rules is not None:
        found.unchecked.append("whether the checkpoint was made with these settings: the columns belong to them")
        return
    buckets = config.buckets or checkpoint.buckets() or by_cores(config.cores)
    settings = settings_of(stream.settings(), config.rules, config.watermark_delay_us, buckets)
    found.try_to(partial(checkpoint.refuse_others, settings))


def _check_outlet(outlet: Outlet[Destination], results: pa.Schema | None, found: Findings) -> None:
    sink, place = outlet.sink, outlet.sink.place
    if outlet.step is not None:
        found.unchecked.append(
            f"{' and '.join(outlet.step.settings())} in [sink], and {place}: Spark knows what comes of it"
        )
        return
    given: list[pa.Schema | None] = [results]

    def choose() -> None:
        if outlet.columns and results is not None:
            given[0] = ChosenColumns(outlet.columns, results).schema

    if found.try_to(choose):
        found.try_to(lambda: sink.look(given[0], found))  # 5
