"""Relays under the simulation keep their promises, a seed has one history, and the checker notices what is planted."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("greenlet")

SEEDS = ("1", "8")


def run(*arguments: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments, "--workloads", "relay"]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("more", [[], ["--pair", "--past-known"]], ids=["one broker", "a pair"])
def test_relays_deliver_everything_once_in_order_and_answer_truly(more: list[str]) -> None:
    found = run(*SEEDS, *more)
    assert found.returncode == 0, found.stdout


def test_a_seed_with_relays_has_one_history() -> None:
    first, second = (run("10", "3", "--hash", hash_seed=one).stdout for one in ("1", "2"))
    assert [line for line in first.splitlines() if line.startswith("hash")] == [
        line for line in second.splitlines() if line.startswith("hash")
    ]


@pytest.mark.parametrize("plant", ["relay-settled-forgotten", "relay-before-due", "relay-end-unread"])
def test_what_is_planted_in_the_relay_is_found(plant: str) -> None:
    found = run("1000", "40", "--plant", plant, "--until-found")
    assert found.returncode == 1, found.stdout
