"""A pipeline's state from one engine to the other, so that a user outgrows one machine without starting over.

Rule 1: what is carried is the state after the last batch that the sink has. Where buckets lack one of its batches, where
        the pipeline changed, was closed, or is one that Spark reads otherwise, it is refused; nothing is written yet.
Rule 2: the stored state moves as it is, by the steps of a rescale (spark/rescaling/carry.py): the sink decides which of the
        two checkpoints counts, at every moment.
Rule 3: the way back is behind a batch of Spark's that is done, and no other has begun. What is due by the watermark that it
        brought, which Spark fires in its next batch, comes in the next one here too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waterclock.errors import UsageError
from waterclock.streaming.places.place import Place
from waterclock.streaming.toml.config import Config, Files

if TYPE_CHECKING:
    from waterclock.local.checkpoint import Kept
    from waterclock.spark.rescaling.carry import NewState


def to_spark(
    config: Config,
    new: Place,
    begin: Callable[[int], Any],
    buckets: int | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> NewState:
    """Carry the state of a pipeline which ran without Spark, and does not run, into the checkpoint `new`; UsageError,
    StateMismatch or EnvironmentMissing if it cannot be done. `begin` makes Spark's session, for so many buckets."""
    from waterclock.local.checkpoint import is_local
    from waterclock.local.command import configured
    from waterclock.spark.pipeline import configured as on_spark
    from waterclock.spark.rescaling.arrival import Arrival
    from waterclock.streaming.buckets import by_cores

    if not is_local(config.checkpoint):
        raise UsageError(
            f'the checkpoint {config.checkpoint} is none of engine = "local": name the one that the pipeline ran with as '
            "checkpoint in [pipeline]"
        )
    refuse_csv(config)
    with closing(configured(config)) as pipeline:
        kept = pipeline.kept()
        given = _state_of(config, kept)
        count = buckets or config.buckets or by_cores(config.cores)
        session = begin(count)
        with closing(on_spark(replace(config, checkpoint=new, buckets=count))) as same:
            return Arrival(session, given, same, count, report).run(kept.sink, kept.schema)


def refuse_csv(config: Config) -> None:
    """UsageError for a source that the two engines read otherwise."""
    if config.source.format == "csv":
        raise UsageError(
            "a pipeline of CSV is not carried over: Spark's reader gives rows without an id other ids, and takes other "
            "lines for dead letters. Start over with another checkpoint in [pipeline] and another table in [sink], or "
            "go on with its engine"
        )


def _state_of(config: Config, kept: Kept) -> Any:
    from waterclock.spark.checkpoint.folder import Checkpoint
    from waterclock.spark.rescaling.arrival import LocalState

    made = LocalState(
        Checkpoint(kept.checkpoint), kept.rules, kept.batch_id, kept.stored, kept.shelf, kept.clock,
        " and ".join(outlet.sink.place for outlet in config.outlets), kept.sink.totals().get("state_bytes", 0),
    )  # fmt: skip
    if not isinstance(config.source, Files):
        return replace(made, first=kept.first, place=kept.places[-1])
    folder = Path(os.path.normpath(str(config.source.path)))  # as Spark names files: without ..
    return replace(
        made, taken={str(folder / name): _written(folder / name) for place in kept.places for name, _ in place["files"]}
    )


def _written(file: Path) -> int:
    """When a file was written, in milliseconds since 1970; 0 if it is gone: Spark goes by its name."""
    try:
        return file.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0
