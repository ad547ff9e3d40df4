"""docs/performance.md and the pages beside the records: a figure that is shown stands in its page, and is the record's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
SPEED = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
SECTIONS = {part.split("\n")[0]: part for part in SPEED.split("\n## ")[1:]}
WITH_TABLES = [name for name, part in SECTIONS.items() if "\n|---|" in part]
PAGES = sorted(RESULTS.glob("*.md"))
NUMBER = re.compile(r"\d[\d,.]*\d|\d")
VERBS = {"churn": "**cancel one, add one**: waterclock", "expire": "**expire one, its callback run**: waterclock"}


def record(name: str) -> Any:
    return json.loads((RESULTS / name).read_text(encoding="utf-8"))["figures"]


def rows(section: str) -> Iterator[list[str]]:
    """The rows of the section's table, without its heading."""
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("|")]
    yield from ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:])


def test_the_page_of_speed_has_five_tables_and_a_picture_and_is_read_at_once() -> None:
    assert len(WITH_TABLES) == SPEED.count("\n|---|") == 5
    assert len(re.findall(r"^!\[.+\]\(.+\)$", SPEED, re.M)) == 1
    assert len(SPEED.splitlines()) <= 150


@pytest.mark.parametrize("section", WITH_TABLES)
def test_a_figure_in_a_table_stands_in_the_page_beside_its_record(section: str) -> None:
    named = re.findall(r"`bench/results/([\w-]+\.md)`", SECTIONS[section])
    there = set(NUMBER.findall("\n".join((RESULTS / name).read_text(encoding="utf-8") for name in named)))
    shown = {number for _, *cells in rows(section) for cell in cells for number in NUMBER.findall(cell)}
    assert shown
    assert shown - there == set()


def test_the_table_of_timers_is_the_record() -> None:
    ns, shown = record("timers.json")["ns"], list(rows("Timers"))
    names = ("waterclock, compiled", "asyncio call_later", "heapq, lazy deletion", "Kafka SystemTimer")
    sizes = ("1000", "100000", "1000000", "10000000")
    for place, (verb, title) in enumerate(VERBS.items()):
        found = shown[place * len(names) : (place + 1) * len(names)]
        costs = [[ns[name][verb].get(size) for size in sizes] for name in names]
        assert found[0][0] == title
        assert [row[1:] for row in found] == [["-" if ns is None else f"{ns:.0f}" for ns in row] for row in costs]


def test_the_table_of_the_broker_is_the_record() -> None:
    runs = record("broker.json")["runs"]
    shown = {name: cells for name, *cells in rows("The broker")}
    per_s = [f"{of['produce-100']['per_s'] / 1000:.0f}k" for of in runs.values()]
    assert shown["produce 100 B, batched, a second"] == per_s
    assert shown["ready after a start, s"] == [f"{of['start']['ready_s']:.2f}" for of in runs.values()]


def test_the_table_of_pipelines_is_the_record() -> None:
    files, topics = record("flink/pipeline.json"), record("streams/pipeline.json")
    runs = [run for of in (files, topics) for run in of["processors"]["records"]]
    measured = {f"{run['rows_per_s']:,.0f}"[:-2] + "00" for run in runs if run["rows_per_s"] and run["right"]}
    near = {f"{round(run['rows_per_s'], -2):,.0f}" for run in runs if run["rows_per_s"] and run["right"]}
    assert {rate for _, rate, *_ in rows("Pipelines")} <= measured | near


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_beside_a_record_names_files_that_there_are(page: Path) -> None:
    named = set(re.findall(r"`((?:bench|docs|tests|src|examples)/[\w./-]+)`", page.read_text(encoding="utf-8")))
    assert [name for name in sorted(named) if not (ROOT / name.rstrip("/")).exists()] == []
