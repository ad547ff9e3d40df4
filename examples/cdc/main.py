"""Change data capture from end to end, with everything that takes part killed now and then, and nothing believed.

1. databases and a broker are made; the shop's twenty tables                      servers.py, target.py, stage.py, tables.py
   with --existing they are full, and no log has their rows
2. the shop writes, while the capture, the broker and the pipeline do their work              shop.py
3. some of them are killed with SIGKILL at random moments, and started again                  Kills, below
4. once the pipeline has read all that the source committed: source and target row by row    compare.py
5. every version in the topic, against what was committed and the version before it           checker.py, values.py
6. what the target keeps of itself: each row's last place, each change counted once           ledger.py
"""

from __future__ import annotations

import os
import platform
import threading
from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from random import Random
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from waterclock.cdc.position import MariaGtidList, Position
from waterclock.clock import Clock, SystemClock
from waterclock.errors import UsageError
from waterclock.examples.ends import ended_as_by_ctrl_c, undisturbed
from waterclock.examples.folders import alone_in, clear
from waterclock.examples.reports import report

from .checker import Checker, OrderErrors, check_topic
from .compare import Differences, compare
from .ledger import Ledger, look_up
from .shop import Shop
from .stage import TOPIC, Stage
from .tables import tables

OWN = ("broker", "lake", "shop.db", "shop.db-wal", "shop.db-shm", "shop.duckdb", "shop.duckdb.wal", "checkpoint",
       "pipeline.toml", "report.json", "mariadb.log", "postgresql.log", "broker.log", "cdc.log",
       "pipeline.log")  # fmt: skip
_LOOK_EVERY_S = 0.2
_LATEST_S = 2.0  # so long after its turn has come does a kill happen at the latest
_FIRST, _LAST = 0.02, 0.9  # of the work
_AHEAD, _MEANWHILE = 0.03, 0.06  # so much further may the shop be: before a turn comes, and when the kill is due
_RISE = _MEANWHILE - _AHEAD
_ALL = ("written", "captured", "applied")
_WORK = {"cdc": "captured", "broker": "captured", "pipeline": "applied", "PostgreSQL": "applied"}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command asks for."""

    folder: Path
    seed: int = 1
    changes: int = 200_000
    kills: int = 0
    as_json: bool = False
    to: str = "postgres"  # or "sqlite", "duckdb", "delta"
    existing: int = 0  # rows that are older than the log


def demo(wanted: Wanted) -> int:
    """The command `waterclock demo cdc`; 0 when the target is equal and no order is wrong, 1 when not."""
    if wanted.changes < 1 or wanted.kills < 0:
        raise UsageError("--changes must be 1 or more, and --kills 0 or more")
    with alone_in(wanted.folder):
        return _reported(wanted)


def _reported(wanted: Wanted) -> int:
    clear(wanted.folder, OWN)
    with ended_as_by_ctrl_c():
        found = _run(wanted, SystemClock())
    report(found, wanted.folder, wanted.as_json, _table)
    return 0 if found["verdict"] == "equal" else 1


def _run(wanted: Wanted, clock: Clock) -> dict[str, Any]:
    stage = Stage(wanted.folder, clock, wanted.to)
    try:
        with _Bars(wanted) as bars:
            stage.start()
            shop = Shop(stage.mariadb.connection, wanted.seed, wanted.changes)
            shop.make()
            if wanted.existing:
                bars.say(f"filling the tables with {wanted.existing:,} rows")
                shop.fill(wanted.existing)
            job = Job(stage, shop, Kills(wanted.seed, wanted.kills, clock, _victims(stage)), clock)
            job.run(bars)
            bars.say("comparing")
            kills = {process.name: process.kills for process in stage.processes if process.name in _WORK}
            cpu = {process.name: round(process.cpu_s(), 1) for process in stage.processes}
            ends = {process.name: process.ends for process in stage.processes if process.name in _WORK}
            stage.settle()
            differences = compare(stage.mariadb, stage.target)
            checker = Checker(shop.history, job.first, tables(), shop.older)
            errors = check_topic(stage.servers, TOPIC, checker)
            ledger = look_up(stage.target, checker.rows, tables())
        return {
            **_figures(wanted, job, differences, errors, ledger),
            "kills": kills,
            "kills_at_work": job.kills.at_work,
            "ended_by_themselves": ends,
            "cpu_seconds": cpu,
        }
    finally:
        with undisturbed():
            stage.close()


def _victims(stage: Stage) -> list[str]:
    """Those that may be killed: the others are no processes."""
    return [name for name in _WORK if name != "PostgreSQL" or name == stage.target.name]


class Kills:
    """Who is killed when: `count` turns at random, each process in turn; the same seed gives the same turns.

    A turn comes when its process has done a random part of its work. It is not killed right then: progress is seen after a
    commit, and every other moment must have its chance too.

    Rule: nobody is killed when the work is done: that would prove nothing. The shop waits for each kill before it goes far
          on, and writes a little more once a turn has come. One that was killed just now is killed again once it runs.
    """

    def __init__(self, seed: int, count: int, clock: Clock, victims: Collection[str] = _WORK.keys()) -> None:
        self._chance, self._clock = Random(f"kills {seed}"), clock
        several = sorted(victims)
        names = [name for _ in range(0, count, len(several)) for name in self._chance.sample(several, len(several))]
        self._turns = [(self._chance.uniform(_FIRST, _LAST), name) for name in names[:count]]
        self._due: list[tuple[float, float, str]] = []  # (second, part of the work, name)
        self.at_work = 0  # of the kills, those with something written that the process had not done yet

    @property
    def left(self) -> int:
        return len(self._turns) + len(self._due)

    @property
    def until(self) -> float:
        """The part of all writes that the shop may do before the next kill; while one is due it rises little by little, so
        that something is under way."""
        now_s = self._clock.monotonic_s()
        coming = [part + _AHEAD for part, _ in self._turns]
        due = [part + _MEANWHILE - _RISE * max(0, at_s - now_s) / _LATEST_S for at_s, part, _ in self._due]
        return min([*coming, *due, 1.0])

    def look(self, parts: dict[str, float], stage: Stage) -> None:
        """`parts`, from 0 to 1, are written, captured and applied: kill whose turn it is."""
        now_s = self._clock.monotonic_s()
        for part, name in [each for each in self._turns if parts[_WORK[each[1]]] >= each[0]]:
            self._turns.remove((part, name))
            self._due.append((now_s + self._chance.uniform(0, _LATEST_S), part, name))
        for due in [each for each in self._due if each[0] <= now_s]:
            if stage.kill(due[2]):
                self._due.remove(due)
                self.at_work += parts[_WORK[due[2]]] < parts["written"]


class Job:
    """The shop's writes on their way to the target, until the target has them all.

    Rule: while rows come that are older than the log, the shop writes along with them, not far ahead.
    """

    def __init__(self, stage: Stage, shop: Shop, kills: Kills, clock: Clock) -> None:
        self._stage = stage
        self.shop = shop
        self.kills = kills
        self._clock = clock
        self._failure: BaseException | None = None
        self.first = int(stage.mariadb.place().rpartition("-")[2])  # the last transaction that made a table
        self.seconds: dict[str, float] = {}  # when all was written, captured, applied, since the start
        self.existing = sum(map(len, shop.older.values()))
        self.came = {name: self.existing * (name == "written") for name in _ALL}  # rows and changes that are so far
        self._totals = [0]  # changes of the first n transactions

    def run(self, bars: _Bars) -> None:
        """Raises what stopped the shop or one of the processes for good."""
        self._began_s = self._clock.monotonic_s()
        self._let_write()
        writer = threading.Thread(target=self._write, name="shop", daemon=True)
        writer.start()
        try:
            bars.say("starting Spark")
            self._stage.begin()
            while not self._is_over():
                self._stage.keep()
                self._look(bars)
                self._clock.sleep_s(_LOOK_EVERY_S)
                if self._failure is not None:
                    raise self._failure
        finally:
            self.shop.stop()
            writer.join()

    def _write(self) -> None:
        try:
            self.shop.write()
        except BaseException as error:
            self._failure = error

    def _is_over(self) -> bool:
        return len(self.seconds) == len(_ALL) and not self.kills.left and self._stage.all_applied()

    def _look(self, bars: _Bars) -> None:
        """How far each is; what cannot be asked now stays as it was."""
        shop, before = self.shop, dict(self.came)
        self.came["written"] = self.existing + shop.written
        position, applied = self._stage.captured(), self._stage.applied()
        if position is not None:
            self.came["captured"] = self._older_at(position) + self._changes_up_to(position.place)
        self.came["applied"] = max(self.came["applied"], self._all_of(applied))
        if self.came != before:
            for process in self._stage.processes:
                process.came_further()
        self._note_the_time()
        bars.show(self.came)
        total = self.existing + max(shop.written, shop.wanted)
        self.kills.look({name: count / total for name, count in self.came.items()}, self._stage)
        self._let_write()

    def _all_of(self, applied: int) -> int:
        """Of older rows it is not known how many come: one that is deleted before its turn does not."""
        total = self.came["written"]
        return total if "captured" in self.seconds and self._stage.all_applied() else min(applied, total - 1)

    def _let_write(self) -> None:
        so_far = self.came["captured"] / (self.existing + self.shop.wanted) + _MEANWHILE if self.existing else 1.0
        self.shop.may_write(ceil(min(self.kills.until, so_far) * self.shop.wanted))

    def _note_the_time(self) -> None:
        for place, name in enumerate(_ALL):
            done = self.came[name] >= self.existing + max(self.shop.wanted, self.shop.written)
            if done and name not in self.seconds and all(earlier in self.seconds for earlier in _ALL[:place]):
                self.seconds[name] = self._clock.monotonic_s() - self._began_s

    def _older_at(self, position: Position) -> int:
        """How many older rows came; new rows come with them, which are changes too."""
        if position.held is None:
            return 0
        left = {name.partition(".")[2]: rest.rows for name, rest in position.held.older().items()}
        return sum(min(left.get(table, len(keys)), len(keys)) for table, keys in self.shop.older.items())

    def _changes_up_to(self, place: str) -> int:
        history, totals = self.shop.history, self._totals
        for number in range(len(totals) - 1, len(history)):
            totals.append(totals[-1] + len(history[number]))
        if not place or not MariaGtidList(place).covers(MariaGtidList(f"0-1-{self.first}")):
            return 0
        return totals[min(int(place.rpartition("-")[2]) - self.first, len(totals) - 1)]


# What people see -----------------------------------------------------------------------------------------------


class _Bars:
    """A bar for each part of the way."""

    def __init__(self, wanted: Wanted) -> None:
        columns = (TextColumn("{task.description:9}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                   TextColumn("{task.fields[note]}"))  # fmt: skip
        self._progress = Progress(*columns, console=Console(stderr=True), disable=wanted.as_json)
        self._tasks = {
            name: self._progress.add_task(name, total=wanted.existing + wanted.changes, note="") for name in _ALL
        }
        self.say("starting databases and a broker")

    def __enter__(self) -> _Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def say(self, note: str) -> None:
        self._progress.update(self._tasks[_ALL[-1]], note=note)

    def show(self, came: dict[str, int]) -> None:
        for name, count in came.items():
            self._progress.update(self._tasks[name], completed=count)
        if came[_ALL[-1]]:
            self.say("")


def _figures(wanted: Wanted, job: Job, differences: Differences, errors: OrderErrors, ledger: Ledger) -> dict[str, Any]:
    shop = job.shop
    equal = not (differences.errors or errors.errors or ledger.errors(shop.written + errors.older))
    return {
        "verdict": "equal" if equal else "not equal",
        "changes": shop.written,
        "existing": job.existing,
        "operations": _operations(shop),
        "transactions": len(shop.history),
        "rolled_back": shop.rolled_back,
        "tables": len(shop.rows),
        "rows_compared": differences.rows,
        "rows": asdict(differences),
        "order_errors": errors.errors,
        "order": asdict(errors),
        "target": asdict(ledger),
        "seconds": {name: round(seconds, 1) for name, seconds in job.seconds.items()},
        "changes_per_second": round((job.existing + shop.written) / job.seconds["applied"]),
        "seed": wanted.seed,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
    }


def _operations(shop: Shop) -> dict[str, int]:
    """How many of each kind were written; another key is a delete and an insert, whose row is not new."""
    found = Counter(version.operation for versions in shop.history for version in versions)
    keys = sum(version.operation == "insert" and version.rev > 1 for versions in shop.history for version in versions)
    one = {"insert": found["insert"] - keys, "update": found["update"], "delete": found["delete"] - keys}
    return {**one, "other key": keys}


def _table(found: dict[str, Any]) -> Table:
    table = Table(title=f"cdc: {found['verdict']}", title_justify="left", show_header=False)
    table.add_row(
        "changes", f"{found['changes']:,} of {found['transactions']:,} transactions on {found['tables']} tables"
    )
    table.add_row("of them", _listed(found["operations"]))
    if found["existing"]:
        came = f"{found['order']['older']:,} came beside it, with those written meanwhile"
        table.add_row("older than the log", f"{found['existing']:,} rows; {came}")
    table.add_row("rolled back", f"{found['rolled_back']:,} transactions")
    seconds = found["seconds"]
    table.add_row("time", ", ".join(f"{name} after {seconds[name]:.1f} s" for name in _ALL))
    table.add_row(
        "speed", f"{found['changes_per_second']:,} rows and changes/s from the first write to the last applied"
    )
    table.add_row("kills", f"{_listed(found['kills'])}; {found['kills_at_work']} with work under way")
    cpu = ", ".join(f"{name} {spent:.0f} s" for name, spent in found["cpu_seconds"].items())
    table.add_row("processor", f"{cpu} (since the last start)")
    table.add_row("rows compared", f"{found['rows_compared']:,}, every column")
    rows = found["rows"]
    table.add_row(
        "rows that differ", f"{rows['different']} different, {rows['missing']} missing, {rows['extra']} extra"
    )
    order = found["order"]
    wrong = ", ".join(f"{order[name]} {name}" for name in ("missing", "twice", "strange", "wrong", "swapped", "torn"))
    table.add_row("order errors", f"{found['order_errors']} in {order['versions']:,} versions ({wrong})")
    target = found["target"]
    table.add_row("places of rows", f"{target['wrong']} wrong of {target['positions']:,}, deleted ones among them")
    table.add_row(
        "taken once", f"{target['applied']:,} applied of {target['read']:,}, {target['dead_letters']} put aside"
    )
    for text in rows["shown"]:
        table.add_row("", text)
    return table


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())
