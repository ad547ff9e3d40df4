"""The slower tests of `make test` take turns; who is left out is counted, and the file of what they take is kept."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.test_campaign import ran
from tests.turns import changed_rooms, merged, named, read

SOME = """
import time

import pytest

@pytest.mark.parametrize("n", range(12))
def test_slow(n): ...

@pytest.mark.always
def test_all_the_same(): ...

@pytest.mark.long(seconds=60)
def test_of_a_campaign(): ...

def test_quick(): time.sleep(0.4)
"""
OPTIONS = ("-p", "tests.turns", "-v")


def a_folder(folder: Path) -> Path:
    (folder / "tests").mkdir()
    (folder / "tests" / "seconds.txt").write_text(
        "10.0 test_some.py::test_slow\n90.0 test_some.py::test_all_the_same\n5.0 elsewhere.py::test_gone\n"
    )
    return folder


def test_each_slower_test_has_its_turn_within_the_seeds_that_are_told_and_the_others_run_always(tmp_path: Path) -> None:
    told = [ran(a_folder(tmp_path), SOME, *OPTIONS, TEST_MINUTES="0.5", CAMPAIGN_SEED="7")]
    assert "3 of 12 slower tests had their turn: seed 7 (CAMPAIGN_SEED), 0.5 minutes (TEST_MINUTES)." in told[0]
    assert "Each has it within 4 seeds in a row; TEST_MINUTES=all make test runs them all." in told[0]
    told += [ran(tmp_path, SOME, *OPTIONS, TEST_MINUTES="0.5", CAMPAIGN_SEED=str(seed)) for seed in (8, 9, 10)]
    assert all(each.count("PASSED") == 6 for each in told)
    assert {n for n in range(12) for each in told if f"test_slow[{n}] PASSED" in each} == set(range(12))
    others = ("test_quick", "test_all_the_same", "test_of_a_campaign")
    assert all(f"{name} PASSED" in each for name in others for each in told)


def test_without_a_budget_all_are_run_and_a_budget_that_is_no_number_is_refused(tmp_path: Path) -> None:
    for budget in ({}, {"TEST_MINUTES": "all"}):
        told = ran(a_folder(tmp_path) if not budget else tmp_path, SOME, *OPTIONS, **budget)
        assert told.count("PASSED") == 15
        assert "slower tests" not in told
    assert "TEST_MINUTES is a number of minutes or `all`, not 'some'" in ran(
        tmp_path, SOME, *OPTIONS, TEST_MINUTES="some"
    )


def test_what_was_run_is_written_and_the_rest_stays(tmp_path: Path) -> None:
    ran(a_folder(tmp_path), SOME, *OPTIONS, "--write-seconds")
    assert read(tmp_path / "tests" / "seconds.txt") == {"elsewhere.py::test_gone": 5.0, "test_some.py::test_quick": 0.4}


def test_many_quick_parameters_are_written_where_they_take_long_together() -> None:
    """A hundred and eighty of them took nineteen seconds of every run, and none had a name."""
    took = {f"a.py::test[{n}]": 0.104 for n in range(20)} | {f"b.py::test[{n}]": 0.104 for n in range(19)}
    assert merged({}, took) == "0.10 a.py::test\n"
    assert merged({"a.py::test": 0.1, "b.py::test": 0.7}, {"b.py::test": 0.1}) == "0.10 a.py::test\n"


def test_one_with_parameters_is_written_with_their_mean() -> None:
    took = {"a.py::test[1]": 1.0, "a.py::test[2-x[y]]": 2.0, "b.py::test": 0.2}
    assert merged({"a.py::test": 7.0, "b.py::test": 9.0, "c.py::test": 3.0}, took) == "1.5 a.py::test\n3.0 c.py::test\n"
    assert named("a.py::test[2-x[y]]") == "a.py::test"


# What changed


def git(folder: Path, *command: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@localhost", "-c", "init.defaultBranch=main")
    subprocess.run(["git", *who, *command], cwd=folder, check=True, capture_output=True)


def write(folder: Path, *files: str) -> None:
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """On main, after a landing that changed the relay."""
    git(tmp_path, "init")
    for file in ("docs/timers.md", "src/waterclock/relay/relay.py"):
        write(tmp_path, file)
        git(tmp_path, "add", ".")
        git(tmp_path, "commit", "-m", file)
    return tmp_path


def test_on_main_what_the_last_commit_changed_and_what_is_not_committed_counts(checkout: Path) -> None:
    assert changed_rooms(checkout) == {"relay"}
    write(checkout, "tests/wheel/test_new.py", "tests/seconds.txt", "docs/other.md")
    (checkout / "src/waterclock/relay/relay.py").write_text("changed")
    assert changed_rooms(checkout) == {"relay", "wheel"}


def test_on_a_branch_all_counts_that_changed_since_it_left_main(checkout: Path) -> None:
    git(checkout, "checkout", "-b", "new")
    for file in ("src/waterclock/broker/log/log.py", "src/waterclock/disk.py", "bench/run.py", "README.md"):
        write(checkout, file)
        git(checkout, "add", ".")
        git(checkout, "commit", "-m", file)
    assert changed_rooms(checkout) == {"broker", "conformance", "top", "bench"}


def test_outside_of_a_checkout_nothing_counts_as_changed(tmp_path: Path) -> None:
    write(tmp_path, "src/waterclock/relay/relay.py")
    assert changed_rooms(tmp_path) == set()


def test_all_tests_of_a_room_that_changed_are_run_and_the_others_have_their_turns(tmp_path: Path) -> None:
    a_folder(tmp_path)
    (tmp_path / "tests" / "relay").mkdir()
    (tmp_path / "tests" / "relay" / "test_relay.py").write_text(SOME)
    with (tmp_path / "tests" / "seconds.txt").open("a") as file:
        file.write("10.0 tests/relay/test_relay.py::test_slow\n")
    told = ran(tmp_path, SOME, *OPTIONS, TEST_MINUTES="1", CAMPAIGN_SEED="7", TEST_ROOMS="relay")
    assert sum(f"tests/relay/test_relay.py::test_slow[{n}] PASSED" in told for n in range(12)) == 12
    assert "15 of 24 slower tests had their turn" in told
    assert "All were run of what changed (TEST_ROOMS): relay." in told
