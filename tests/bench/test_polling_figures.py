"""`waterclock bench polling`: what is made of the moments at which tasks were had, and how it is shown."""

from __future__ import annotations

import doctest
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("psycopg")

from waterclock.bench.polling import figures, in_process, poller, table, tasks, worker
from waterclock.errors import WrongAnswer

CELL: dict[str, Any] = {
    "who": poller.SKIP_LOCKED, "interval_ms": 100, "workers": 1, "batch": 500, "pending": 1_000, "tasks": 400,
    "p50_ms": 51.04, "p99_ms": 101.0, "max_ms": 2_000.0, "lost": 7, "queries_a_second": 10.0, "empty_us": 81.0,
    "workers_cpu": 0.011, "server_cpu": 0.005,
}  # fmt: skip
TIMER = {**CELL, "who": in_process.WHO, "interval_ms": None, "batch": None, "p50_ms": 1.1, "server_cpu": 0.0}
BURST = {**CELL, "tasks": 40_000, "a_second": 80_000.0, "all_ms": 500.0, "lost": 0.0}
OPEN = {"tasks": 40_000, **{name: {"empty_us": us} for name, us in {"before": 30, "beside": 900, "after": 31}.items()}}
RECORD: dict[str, Any] = {
    "load": 0.5, "load_after": 2.0, "rounds": 3, "open": OPEN, "server": {"server_version": "15.18", "fsync": "on"},
    "cells": [
        {**cell, "pending": pending, "who": who}
        for pending in (1_000, 1_000_000)
        for cell, who in ((TIMER, in_process.WHO), (CELL, poller.SKIP_LOCKED), (CELL, poller.OPTIMISTIC))
    ],
    "bursts": [{**BURST, "who": in_process.WHO, "batch": None}] + [
        {**BURST, "who": way, "workers": number, "batch": batch, "lost": 40_000.0 * (number - 1), "a_second": 8e4 / number}
        for batch in (500, 1) for number in (1, 2) for way in poller.WAYS
    ],
    "commits": [{"connections": number, "a_second": 2_000.0 * number, "p50_ms": 0.5} for number in (1, 2)],
}  # fmt: skip


# The figures


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ([(1, 100)], "1 tasks were lost, of 2"),
        ([(1, 100), (2, 200), (2, 300)], "1 tasks were had twice, of 2"),
        ([(1, 100), (2, 199)], "1 tasks were had before they were due, of 2"),
        ([(1, 100), (2, 200), (3, 300)], "1 tasks were had that are not due for long"),
    ],
    ids=["lost", "twice", "early", "another"],
)
def test_a_task_lost_twice_early_or_not_due_for_long_fails_the_run(given: list[tuple[int, int]], what: str) -> None:
    figures.check("it", {1: 100, 2: 200}, [(1, 100), (2, 200)])
    with pytest.raises(WrongAnswer, match=f"it: {what}"):
        figures.check("it", {1: 100, 2: 200}, given)


@pytest.mark.parametrize("module", [figures, table, tasks, worker], ids=lambda module: module.__name__)
def test_the_examples_of_the_pure_parts_are_right(module: Any) -> None:
    found = doctest.testmod(module)
    assert (found.failed, found.attempted > 0) == (0, True)


def test_a_timer_has_each_task_once_and_never_early() -> None:
    held = in_process.Tasks(100)
    held.add_some(0.05)
    assert len(held.given) == 5
    burst = held.add_burst(200)
    figures.check(in_process.WHO, burst.dues, held.given)
    assert held.idle(0.01)["queries_a_second"] >= 0
    assert [handle for handle in held.timer.close() if handle.pending] == []


def test_a_timer_that_loses_a_task_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(in_process.Timer):
        def call_later(self, delay_s: float, fn: Callable[..., Any], /, *args: Any) -> Any:
            return super().call_later(delay_s + 3600 * (args == (3,)), fn, *args)

    monkeypatch.setattr(in_process, "Timer", Forgetful)
    monkeypatch.setattr(in_process, "PATIENCE_S", 0.1)
    with pytest.raises(WrongAnswer, match="waterclock Timer: 1 tasks were lost, of 5"):
        in_process.Tasks(0).add_some(0.05)


# What is shown


def test_the_table_says_what_looking_costs_and_what_a_second_worker_adds() -> None:
    lines = table.table(RECORD).splitlines()
    assert lines[:2] == ["load 0.5 at the start, 2.0 at the end", "PostgreSQL: server_version 15.18, fsync on"]
    assert " ".join(lines[4].split()[2:]) == "- 1 1k 1.1 101.0 2,000.0 7 10 - 1.1% 0.0%"
    assert " ".join(lines[5].split()[2:]) == "100 ms 1 1k 51.0 101.0 2,000.0 7 10 81 1.1% 0.5%"
    second = next(line for line in lines if line.startswith("optimistic lock") and "(0.5x)" in line)
    assert " ".join(second.split()[2:]) == "500 1k 2 40,000 40,000 (0.5x) 500 1.00"
    assert ["2", "4,000", "0.50"] in [line.split() for line in lines]
    assert lines[-1].startswith("that somebody left open: 900 us; ")


def test_the_picture_shows_each_way_and_the_timer(tmp_path: Path) -> None:
    plots = pytest.importorskip("waterclock.bench.plots")
    record = {"benchmark": "polling", "machine": "a machine", "figures": json.loads(json.dumps(RECORD))}
    assert plots.draw(record, tmp_path / "polling.png")
    assert (tmp_path / "polling.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_the_panels_of_the_picture_name_every_line() -> None:
    pytest.importorskip("matplotlib")
    from waterclock.bench.polling import picture

    price, growth, burst, lost = picture.draw(RECORD).axes
    assert {text.get_text() for text in price.texts} == {"waterclock Timer", "every 100 ms"}
    assert price.get_title() == "late by what looking costs, 1M pending"
    assert {text.get_text() for text in growth.texts} == {"waterclock", "every 100 ms"}
    assert len(burst.texts) == 6
    assert [bar.get_height() for bar in lost.patches] == [0, 1, 0, 1, 0, 1, 0, 1]
