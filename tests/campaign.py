"""The budget of the long tests: a part of them in every run, another part every day, and what was left out is said.

A test that is marked `long(seconds=40)` belongs to the campaign of its file. CAMPAIGN_MINUTES is what the campaigns of
a run may take, with all its processes: a number, or `all`; `make test-long` and `make test-servers` set it, and without
it every test that is chosen is run, with the seed that is shown. CAMPAIGN_SEED is the seed of the day: it says which
tests have their turn, and is what their kills and examples are drawn from.

Rule 1: the tests stand in a ring. Each seed begins where the one before it ended: after `turns` seeds each had its turn.
Rule 2: the seed stands at the head of a run, at its end, and beside every failure, with the command that repeats it:
        of a long test always, of any other one if make runs it.
Rule 3: where the machine is slower than the marks say, what is over the budget is cut short; it is counted, by campaign.
Rule 4: Hypothesis draws from the seed of the day too where CAMPAIGN_MINUTES is set; elsewhere its examples are steady.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from time import monotonic
from typing import Any, NamedTuple
from zlib import crc32

import pytest
from hypothesis import settings

# The same examples in every run: a landing must not depend on luck. To search further: HYPOTHESIS_PROFILE=search make test
# No deadline: how long an example takes says how busy the machine is.
settings.register_profile("steady", derandomize=True, database=None, deadline=None)
settings.register_profile("search", derandomize=False, deadline=None)
settings.register_profile("campaign", derandomize=False, database=None, print_blob=True, deadline=None)

MINUTES, SEED = "CAMPAIGN_MINUTES", "CAMPAIGN_SEED"
TARGET = "MAKE_TARGET"  # which of make's targets runs the tests
PATIENCE = 1.25  # so much longer than planned a process may work on its long tests, before the rest is cut short


class Plan(NamedTuple):
    """Which tests of a ring a seed takes, and after how many seeds in a row each was taken."""

    taken: set[str]
    turns: int


def plan(seconds: Mapping[str, float], budget_s: float, seed: int) -> Plan:
    """The tests that begin in the seed's arc of the ring, at least one; `seconds` has each test's cost."""
    seconds = {name: Fraction(cost) for name, cost in seconds.items()}  # exact: no test falls between two arcs
    whole = sum(seconds.values())
    if budget_s >= whole:
        return Plan(set(seconds), 1)
    arc_s, at_s, taken = Fraction(budget_s), Fraction(0), set()
    begin_s = seed * arc_s % whole
    ring = _ring(seconds)
    for name in ring:
        if (at_s - begin_s) % whole < arc_s:
            taken.add(name)
        at_s += seconds[name]
    # an arc may lie within one long test, which began before it
    return Plan(taken or {_around(ring, seconds, begin_s)}, -int(-whole // arc_s))


def _ring(names: Iterable[str]) -> list[str]:
    """The tests of each file evenly spread, so that every arc has a part of each campaign."""
    of_file: dict[str, list[str]] = {}
    for name in names:
        of_file.setdefault(file_of(name), []).append(name)
    where: dict[str, float] = {}
    for file, found in of_file.items():
        found.sort(key=lambda name: crc32(name.encode()))
        begin = crc32(file.encode()) / 2**32
        where.update((name, (number + begin) / len(found)) for number, name in enumerate(found))
    return sorted(where, key=lambda name: (where[name], name))


def _around(ring: Iterable[str], seconds: Mapping[str, Fraction], at_s: Fraction) -> str:
    """The test that `at_s` lies in."""
    for name in ring:
        at_s -= seconds[name]
        if at_s < 0:
            break
    return name


def drawn(seed: int, name: str) -> int:
    """What a test draws from the seed of the day: another number for each."""
    return crc32(f"{seed} {name}".encode())


class Campaigns:
    """Of one process: its plan, its clock, and what it left out by campaign."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.seed = int(os.environ[SEED])
        asked = os.environ.get(MINUTES)
        try:
            self.minutes = None if asked in (None, "", "all") else float(asked)
        except ValueError:
            raise pytest.UsageError(f"{MINUTES} is a number of minutes or `all`, not {asked!r}") from None
        self.out: Counter[str] = Counter()
        self.cut: Counter[str] = Counter()
        self.all: Counter[str] = Counter()
        self.turns, self.spent_s = 1, 0.0

    def choose(self, items: list[pytest.Item]) -> None:
        """Keep the tests whose turn it is, and those that are not long."""
        seconds = {item.nodeid: cost_s(item) for item in items if is_long(item)}
        self.all.update(map(file_of, seconds))
        if self.minutes is None or not seconds:
            return
        chosen = plan(seconds, self.minutes * 60 * processes(self._config), self.seed)
        self.turns = chosen.turns
        left = [item for item in items if item.nodeid in seconds and item.nodeid not in chosen.taken]
        self.out.update(file_of(item.nodeid) for item in left)
        items[:] = [item for item in items if item.nodeid not in seconds or item.nodeid in chosen.taken]
        self._config.hook.pytest_deselected(items=left)

    def told(self) -> dict[str, Any]:
        return {"all": dict(self.all), "out": dict(self.out), "cut": dict(self.cut), "turns": self.turns}

    def add(self, told: dict[str, Any]) -> None:
        """What another process tells: all have the same plan, and each cuts for itself."""
        self.all, self.out, self.turns = Counter(told["all"]), Counter(told["out"]), told["turns"]
        self.cut.update(told["cut"])

    def again(self, item: pytest.Item) -> str:
        """The command that runs a test again with what it drew."""
        target = os.environ.get(TARGET) or ("test-servers" if item.get_closest_marker("servers") else "test-long")
        path, _, name = item.nodeid.partition("::")
        words = shlex.quote(f"{path} -k {shlex.quote(name.split('::')[-1].partition('[')[0])}")
        budget = f" {MINUTES}=all" if MINUTES in os.environ else ""
        return f"{SEED}={self.seed}{budget} make {target} ARGS={words}"


def examples(whole: int) -> int:
    """How many examples Hypothesis takes in a long test: a sixth of the whole where there is a budget, others each day."""
    return whole if os.environ.get(MINUTES, "all") == "all" else whole // 6


CAMPAIGNS = pytest.StashKey[Campaigns]()


def is_long(item: pytest.Item) -> bool:
    return item.get_closest_marker("long") is not None


def cost_s(item: pytest.Item) -> float:
    """What the mark says; UsageError where it says nothing."""
    mark = item.get_closest_marker("long")
    try:
        return float(mark.kwargs["seconds"])  # type: ignore[union-attr]
    except (KeyError, TypeError, ValueError):
        raise pytest.UsageError(f"{item.nodeid}: say what it takes, as in @pytest.mark.long(seconds=40)") from None


def file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def processes(config: pytest.Config) -> int:
    """How many processes share the tests of this run."""
    return int(getattr(config, "workerinput", {}).get("workercount", 1))


# The hooks ------------------------------------------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    # before the processes are started: they get it from here, also around midnight
    os.environ.setdefault(SEED, str(datetime.now(UTC).toordinal()))
    campaigns = config.stash[CAMPAIGNS] = Campaigns(config)
    campaign = MINUTES in os.environ
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("campaign" if campaign else "steady"))
    if campaign and config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(campaigns.seed)


def pytest_report_header(config: pytest.Config) -> str | None:
    return f"campaigns: {_budget(config.stash[CAMPAIGNS])}" if MINUTES in os.environ else None


@pytest.hookimpl(trylast=True)  # behind -m and -k
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    config.stash[CAMPAIGNS].choose(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    began_s, campaigns = monotonic(), item.config.stash[CAMPAIGNS]
    try:
        return (yield)
    finally:
        campaigns.spent_s += (monotonic() - began_s) * is_long(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    campaigns = item.config.stash[CAMPAIGNS]
    if not is_long(item) or campaigns.minutes is None or campaigns.spent_s < campaigns.minutes * 60 * PATIENCE:
        return
    campaigns.cut[file_of(item.nodeid)] += 1
    pytest.skip(f"the {campaigns.minutes:g} minutes of {MINUTES} are used up")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: Any = yield
    if report.failed and (is_long(item) or TARGET in os.environ):
        report.sections.append(("again with the same seed", item.config.stash[CAMPAIGNS].again(item)))
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["campaigns"] = session.config.stash[CAMPAIGNS].told()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    told = getattr(node, "workeroutput", {}).get("campaigns")
    if told is not None:
        node.config.stash[CAMPAIGNS].add(told)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    campaigns = config.stash[CAMPAIGNS]
    if not campaigns.all:
        return
    whole, out, cut = (sum(counted.values()) for counted in (campaigns.all, campaigns.out, campaigns.cut))
    write = terminalreporter.write_line
    terminalreporter.section("campaigns")
    write(f"{_budget(campaigns)}; of {whole} long tests {whole - out - cut} had their turn")
    for words, counted in (("not this time", campaigns.out), ("cut short", campaigns.cut)):
        for name, count in sorted(counted.items()):
            write(f"{words}: {name} {count} of {campaigns.all[name]}")
    if out:
        write(f"Each has its turn within {campaigns.turns} seeds in a row; {MINUTES}=all runs them all.")


def _budget(campaigns: Campaigns) -> str:
    minutes = "no limit" if campaigns.minutes is None else f"{campaigns.minutes:g} minutes"
    return f"seed {campaigns.seed} ({SEED}={campaigns.seed} repeats it), {minutes} ({MINUTES})"


@pytest.fixture
def campaign_seed(request: pytest.FixtureRequest) -> int:
    """What a campaign draws its kills from: the seed of the day and the test's name."""
    return drawn(request.config.stash[CAMPAIGNS].seed, request.node.name)
