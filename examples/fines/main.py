"""The main job from end to end: make the replay, run the pipeline on it, check the answer, show it.

1. the log is read, the penalties are taken out, the rest is replayed in disorder    replay.py
2. the pipeline runs on the replay, as it would on any folder                         pipeline.toml
3. its table is compared with a plain computation over the clean log                  check.py
4. a page for people, report.json for programs                                        report.py
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from rich.console import Console

from waterclock.errors import UsageError
from waterclock.spark.config import load
from waterclock.spark.pipeline import Pipeline, Progress, Summary
from waterclock.spark.progress import Bar
from waterclock.spark.session import Session, start

from .check import Verdict, check
from .log import read_log, without_penalties
from .replay import Replay, write_replay
from .report import terminal_summary, write_report

OWN = (
    "replay",
    "checkpoint",
    "fines.db",
    "fines.db-wal",
    "fines.db-shm",
    "report.html",
    "report.json",
    "spark.log",
)


def demo(folder: Path, seed: int = 1, as_json: bool = False) -> int:
    """The command `waterclock demo fines`; 0 when the answer is right, 1 when it is wrong."""
    replay = prepare(folder, seed)
    with Bar("fines", quiet=as_json) as bar:
        session = start("fines", log=folder / "spark.log")
        summary = run_pipeline(folder, session, bar.tell)
    found = answers(folder, replay, summary, seed, session.java)
    page = write_report(folder, found)
    if as_json:
        print(json.dumps(found, indent=1))
    else:
        console = Console(stderr=True)
        console.print(terminal_summary(found))
        console.print(f"The report: {page}   the table: {folder / 'fines.db'}   for programs: {folder / 'report.json'}")
    return 0 if found["verdict"] == "right" else 1


def prepare(folder: Path, seed: int, file_count: int = 16) -> Replay:
    """A fresh `folder` with the replay and the pipeline's file; only what an earlier run made is removed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in OWN:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        (folder / "pipeline.toml").write_text((files(__package__) / "pipeline.toml").read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"the folder {str(folder)!r} cannot be used ({error}): name another with --folder") from error
    return write_replay(without_penalties(read_log()), folder / "replay", seed, file_count)


def run_pipeline(folder: Path, session: Session, tell: Callable[[Progress], None] | None = None) -> Summary:
    """Run the prepared folder's pipeline to its end."""
    pipeline = Pipeline(load(folder / "pipeline.toml"))
    try:
        return pipeline.run(session.spark, tell=tell)
    finally:
        pipeline.close()


def answers(folder: Path, replay: Replay, summary: Summary, seed: int, java: str) -> dict[str, Any]:
    """The content of report.json, which is written too."""
    verdict = check(read_log(), folder / "fines.db")
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
