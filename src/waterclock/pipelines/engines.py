"""What runs a pipeline's file: Spark, or this process alone. Of the two only the one that is asked for is imported."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from waterclock.errors import UsageError
from waterclock.sinks.destination import Findings
from waterclock.streaming.statistics import PipelineStatistics, Progress, Summary
from waterclock.streaming.toml.config import Config, log_of

Report = Callable[[Progress], None]


class Runnable(Protocol):
    """A pipeline, as the command knows it."""

    def check(self) -> None: ...

    def statistics(self) -> PipelineStatistics: ...

    def close(self) -> None: ...


class Engine(Protocol):
    """What runs the pipeline of one file."""

    note: str  # what is under way until the first batch is there

    def start_over(self) -> None:
        """Remove the checkpoint and the sinks' tables; UsageError, and nothing is removed, if the run could not start."""

    def configured(self) -> Runnable: ...

    def run(self, pipeline: Any, live: bool, report: Report) -> Summary: ...


class OnSpark:
    """A session of Spark's; it is begun late, but where places are reached through it."""

    note = "starting Spark"

    def __init__(self, config: Config, file: str, master: str | None) -> None:
        from waterclock.spark.session.session import conf_for, start

        conf = conf_for(config.checkpoint, config.spark_conf, master)
        log = log_of(config, file)
        self._config = config
        self._begin = partial(start, config.name, config.cores, conf, log, beside=config.modules())
        self._session = self._begin(config.buckets) if config.is_remote() else None

    def start_over(self) -> None:
        """See `Engine`."""
        from waterclock.spark.fresh import start_over

        start_over(self._config)

    def configured(self) -> Runnable:
        """See `Engine`."""
        from waterclock.spark.pipeline import configured

        return configured(self._config)

    def run(self, pipeline: Any, live: bool, report: Report) -> Summary:
        """See `Engine`."""
        session = self._session or self._begin(pipeline.buckets)
        return pipeline.run(session.spark, live, report)  # type: ignore[no-any-return]


class Here:
    """This process."""

    note = "starting"

    def __init__(self, config: Config, file: str, master: str | None) -> None:
        if master:
            raise UsageError('--master is for engine = "spark": leave it out')
        self._config = config

    def start_over(self) -> None:
        """See `Engine`."""
        from waterclock.local.command import start_over

        start_over(self._config)

    def configured(self) -> Runnable:
        """See `Engine`."""
        from waterclock.local.command import configured

        return configured(self._config)

    def run(self, pipeline: Any, live: bool, report: Report) -> Summary:
        """See `Engine`."""
        from waterclock.local.command import run

        return run(pipeline, live, report)


ENGINES: dict[str, Callable[[Config, str, str | None], Engine]] = {"spark": OnSpark, "local": Here}


def check(engine: str, file: str) -> Findings:
    """What is wrong with a pipeline's file, as far as it can be known without running it."""
    if engine == "local":
        from waterclock.local.command import check
    else:
        from waterclock.spark.checking import check
    return check(file)
