"""The slower tests of `make test` take turns, so that it stays short on a slow machine: another part every day.

tests/seconds.txt names each test that took longer than `SLOW_S`, or `FAMILY_S` with all of its parameters, and what one run
of it took; what is not named there is run every time, and so is what is marked `always`. TEST_MINUTES is what those that
are named may take, with all processes of a run: a number, or `all`; `make test` sets it, and without it, or where ARGS
chooses tests, all that is chosen is run.

Rule 1: the tests of the rooms that a change touches are run, all of them: what changed since HEAD left main, or in HEAD if
        it is main, and what is not committed. TEST_ROOMS names other rooms; outside of a checkout of git there are none.
Rule 2: of the others the seed of the day says which have their turn, as for the campaigns (tests/campaign.py): those of
        Rule 1 are paid first, half of the budget is left at least, and after as many days as are printed each had its turn.
Rule 3: the file is written by a run that has --write-seconds, from what was run; the rest of it stays. What is set up for
        many tests is paid by the first of them: of setting up, a test is charged with `SETUP_S` at most.
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from tests.campaign import SEED, is_long, plan, processes

MINUTES, ROOMS = "TEST_MINUTES", "TEST_ROOMS"
SLOW_S, SETUP_S = 0.3, 1.0
FAMILY_S = 2.0  # a hundred parameters of 0.1 seconds each keep everybody waiting as one slow test does
TOP = "top"  # what stands in no room: src/waterclock/cli.py, tests/test_cli.py
BESIDE = {"broker": "conformance"}  # tests of one room in the folder of another
WRITTEN_BY_RUNS = {"tests/seconds.txt", "tests/unsteady.txt"}


def named(nodeid: str) -> str:
    """The test, whatever its parameters are."""
    return nodeid.partition("[")[0]


def takes_turns(item: pytest.Item) -> bool:
    return not is_long(item) and item.get_closest_marker("always") is None


def room_of(path: str) -> str | None:
    """The folder of tests that a file is about; `TOP` for the tests of no folder, None for what has no tests."""
    parts = path.removeprefix("src/waterclock/").split("/")
    if parts[0] == "tests":
        parts = parts[1:]
    elif parts[0] not in ("bench", "examples") and not path.startswith("src/waterclock/"):
        return None
    return parts[0] if len(parts) > 1 else TOP


def changed_rooms(root: Path) -> set[str]:
    """Rule 1."""

    def git(*command: str) -> list[str]:
        done = subprocess.run(["git", *command], cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.splitlines() if done.returncode == 0 else []

    try:
        head = git("rev-parse", "HEAD")
        bases = [base for main in ("origin/main", "main") for base in git("merge-base", "HEAD", main) if [base] != head]
        before = (bases or git("rev-parse", "--verify", "HEAD~1") or head)[:1]
        files = git("diff", "--name-only", "--relative", *before) if before else []
        files += git("ls-files", "--others", "--exclude-standard")
    except FileNotFoundError:  # there is no git
        return set()
    rooms = {room for file in files if file not in WRITTEN_BY_RUNS and (room := room_of(file)) is not None}
    return rooms | {BESIDE[room] for room in rooms if room in BESIDE}


def read(file: Path) -> dict[str, float]:
    """Seconds by the name of a test."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {name: float(seconds) for seconds, name in (line.split(maxsplit=1) for line in lines)}


def merged(before: dict[str, float], took: dict[str, float]) -> str:
    """The text of the file: what was run now, and the rest as it was."""
    runs: dict[str, list[float]] = defaultdict(list)
    for nodeid, seconds in took.items():
        runs[named(nodeid)].append(seconds)
    known = {name: seconds for name, seconds in before.items() if name not in runs}
    known |= {name: mean(each) for name, each in runs.items() if mean(each) >= SLOW_S or sum(each) >= FAMILY_S}
    return "".join(f"{seconds:.{1 if seconds >= SLOW_S else 2}f} {name}\n" for name, seconds in sorted(known.items()))


# The hooks ------------------------------------------------------------------------------------------------------


class Turns:
    """Of one process: how many tests are slow, how many of them had no turn, and what each test took."""

    def __init__(self, config: pytest.Config) -> None:
        self._config, self._file = config, config.rootpath / "tests" / "seconds.txt"
        asked = os.environ.get(MINUTES)
        try:
            self._minutes = None if asked in (None, "", "all") else float(asked)
        except ValueError:
            raise pytest.UsageError(f"{MINUTES} is a number of minutes or `all`, not {asked!r}") from None
        self._slow, self._out, self._turns = 0, 0, 1
        self._rooms = set(os.environ.get(ROOMS, "").split())
        self._took: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(trylast=True)  # behind -m and -k
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the slower tests of what changed, those of the others whose turn it is, and all that are quick."""
        costs = read(self._file)
        seconds = {
            item.nodeid: costs[named(item.nodeid)]
            for item in items
            if named(item.nodeid) in costs and takes_turns(item)
        }
        self._slow = len(seconds)
        changed = {name for name in seconds if room_of(name) in self._rooms}
        others = {name: cost for name, cost in seconds.items() if name not in changed}
        if self._minutes is None or not others:
            return
        budget_s = self._minutes * 60 * processes(config)
        chosen = plan(
            others, max(budget_s - sum(seconds[name] for name in changed), budget_s / 2), int(os.environ[SEED])
        )
        left = [item for item in items if item.nodeid in others and item.nodeid not in chosen.taken]
        self._out, self._turns = len(left), chosen.turns
        items[:] = [item for item in items if item.nodeid not in others or item.nodeid in chosen.taken]
        config.hook.pytest_deselected(items=left)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._took[report.nodeid] += min(report.duration, SETUP_S) if report.when == "setup" else report.duration

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["turns"] = (self._slow, self._out, self._turns)
        elif self._config.getoption("--write-seconds"):
            self._file.write_text(merged(read(self._file), self._took))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """All processes have the same plan."""
        told = getattr(node, "workeroutput", {}).get("turns")
        self._slow, self._out, self._turns = told or (self._slow, self._out, self._turns)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self._out:
            terminalreporter.section("turns")
            terminalreporter.write_line(
                f"{self._slow - self._out} of {self._slow} slower tests had their turn: seed {os.environ[SEED]} ({SEED}), "
                f"{self._minutes:g} minutes ({MINUTES}). Each has it within {self._turns} seeds in a row; "
                f"{MINUTES}=all make test runs them all."
            )
            if self._rooms:
                terminalreporter.write_line(f"All were run of what changed ({ROOMS}): {' '.join(sorted(self._rooms))}.")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-seconds", action="store_true", help="write what slower tests took into tests/seconds.txt")


def pytest_configure(config: pytest.Config) -> None:
    if (
        MINUTES in os.environ and ROOMS not in os.environ
    ):  # once for all processes of a run: they must have the same plan
        os.environ[ROOMS] = " ".join(sorted(changed_rooms(config.rootpath)))
    config.pluginmanager.register(Turns(config))
