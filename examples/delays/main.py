"""Reminders through two relays, one of them killed now and then, and nothing believed.

1. a broker and two relays are started; the reminders are planned                            stage.py, plan.py
2. reminders and cancels are sent, while a reader of committed records takes what comes      sender.py, reader.py
3. one relay at a time is killed with SIGKILL, and comes back                                kills.py
4. when nothing is missing any more, or nothing has come for long: all is read to its end, and checked     checker.py
5. how late they were is drawn                                                               picture.py
"""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from waterclock.clock import SystemClock, WallClock
from waterclock.examples.ends import ended_as_by_ctrl_c, undisturbed
from waterclock.examples.folders import alone_in, clear
from waterclock.examples.reports import report

from .checker import Evidence, Verdict, check
from .kills import Kill, Kills
from .plan import Plan, plan
from .reader import Reader
from .sender import Sender
from .stage import RELAYS, Stage

OWN: Final = ("broker", "kafka", "relay-1", "relay-2", "broker.log", "relay-1.log", "relay-2.log", "report.json",
              "lateness.png")  # fmt: skip
_LOOK_EVERY_S: Final = 0.01
_SILENCE_S: Final = 60.0  # nothing new for so long: what is missing is lost
_AROUND_MS: Final = -500, 6_000  # of a kill, from before it to after its return: lateness there counts as the kill's


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command asks for."""

    folder: Path
    reminders: int = 100_000
    seconds: float = 60.0
    cancel: float = 0.0
    kills: int = 4
    seed: int = 1
    on: str = "own"
    as_json: bool = False


def demo(wanted: Wanted) -> int:
    """The command `waterclock demo delays`; 0 when each came once and none early, in order, and each answer was true."""
    with alone_in(wanted.folder):
        clear(wanted.folder, OWN)
        with ended_as_by_ctrl_c():
            found = _run(wanted, SystemClock())
    report(found, wanted.folder, wanted.as_json, _table)
    return 0 if found["verdict"] == "right" else 1


def _run(wanted: Wanted, clock: WallClock) -> dict[str, Any]:
    stage = Stage(wanted.folder, wanted.on, clock)
    job: Job | None = None
    try:
        with _Bar(wanted) as bar:
            stage.start()
            job = Job(stage, plan(wanted.reminders, wanted.seconds, wanted.cancel, wanted.seed), wanted, clock)
            job.run(bar)
            verdict = check(job.evidence())
        return _figures(wanted, job, verdict, stage)
    finally:
        with undisturbed():
            if job is not None:
                job.close()
            stage.close()


class Job:
    """All reminders on their way, until none is missing."""

    def __init__(self, stage: Stage, plan: Plan, wanted: Wanted, clock: WallClock) -> None:
        self._stage = stage
        self._plan = plan
        self._clock = clock
        self.kills = Kills(plan, wanted.kills, wanted.seed)
        self.start_ms = clock.wall_ms()
        self._reader = Reader(stage.servers, stage.partitions(), clock)
        self._sender = Sender(stage.servers, plan, self.start_ms, clock)
        self._came, self._came_s = 0, clock.monotonic_s()
        self.pending: int | None = None  # as the relays say at the end

    def run(self, bar: _Bar) -> None:
        """Raises what stopped the sender, the reader or a process for good."""
        while not self._is_over():
            self._sender.send()
            self._reader.check()
            self.kills.look(self._clock.wall_ms() - self.start_ms, self._stage)
            self._stage.keep()
            bar.show(self._reader, self.kills.done, [each.name for each in self._stage.processes if not each.runs])
            self._clock.sleep_s(_LOOK_EVERY_S)
        bar.say("reading all to its end")
        self._reader.to_the_ends()

    def evidence(self) -> Evidence:
        """All that was seen."""
        sender, reader = self._sender, self._reader
        return Evidence(
            self._plan, self.start_ms, sender.reminders, sender.cancels, reader.deliveries, reader.replies, reader.dead
        )

    def lateness(self) -> list[tuple[int, int]]:
        """When each that came was due, since the start, and how late it came."""
        return [(one.due_ms - self.start_ms, one.came_ms - one.due_ms) for one in self._reader.deliveries]

    def close(self) -> None:
        self._sender.close()
        self._reader.close()

    def _is_over(self) -> bool:
        """Whether nothing is missing, the relays say so too, and all kills happened; or nothing has come for long."""
        if self._reader.count != self._came:
            self._came, self._came_s = self._reader.count, self._clock.monotonic_s()
            for process in self._stage.processes:
                process.came_further()
        silent_s = self._clock.monotonic_s() - self._came_s
        if self._sender.is_done and not self.kills.left and self._came >= self._expected() and silent_s > 1.0:
            self.pending = self._stage.pending()
        return self.pending == 0 or silent_s > _SILENCE_S

    def _expected(self) -> int:
        """Of the records: an answer for each cancel, and a delivery for each reminder that is not told to be cancelled."""
        return len(self._plan.steps) - self._reader.cancelled


# What people see -----------------------------------------------------------------------------------------------


class _Bar:
    """How many came; who is away."""

    def __init__(self, wanted: Wanted) -> None:
        columns = (TextColumn("delivered or cancelled"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                   TextColumn("{task.fields[note]}"))  # fmt: skip
        self._progress = Progress(*columns, console=Console(stderr=True), disable=wanted.as_json)
        self._task = self._progress.add_task("", total=wanted.reminders, note="starting a broker and two relays")

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, note: str) -> None:
        self._progress.update(self._task, note=note)

    def show(self, reader: Reader, kills: Sequence[Kill], away: Sequence[str]) -> None:
        notes = [f"{reader.cancelled:,} cancelled"] if reader.cancelled else []
        notes += [f"{len(kills)} kills"] if kills else []
        notes += [f"{name} is away" for name in away]
        self._progress.update(self._task, completed=reader.settled, note=", ".join(notes))


def _figures(wanted: Wanted, job: Job, verdict: Verdict, stage: Stage) -> dict[str, Any]:
    late, kills = job.lateness(), job.kills.done
    right = verdict.errors.total == 0 and job.pending == 0 and not job.kills.left
    title = f"{verdict.delivered:,} reminders through two relays, {len(kills)} kills: " + (
        "each once, none early" if right else "NOT right"
    )
    _draw(late, kills, title, wanted.folder / "lateness.png")
    around = [ms for due_ms, ms in late if _is_around(due_ms, kills)]
    calm = [ms for due_ms, ms in late if not _is_around(due_ms, kills)]
    return {
        "verdict": "right" if right else "not right",
        **asdict(verdict),
        "pending_at_the_end": job.pending,
        "late_ms": {name: lateness(ms) for name, ms in
                    (("all", [ms for _, ms in late]), ("calm", calm), ("around_kills", around)) if ms},
        "kills": [{"at_s": kill.at_ms / 1000, "relay": kill.name, "away_s": kill.rest_s} for kill in kills],
        "ended_by_themselves": {each.name: each.ends for each in stage.processes if each.name in RELAYS},
        "seconds": wanted.seconds,
        "on": wanted.on,
        "seed": wanted.seed,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
    }  # fmt: skip


def _is_around(due_ms: int, kills: Sequence[Kill]) -> bool:
    before_ms, after_ms = _AROUND_MS
    return any(before_ms <= due_ms - kill.at_ms < kill.rest_s * 1000 + after_ms for kill in kills)


def _draw(late: list[tuple[int, int]], kills: Sequence[Kill], title: str, file: Path) -> None:
    from . import picture  # matplotlib takes a second

    if late:
        picture.draw(late, kills, title, file)


def lateness(ms: Sequence[int]) -> dict[str, int]:
    """Half of all, 99 of 100, the latest and the first.

    >>> lateness([3, 1, 2])
    {'count': 3, 'least': 1, 'p50': 2, 'p99': 3, 'most': 3}
    """
    ordered = sorted(ms)
    p50, p99 = (ordered[min(len(ordered) - 1, len(ordered) * percent // 100)] for percent in (50, 99))
    return {"count": len(ordered), "least": ordered[0], "p50": p50, "p99": p99, "most": ordered[-1]}


def _table(found: dict[str, Any]) -> Table:
    table = Table(title=f"delays: {found['verdict']}", title_justify="left", show_header=False)
    table.add_row("reminders", f"{found['reminders']:,} due within {found['seconds']:g} s")
    table.add_row("delivered", f"{found['delivered']:,}")
    told = f"{found['cancelled']:,} cancelled and not delivered, {found['already_delivered']:,} told too late"
    table.add_row("cancels", told)
    wrong = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in found["errors"].items())
    table.add_row("errors", wrong)
    table.add_row("left pending", str(found["pending_at_the_end"]))
    for name, late in found["late_ms"].items():
        words = f"p50 {late['p50']:,} ms, p99 {late['p99']:,} ms, most {late['most']:,} ms, of {late['count']:,}"
        table.add_row(f"late, {name.replace('_', ' ')}", words)
    kills = Counter(kill["relay"] for kill in found["kills"])
    table.add_row("kills", ", ".join(f"{name}: {count}" for name, count in sorted(kills.items())) or "none")
    for words in found["shown"]:
        table.add_row("overtaken", words)
    return table
