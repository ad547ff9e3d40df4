"""Faults placed where they matter: as a client hears its answer, at a mark, on a disk that has room now and then."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("greenlet")

from tests.simulation import coverage, faults, plan
from tests.simulation.hashes import simulated


def faults_of(kinds: str, *more: str) -> dict[str, int]:
    """What befell three universes without any problem."""
    told = simulated("1", "3", "--seconds", "2", "--faults", kinds, *more)
    assert told.returncode == 0, told.stdout + told.stderr
    faults: dict[str, int] = json.loads(told.stdout.splitlines()[-1])["faults"]
    return faults


def test_power_goes_as_a_client_hears_its_answer() -> None:
    assert faults_of("cut_when_told", "--workloads", "producers,committer").keys() == {"power cut"}


def test_a_disk_has_room_now_and_then_and_nothing_is_lost() -> None:
    assert faults_of("flicker", "--workloads", "producers,committer")["flickering disk"] >= 3


def test_a_fault_that_waits_for_a_mark_meets_a_relay_too(tmp_path: Path) -> None:
    waiting = tuple(plan.Fault(number, 0, "kill_at", "a turn is applied") for number in range(1, 5))
    plan.draw(1, seconds=3, workloads=("relay",)).but(faults=waiting).save(tmp_path / "plan.json")
    assert faults_of("", "--plan", str(tmp_path / "plan.json"))["kill"] >= 1


def test_a_fault_whose_mark_is_passed_once_all_is_over_strikes_nobody() -> None:
    """What is left of the processes is unwound then, and no thread runs."""
    over: Any = SimpleNamespace(
        rng=Random(1), fault=SimpleNamespace(mark="a turn is applied"), world=SimpleNamespace(thread=None),
        universe=SimpleNamespace(quiet=True, machines=()),
    )  # fmt: skip
    coverage.begin()
    faults.kill_at(over)
    coverage.passed("a turn is applied")
