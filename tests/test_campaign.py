"""The budget of the long tests: each has its turn, nothing is left out in silence, and a failure can be repeated."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.campaign import drawn, plan
from tests.side_by_side import in_order, together

ROOT = Path(__file__).parents[1]
COSTS = {f"test_{number}": 5 + 7 * number % 40 for number in range(60)}


@pytest.mark.parametrize("budget_s", [1, 30, 200, 700])
@pytest.mark.parametrize("first_seed", [0, 739_943])
def test_each_long_test_has_its_turn_within_the_turns_that_are_told(budget_s: int, first_seed: int) -> None:
    found: set[str] = set()
    for seed in range(first_seed, first_seed + plan(COSTS, budget_s, first_seed).turns):
        found |= plan(COSTS, budget_s, seed).taken
    assert found == set(COSTS)


@pytest.mark.parametrize("seed", [0, 1, 739_943])
def test_what_is_taken_fills_the_budget_and_goes_over_it_by_one_test_at_most(seed: int) -> None:
    taken = plan(COSTS, 200, seed).taken
    assert 200 - max(COSTS.values()) < sum(COSTS[name] for name in taken) < 200 + max(COSTS.values())
    assert plan(COSTS, 200, seed).taken == taken


def test_a_budget_that_is_enough_takes_all_and_the_smallest_takes_one() -> None:
    assert plan(COSTS, sum(COSTS.values()), 5) == (set(COSTS), 1)
    assert len(plan({"a": 500, "b": 500}, 1, 3).taken) == 1


def test_a_test_draws_the_same_from_a_seed_and_each_test_another() -> None:
    assert drawn(1, "a") == drawn(1, "a")
    assert len({drawn(seed, name) for seed in range(10) for name in "abc"}) == 30


LONG = """
import time

import pytest

@pytest.mark.long(seconds=60)
@pytest.mark.parametrize("n", range(9))
def test_a(n, campaign_seed):
    assert n < 0 or campaign_seed == time

@pytest.mark.long(seconds=60)
def test_b(): ...

def test_short(): ...
"""
SLOW = LONG.replace("assert n < 0 or campaign_seed == time", "time.sleep(0.02)").replace("seconds=60", "seconds=0.01")
NAMED = LONG.replace("(seconds=60)", "")
COMMAND = [sys.executable, "-m", "pytest", "-p", "tests.campaign", "-c", "/dev/null", "--rootdir"]


def ran(folder: Path, source: str, *options: str, **environment: str) -> str:
    """What a run of these tests prints."""
    (folder / "test_some.py").write_text(source)
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("CAMPAIGN_", "MAKE_", "TEST_", "PYTEST_"))
    }
    command = [*COMMAND, str(folder), str(folder), "-p", "no:cacheprovider", "-W", "ignore", *options]
    done = subprocess.run(
        command, cwd=ROOT, env={**kept, **environment}, capture_output=True, text=True, timeout=60, check=False
    )
    return done.stdout + done.stderr


def test_what_has_no_turn_is_counted_and_a_failure_says_how_to_repeat_it(tmp_path: Path) -> None:
    told = ran(tmp_path, LONG, CAMPAIGN_MINUTES="3", CAMPAIGN_SEED="7")
    assert told.count("seed 7 (CAMPAIGN_SEED=7 repeats it), 3 minutes (CAMPAIGN_MINUTES)") == 2
    assert "of 10 long tests 3 had their turn" in told
    assert re.search(r"not this time: test_some.py 7 of 10\nEach has its turn within 4 seeds in a row", told)
    assert "CAMPAIGN_SEED=7 CAMPAIGN_MINUTES=all make test-long ARGS='test_some.py -k test_a'" in told
    assert "test_short" not in told


def test_what_is_over_the_budget_on_a_slow_machine_is_cut_short_and_counted(tmp_path: Path) -> None:
    told = ran(tmp_path, SLOW, CAMPAIGN_MINUTES="0.0017", CAMPAIGN_SEED="7")
    cut = re.search(r"cut short: test_some.py (\d) of 10", told)
    assert cut is not None, told
    assert f"{cut[1]} skipped" in told


def test_without_a_budget_all_are_run(tmp_path: Path) -> None:
    told = ran(tmp_path, SLOW)
    assert "11 passed" in told
    assert "no limit (CAMPAIGN_MINUTES); of 10 long tests 10 had their turn" in told
    assert "not this time" not in told


def test_a_long_test_that_does_not_say_what_it_takes_is_refused(tmp_path: Path) -> None:
    assert "say what it takes, as in @pytest.mark.long(seconds=40)" in ran(tmp_path, NAMED, CAMPAIGN_MINUTES="1")


def test_a_budget_that_is_no_number_is_refused(tmp_path: Path) -> None:
    assert "CAMPAIGN_MINUTES is a number of minutes or `all`, not 'half'" in ran(
        tmp_path, LONG, CAMPAIGN_MINUTES="half"
    )


# Side by side

ASKING = "spark: " + "SparkSession"  # in two pieces, so that this file is none of them


class Item:
    """As much of a test as its place hangs on."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid

    def get_closest_marker(self, name: str) -> None:
        return None


def test_what_takes_longest_begins() -> None:
    names = ["a.py::quick", "b.py::slow[1]", "a.py::quick_too", "b.py::slow[2]", "c.py::slower"]
    items: list[Any] = [Item(name) for name in names]
    in_order(items, {"b.py::slow": 3, "c.py::slower": 5})
    assert [item.nodeid for item in items] == [*names[1:4:2], *names[4:], *names[:3:2]]


DIES = """
import os

def test_before(): pass
def test_dies(): os._exit(3)
def test_behind(): pass
"""


@pytest.mark.parametrize("name", ["test_0.py", "test_z.py"])
def test_a_process_that_dies_fails_one_test_and_nobody_waits_for_it(tmp_path: Path, name: str) -> None:
    for other in ("test_a.py", "test_b.py"):
        (tmp_path / other).write_text("def test_one(): pass\ndef test_two(): pass\n")
    (tmp_path / name).write_text(DIES)
    words = ("-p", "tests.side_by_side", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
    told = ran(tmp_path, "def test_one(): pass", *words)
    assert "1 failed, 7 passed" in told, told
    assert re.search(rf"FAILED \S*{name}::test_dies", told), told


def test_spark_has_one_process_but_in_a_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAMPAIGN_MINUTES", raising=False)
    for with_a_session in ("test_topics.py::test_a[x]", "test_alarms.py::test_b", "rescaling/test_rescale.py::test_c"):
        assert together(f"tests/spark/{with_a_session}") == "Spark"
    assert together("tests/streaming/state/test_pages.py::test_a") == "tests/streaming/state/test_pages.py"
    monkeypatch.setenv("CAMPAIGN_MINUTES", "3")
    assert together("tests/spark/test_alarms.py::test_b") == "tests/spark/test_alarms.py"


def test_no_file_whose_tests_ask_for_the_session_is_left_out_of_that_process(monkeypatch: pytest.MonkeyPatch) -> None:
    # those of tests/spark/rescaling were: a second session was started for each of them
    monkeypatch.delenv("CAMPAIGN_MINUTES", raising=False)
    with_servers = ("tests/conformance/", "tests/streaming/places/", "tests/spark/tables/")  # whose sessions are others
    files = [str(file.relative_to(ROOT)) for file in (ROOT / "tests").rglob("test_*.py") if ASKING in file.read_text()]
    left = [file for file in files if not file.startswith(with_servers) and together(f"{file}::test_a") != "Spark"]
    assert left == []


def test_apache_kafka_is_started_in_one_process() -> None:
    one, other = (together(f"tests/conformance/test_{name}.py::test_a[{kind}]") for name, kind in
                  (("fetch", "apache-1"), ("groups", "x-apache")))  # fmt: skip
    assert one == other == "Apache Kafka"
    assert together("tests/conformance/test_fetch.py::test_a[ours-1]") == "tests/conformance/test_fetch.py"
