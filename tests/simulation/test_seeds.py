"""Universes of each kind: new seeds with each commit, and those that failed once. Each in a process of its own.

Rule 1: a seed that fails is shrunk, its plan comes into `failed/`, and is run from then on.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.simulation.hashes import ROOT, simulated

FAILED = sorted((Path(__file__).parent / "failed").glob("*.json"))
COUNT, PAIR = 4, ("--pair", "--past-known")
KINDS = {
    "one broker": ["--seconds", "0"],
    "a pair": ["--seconds", "0", *PAIR],
    "mixed protocols": ["--seconds", "0", "--mixed"],
}


def first_seed() -> int:
    """By the number of the commit: nobody runs the same seeds twice."""
    told = subprocess.run(["git", "rev-list", "--count", "HEAD"], capture_output=True, text=True, cwd=ROOT, check=False)
    return 10_000 + COUNT * int(told.stdout or 0) if not told.returncode else 10_000


@pytest.mark.parametrize("kind", KINDS)
def test_no_universe_breaks_a_promise(kind: str) -> None:
    told = simulated(str(first_seed()), str(COUNT), *KINDS[kind])
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize("path", FAILED, ids=lambda path: path.stem)
def test_what_failed_once_does_not_fail_again(path: Path) -> None:
    told = simulated("0", "--plan", str(path))
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.parametrize(
    ("words", "plant", "most"),
    [
        (("1000", "40"), "ahead-unflushed", 5),
        (("5001", "20", "--seconds", "8", *PAIR, "--mixed", "--shrink-seconds", "6"), "high-without-follower", 30),
    ],
    ids=["short", "long"],
)
def test_a_history_that_fails_is_cut_down_and_told_in_thirty_lines(
    tmp_path: Path, words: Sequence[str], plant: str, most: int
) -> None:
    small, planted = str(tmp_path / "small.json"), ("--plant", plant)
    found = simulated(*words, "--until-found", *planted, "--shrink", small)
    story = found.stdout[found.stdout.index(", workloads") :].splitlines()[:-1]
    plan = json.loads(Path(small).read_text())
    assert len(plan["faults"]) + len(plan["workloads"]) <= most
    assert int(re.search(r"^steps: (\d+),", found.stdout, re.MULTILINE)[1]) < 30  # type: ignore[index]
    assert len(story) <= 32
    assert simulated("0", "--plan", small, *planted).returncode == 1
    assert simulated("0", "--plan", small).returncode == 0
