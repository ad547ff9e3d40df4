"""The slower tests of `make test` take turns, so that it stays short on a slow machine: another part every day.

tests/seconds.txt names each test that took longer than `SLOW_S`, with what one run of it took; what is not named there is
run every time, and so is what is marked `always`. TEST_MINUTES is what those that are named may take, with all processes
of a run: a number, or `all`; `make test` sets it, and without it, or where ARGS chooses tests, all that is chosen is run.

Rule 1: which of them have their turn, the seed of the day says, as for the campaigns (tests/campaign.py), and after as many
        days as are told each had its turn. All tests of a room are run by naming it: make test ARGS=tests/relay.
Rule 2: the file is written by a run that has --write-seconds, from what was run; the rest of it stays. What is set up for
        many tests is paid by the first of them: of setting up, a test is charged with `SETUP_S` at most.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from tests.campaign import SEED, is_long, plan, processes

MINUTES = "TEST_MINUTES"
SLOW_S, SETUP_S = 0.3, 1.0


def named(nodeid: str) -> str:
    """The test, whatever its parameters are."""
    return nodeid.partition("[")[0]


def takes_turns(item: pytest.Item) -> bool:
    return not is_long(item) and item.get_closest_marker("always") is None


def read(file: Path) -> dict[str, float]:
    """Seconds by the name of a test."""
    lines = file.read_text().splitlines() if file.exists() else []
    return {name: float(seconds) for seconds, name in (line.split(maxsplit=1) for line in lines)}


def merged(before: dict[str, float], took: dict[str, float]) -> str:
    """The text of the file: what was run now, and the rest as it was."""
    runs: dict[str, list[float]] = defaultdict(list)
    for nodeid, seconds in took.items():
        runs[named(nodeid)].append(seconds)
    known = {**before, **{name: mean(each) for name, each in runs.items()}}
    return "".join(f"{seconds:.1f} {name}\n" for name, seconds in sorted(known.items()) if seconds >= SLOW_S)


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
        self._took: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(trylast=True)  # behind -m and -k
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Keep the slower tests whose turn it is, and all others."""
        costs = read(self._file)
        named_there = [item for item in items if named(item.nodeid) in costs and takes_turns(item)]
        self._slow = len(named_there)
        if self._minutes is None or not named_there:
            return
        seconds = {item.nodeid: costs[named(item.nodeid)] for item in named_there}
        chosen = plan(seconds, self._minutes * 60 * processes(config), int(os.environ[SEED]))
        left = [item for item in named_there if item.nodeid not in chosen.taken]
        self._out, self._turns = len(left), chosen.turns
        items[:] = [item for item in items if item.nodeid not in seconds or item.nodeid in chosen.taken]
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


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-seconds", action="store_true", help="write what slower tests took into tests/seconds.txt")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Turns(config))
