"""A pipeline's run without Spark, in this process or in one that is killed, and what of its results two runs have alike."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from waterclock.clock import SystemClock
from waterclock.local.command import configured
from waterclock.local.pipeline import LocalPipeline
from waterclock.streaming.statistics import Summary
from waterclock.streaming.toml.config import load

DRIVER = Path(__file__).with_name("crash_driver.py")


def run_locally(file: Path, live: bool = False) -> Summary:
    with closing(configured(load(file))) as pipeline:
        return pipeline.run(live)


def driven(file: Path, step: str = "never", count: int = 0) -> int | None:
    """How many batches were read once more; None if it was killed."""
    command = [sys.executable, str(DRIVER), str(file), step, str(count)]
    done = subprocess.run(command, capture_output=True, timeout=120, text=True)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-2000:]
    return int(done.stdout) if not done.returncode else None


def kinds(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Results without batch and watermark, in an order of their own."""
    return sorted(tuple(map(str, (*row[1:5], *row[6:]))) for row in found)


@contextmanager
def living(file: Path) -> Iterator[tuple[LocalPipeline, Future[Summary]]]:
    """A live run, ended behind the block; raises what the run raised."""
    with closing(configured(load(file))) as pipeline, ThreadPoolExecutor(1) as thread:
        run = thread.submit(pipeline.run, live=True)
        try:
            yield pipeline, run
        finally:
            pipeline.end()
        run.result(60)


def until(is_so: Callable[[], object], what: str) -> None:
    """Wait; AssertionError after half a minute."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + 30
    while not is_so():
        assert clock.monotonic_s() < until_s, what
        clock.sleep_s(0.02)


def counts(pipeline: LocalPipeline, counter: str, count: int) -> None:
    """Wait until it has counted so much."""
    until(lambda: pipeline.statistics().count(counter) >= count, f"there are not {count} {counter}")
