"""Captures under the simulation keep their promises, a seed has one history, and the checker notices what is planted."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("greenlet")


def run(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments, "--workloads", "capture"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("more", [[], ["--pair", "--past-known"]], ids=["one broker", "a pair"])
def test_each_committed_change_is_in_kafka_once_in_order_with_its_position(more: list[str]) -> None:
    found = run("1", "8", *more)
    assert found.returncode == 0, found.stdout


def test_a_seed_with_captures_has_one_history() -> None:
    first, second = (run("10", "3", "--hash", hash_seed=one).stdout for one in ("1", "2"))
    hashes = [line for line in first.splitlines() if line.startswith("hash")]
    assert hashes == [line for line in second.splitlines() if line.startswith("hash")]
    assert len(hashes) == 3


@pytest.mark.parametrize("plant", ["capture-position-apart", "capture-cut-at-most", "capture-fenced-late"])
def test_what_is_planted_in_the_capture_is_found(plant: str) -> None:
    found = run("1000", "200", "--plant", plant, "--until-found")
    assert found.returncode == 1, found.stdout


def test_one_that_is_fenced_by_nobody_goes_on() -> None:
    """Kafka ends a transaction that is open for too long, and fences who began it: it said that another had its name."""
    found = run("324", "1")
    assert found.returncode == 0, found.stdout
    assert '"a capture is fenced": 1' in found.stdout
