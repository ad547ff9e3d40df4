"""A pipeline that is written in Python, whichever engine runs it: docs/pipeline-api.md is its guide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from waterclock.durations import Duration, duration_us
from waterclock.errors import UsageError
from waterclock.sinks import sink_of
from waterclock.streaming.buckets import checked
from waterclock.streaming.places.place import Place, place_of
from waterclock.streaming.toml.config import Files, Local, check_fits
from waterclock.streaming.toml.readers import Reader
from waterclock.streaming.toml.sink import refuse_one_place
from waterclock.streaming.toml.steps import Outlet, check_takes
from waterclock.streaming.toml.table import check_places, plain_name
from waterclock.streaming.toml.topics import Topics

if TYPE_CHECKING:
    from waterclock.local.pipeline import LocalPipeline
    from waterclock.rules.model import Rules
    from waterclock.spark.pipeline import Pipeline as PipelineOnSpark


@overload
def Pipeline(
    source: Any, rules: Rules | None, sink: Any, checkpoint: str | Path | Place, *, engine: Literal["spark"] = ...,
    watermark_delay: Duration = ..., close: bool = ..., name: str = ..., buckets: int | None = ...,
) -> PipelineOnSpark: ...  # fmt: skip


@overload
def Pipeline(
    source: Any, rules: Rules | None, sink: Any, checkpoint: str | Path | Place, *, engine: Literal["local"],
    watermark_delay: Duration = ..., close: bool = ..., name: str = ..., buckets: int | None = ...,
    linger: Duration = ...,
) -> LocalPipeline: ...  # fmt: skip


def Pipeline(
    source: Any, rules: Rules | None, sink: Any, checkpoint: str | Path | Place, *, engine: str = "spark", **more: Any
) -> PipelineOnSpark | LocalPipeline:
    """A source, rules and a sink, with a checkpoint that keeps how far it has come, run by Spark or, with
    engine="local", by this process alone, without Java.

    `source` is a `folder(...)` or `topics(...)`; on Spark a streaming DataFrame too. `sink` is one of waterclock.sinks, or
    a list of such; on Spark an object with the five verbs of sinks/base.py too. `more` is what the engine takes:
    `watermark_delay`, `close`, `name` and `buckets`; here `linger`, how long a live run rests behind a batch
    that took all there was, too.
    ValueError, TypeError or UsageError if they do not fit together.
    """
    if engine not in _MADE:
        raise ValueError(f"Pipeline(engine=) must be 'spark' or 'local', got {engine!r}")
    return _MADE[engine](source, rules, sink, checkpoint, **more)  # type: ignore[no-any-return]


def _on_spark(*given: Any, **more: Any) -> PipelineOnSpark:
    from waterclock.spark import Pipeline

    return Pipeline(*given, **more)


def _here(
    source: Any, rules: Rules | None, sink: Any, checkpoint: str | Path | Place, *, watermark_delay: Duration = 0,
    close: bool = True, name: str = "pipeline", buckets: int | None = None, linger: Duration = 0,
) -> LocalPipeline:  # fmt: skip
    from waterclock.local.command import pipeline_of

    name = plain_name("Pipeline(name=)", name)
    delay_us = duration_us(watermark_delay, "Pipeline(watermark_delay=)")
    count, linger_us = checked("Pipeline(buckets=)", buckets), duration_us(linger, "Pipeline(linger=)")
    if not isinstance(source, Files | Topics | Reader):
        raise TypeError(
            f"Pipeline(source=) must be a folder(...) or topics(...) with engine='local', got {type(source).__name__}: a "
            "streaming DataFrame needs engine='spark'"
        )
    check_fits(source.all_columns(), rules)
    place, outlets = place_of(checkpoint, Path.cwd()), _outlets(sink)
    for outlet in outlets:
        path = getattr(outlet.sink, "path", None)
        check_places(None, getattr(source, "path", None), place, path if isinstance(path, Path) else None)
    local = Local(True, count, linger_us) if count else Local(True, linger_us=linger_us)
    return pipeline_of(source, rules, outlets, place, delay_us, close, name, local)


def _outlets(sink: Any) -> list[Outlet[Any]]:
    several = list(sink) if isinstance(sink, list | tuple) else [sink]
    if not several:
        raise UsageError("a pipeline needs a sink, or a list of sinks: got an empty list")
    outlets = [each if isinstance(each, Outlet) else Outlet(each) for each in several]
    made = [outlet.of(sink_of(outlet.sink)) for outlet in outlets]
    check_takes([outlet.takes for outlet in made])
    refuse_one_place([getattr(outlet.sink, "place", None) or outlet.sink.describe() for outlet in made])
    return made


_MADE: dict[str, Callable[..., Any]] = {"spark": _on_spark, "local": _here}
