"""What a user's test needs: a broker in the process, its faults, a clock that is turned by hand, a pipeline without its
surroundings.

The fixtures of pytest_plugin.py are there in every pytest run once waterclock is installed; this is for those who write
their own, or use another test runner.

>>> with Broker(settings={"num.partitions": "3"}, clock=ManualClock()) as broker:
...     broker.create_topic("orders")
...     with broker.faults.drop("Produce", after=True):
...         broker.advance_s(60)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waterclock.broker import Broker, BrokerStatistics, DataInUse, Error, Fault, Faults, LogDamaged
from waterclock.clock import ManualClock, SystemClock
from waterclock.errors import EnvironmentMissing, pip_install

if TYPE_CHECKING:
    from waterclock.local import PipelineRun
    from waterclock.simulation.universe import Universe

__all__ = [
    "Broker",
    "BrokerStatistics",
    "DataInUse",
    "Error",
    "Fault",
    "Faults",
    "LogDamaged",
    "ManualClock",
    "SystemClock",
    "run_pipeline",
    "universe",
]


def universe(
    seed: int, faults: Iterable[str] | None = None, settings: Mapping[str, str] | None = None
) -> AbstractContextManager[Universe]:
    """A simulated broker, around which a user's own aiokafka code runs under virtual time: one seed, one history.

    `faults` are some of `kill`, `freeze`, `power_cut`, `reset`, `slow_disk`, `full_disk`, `slow_network`; all of them where
    nothing is said. `settings` are the broker's. `EnvironmentMissing` without the extra `simulation`.
    """
    with _needing("a universe", "simulation"):
        from waterclock.simulation.nemesis import FAULTS
        from waterclock.simulation.universe import universe
    return universe(seed, FAULTS if faults is None else faults, settings)


def run_pipeline(file: str | Path, events: Iterable[Mapping[str, Any] | str], per_batch: int = 1) -> PipelineRun:
    """What a pipeline's file makes of these events, in this process: its `[source]` is not read, its `[sink]` and its
    checkpoint are not touched, and no time passes. It is the code of `engine = "local"`, which reads, judges and counts.

    Each event is a mapping of the columns of `[source.columns]`, with times as texts or as datetimes; or a text, the line
    of a file or the value of a record, damaged or not. An event with nothing but a time is a heartbeat. Behind the last one
    the pipeline closes, unless `[time]` says otherwise. `per_batch`: which events are late hangs on batches, and here each
    is one, as where they come one by one; more is quicker.

    What is wrong in the file, or needs Spark, is an error that says so; `EnvironmentMissing` without the extra `local`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "orders.toml")
    ...     _ = file.write_text('''
    ...         source = {path = "in", columns = {order = "string", at = "timestamp", what = "string"}}
    ...         sink = {path = "out.db"}
    ...         [rules]
    ...         key = "order"
    ...         time = "at"
    ...         type = "what"
    ...         expect = [{type = "paid", after = "created", within = "20 minutes", otherwise = "unpaid"}]
    ...         ''')
    ...     run = run_pipeline(file, [{"order": "A1", "at": "2026-01-01T00:00:00Z", "what": "created"}, "damaged"])
    >>> [(row["kind"], row["key"], row["due"].isoformat()) for row in run.results if row["rule"] == "unpaid"]
    [('expired', 'A1', '2026-01-01T00:20:00+00:00')]
    >>> run.dead_letters[0]["text"], run.counters["events"]
    ('damaged', 1)
    """
    with _needing("a pipeline", "local"):
        from waterclock.local.trial import run_pipeline
    return run_pipeline(file, events, per_batch)


@contextmanager
def _needing(what: str, extra: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing in ("", "waterclock"):
            raise
        raise EnvironmentMissing(f"{missing} is missing, and {what} needs it: {pip_install(extra)}") from None
