"""Universes of each kind: new seeds with each commit, and those that failed once. Each in a process of its own.

Rule 1: a seed that fails is shrunk, its plan comes into `failed/`, and is run from then on.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT, HERE = Path(__file__).parents[2], Path(__file__).parent
FAILED = sorted((HERE / "failed").glob("*.json"))
COUNT = 4
KINDS = {
    "one broker": ["--seconds", "0"],
    "a pair": ["--seconds", "0", "--pair", "--past-known"],
    "mixed protocols": ["--seconds", "0", "--mixed"],
}


def first_seed() -> int:
    """By the number of the commit: nobody runs the same seeds twice."""
    told = subprocess.run(["git", "rev-list", "--count", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False)
    return 10_000 + COUNT * int(told.stdout or 0) if not told.returncode else 10_000


def simulated(*arguments: str, hashes: str = "0") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    outside = {"PYTHONHASHSEED": hashes, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=outside, check=False)


@pytest.mark.parametrize("kind", KINDS)
def test_no_universe_breaks_a_promise(kind: str) -> None:
    told = simulated(str(first_seed()), str(COUNT), *KINDS[kind])
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("path", FAILED, ids=lambda path: path.stem)
def test_what_failed_once_does_not_fail_again(path: Path) -> None:
    told = simulated("0", "--plan", str(path))
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("kind", [[], ["--pair"]], ids=["one broker", "a pair"])
def test_a_seed_gives_the_same_history_whatever_hashes_are(kind: Sequence[str]) -> None:
    told = [simulated("7", "--seconds", "2", "--hash", *kind, hashes=hashes).stdout for hashes in ("1", "99")]
    assert [hash_of(one) for one in told] == [hash_of(told[0])] * 2


def test_a_history_that_fails_is_cut_down_and_told_in_thirty_lines(tmp_path: Path) -> None:
    small = str(tmp_path / "small.json")
    found = simulated("1000", "40", "--until-found", "--plant", "ahead-unflushed", "--shrink", small)
    story = found.stdout[found.stdout.index(", workloads") :].splitlines()[:-1]
    plan = json.loads(Path(small).read_text())
    assert len(plan["faults"]) + len(plan["workloads"]) <= 5
    assert int(re.search(r"^steps: (\d+),", found.stdout, re.MULTILINE)[1]) < 30  # type: ignore[index]
    assert len(story) <= 32
    assert simulated("0", "--plan", small, "--plant", "ahead-unflushed").returncode == 1
    assert simulated("0", "--plan", small).returncode == 0


def test_a_long_history_that_fails_is_cut_down_and_told_in_thirty_lines(tmp_path: Path) -> None:
    small, plant = str(tmp_path / "small.json"), ("--plant", "high-without-follower")
    words = ("--seconds", "8", "--pair", "--past-known", "--mixed", "--shrink", small, "--shrink-seconds", "6")
    found = simulated("5001", "20", "--until-found", *plant, *words)
    story = found.stdout[found.stdout.index(", workloads") :].splitlines()[:-1]
    assert int(re.search(r"^steps: (\d+),", found.stdout, re.MULTILINE)[1]) < 30  # type: ignore[index]
    assert len(story) <= 32
    assert simulated("0", "--plan", small, *plant).returncode == 1
    assert simulated("0", "--plan", small).returncode == 0


def hash_of(told: str) -> str:
    found = re.search(r"^hash .*", told, re.MULTILINE)
    assert found is not None, told
    return found[0]
