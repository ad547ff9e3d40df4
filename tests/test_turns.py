"""The slower tests of `make test` take turns; who is left out is counted, and the file of what they take is kept."""

from __future__ import annotations

from pathlib import Path

from tests.test_campaign import ran
from tests.turns import merged, named, read

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


def test_one_with_parameters_is_written_with_their_mean() -> None:
    took = {"a.py::test[1]": 1.0, "a.py::test[2-x[y]]": 2.0, "b.py::test": 0.2}
    assert merged({"a.py::test": 7.0, "b.py::test": 9.0, "c.py::test": 3.0}, took) == "1.5 a.py::test\n3.0 c.py::test\n"
    assert named("a.py::test[2-x[y]]") == "a.py::test"
