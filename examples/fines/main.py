"""The main job from end to end: send the replay through a topic, run the pipeline on it, check the answer, show it.

1. the log is read, the penalties are taken out, the rest is put in disorder                replay.py
2. a broker is started; the replay is sent to it while the pipeline runs on its topic        feed.py, pipeline.toml
3. the pipeline's table is compared with a plain computation over the clean log              check.py
4. a page and a picture for people, report.json for programs                                 report.py, picture.py
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from waterclock.broker import Broker
from waterclock.clock import SystemClock
from waterclock.errors import UsageError
from waterclock.examples.folders import alone_in
from waterclock.pipelines.progress import Bar
from waterclock.streaming.statistics import Progress, Summary
from waterclock.streaming.toml.config import Config, load

from .check import Verdict, check
from .feed import TOPIC, Feed
from .latency import latencies_s, percentile
from .log import read_log, without_penalties
from .replay import Replay, make_replay
from .report import terminal_summary, write_report
from .tables import SQLiteTables

if TYPE_CHECKING:
    from waterclock.local import LocalPipeline
    from waterclock.spark.pipeline import Pipeline
    from waterclock.spark.session.session import Session

OWN = (
    "broker",
    "replay",
    "checkpoint",
    "fines.db",
    "fines.db-wal",
    "fines.db-shm",
    "fines.png",
    "report.html",
    "report.json",
    "spark.log",
)
PARTITIONS = 4
RATE = 5_000  # lines a second
SHIPPED = "localhost:9092"  # in pipeline.toml, where the address of the broker comes
ABOUT = (
    "In 10,000 real traffic fines each penalty stands exactly 60 days after its notification. This job takes the "
    "penalties out. It sends the rest to a topic of waterclock's own broker, as a careless network would: up to 14 days "
    "late, and one event in twenty twice. Meanwhile a pipeline with waterclock's rules makes every penalty again, and in "
    "the end its table is compared with the records.\n"
)
LEFT = {"picture": "fines.png", "report": "report.html", "table": "fines.db", "for programs": "report.json"}


@dataclass(frozen=True, slots=True)
class Run:
    """What a run leaves: the pipeline's summary, and the seconds from sending to commit of every event, sorted."""

    summary: Summary
    latencies_s: list[float]


def demo(folder: Path, seed: int = 1, as_json: bool = False, engine: str = "spark") -> int:
    """The command `waterclock demo fines`; 0 when the answer is right, 1 when it is wrong."""
    with alone_in(folder):
        return _reported(folder, seed, as_json, engine)


def _reported(folder: Path, seed: int, as_json: bool, engine: str) -> int:
    console = Console(stderr=True, quiet=as_json)
    console.print(ABOUT, highlight=False)
    replay = prepare(folder, seed)
    with Bar("fines", quiet=as_json) as bar:
        session = _session(folder) if engine == "spark" else None
        run = run_pipeline(folder, session, replay, RATE, bar.report)
    found = answers(folder, replay, run, seed, session.java if session else "without Spark and Java")
    write_report(folder, found)
    if as_json:
        print(json.dumps(found, indent=1))
    console.print(terminal_summary(found))
    for what, name in LEFT.items():
        console.print(f"  {what:<14}{folder / name}", soft_wrap=True, highlight=False)
    return 0 if found["verdict"] == "right" else 1


def _session(folder: Path) -> Session:
    from waterclock.spark.session.session import start

    return start("fines", log=folder / "spark.log")


def prepare(folder: Path, seed: int) -> Replay:
    """A fresh `folder` with the pipeline's file, and the replay; only what an earlier run made is removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in OWN:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        (folder / "pipeline.toml").write_text((files(__package__) / "pipeline.toml").read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"the folder {str(folder)!r} cannot be used ({error}): name another with --folder") from error
    return make_replay(without_penalties(read_log()), seed)


def run_pipeline(
    folder: Path, session: Session | None, replay: Replay, rate: int, notify: Callable[[Progress], None] | None = None
) -> Run:
    """Run the prepared folder's pipeline on a broker of its own while the replay is sent, `rate` lines a second. Without a
    session it runs in this process."""
    with Broker(folder / "broker") as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        file = folder / "pipeline.toml"
        file.write_text(file.read_text().replace(SHIPPED, broker.bootstrap))
        return _run(folder, session, Feed(broker.bootstrap, PARTITIONS, replay, rate), notify)


def _run(folder: Path, session: Session | None, feed: Feed, notify: Callable[[Progress], None] | None) -> Run:
    clock, committed_s = SystemClock(), dict[int, float]()

    def committed(progress: Progress) -> None:
        committed_s[progress.batch_id] = clock.monotonic_s()
        feed.go_on()
        if notify is not None:
            notify(progress)

    pipeline, run = _engine(load(folder / "pipeline.toml"), session)
    with closing(pipeline):
        feed.start(pipeline.end)
        try:
            summary = run(committed)
        finally:
            feed.stop()
    feed.write(folder / "replay")
    return Run(summary, latencies_s(folder / "fines.db", feed.sent_s, committed_s))


def _engine(
    config: Config, session: Session | None
) -> tuple[Pipeline | LocalPipeline, Callable[[Callable[[Progress], None]], Summary]]:
    """The pipeline, and what runs it."""
    if session is None:
        from waterclock.local import command

        local = command.configured(config)
        return local, partial(command.run, local, True)
    from waterclock.spark.pipeline import configured

    pipeline = configured(config)
    return pipeline, partial(pipeline.run, session.spark, True)


def answers(folder: Path, replay: Replay, run: Run, seed: int, java: str) -> dict[str, Any]:
    """The content of report.json, which is written too."""
    verdict, summary = check(read_log(), SQLiteTables(folder / "fines.db")), run.summary
    found = {
        **_figures(verdict),
        "duplicates_injected": replay.duplicates,
        "duplicates_removed": summary.totals.get("duplicates", 0),
        "reordered": summary.totals.get("reordered", 0),
        "late": summary.totals.get("late", 0),
        "dead_letters": summary.totals.get("dead_letters", 0),
        "events": replay.events,
        "seconds": round(summary.seconds, 2),
        "events_per_second": round(summary.events_per_second),
        "latency_p50_s": round(percentile(run.latencies_s, 50), 3),
        "latency_p99_s": round(percentile(run.latencies_s, 99), 3),
        "verdict": "right" if verdict.right and _all_removed(replay, summary) else "wrong",
        "seed": seed,
        "java": java,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
    }
    (folder / "report.json").write_text(json.dumps(found, indent=1) + "\n")
    return found


def _figures(verdict: Verdict) -> dict[str, Any]:
    figures = asdict(verdict)
    figures["wrong_cases"] = list(verdict.wrong_cases[:10])
    return figures


def _all_removed(replay: Replay, summary: Summary) -> bool:
    return summary.totals.get("duplicates") == replay.duplicates and not summary.totals.get("late")
