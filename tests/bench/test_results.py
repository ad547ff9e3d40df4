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
    runs = list(record("broker.json")["runs"].values())
    wanted = {
        "produce 100 B, batched, a second": [f"{of['produce-100']['per_s'] / 1000:,.0f}k" for of in runs],
        "consume 100 B, a second": [f"{of['consume-100']['per_s'] / 1000:,.0f}k" for of in runs],
        "one by one, acks=all, p50 / p99 ms": [
            f"{of['one-by-one']['p50_ms']:.2f} / {of['one-by-one']['p99_ms']:.2f}" for of in runs
        ],
        "produce to consume at 1,000/s, p99 ms": [three_digits(of["latency"]["p99_ms"]) for of in runs],
        "100 producers over 100 partitions, a second": [
            f"{of['closed-100 x 100']['per_s'] / 1000:.1f}k" for of in runs
        ],
        "ready after a start, s": [f"{of['start']['ready_s']:.2f}" for of in runs],
        "resident at the end, MB": [f"{of['end']['resident_mb']:.0f}" for of in runs],
    }
    assert {name: cells for name, *cells in rows("The broker")} == wanted


def three_digits(ms: float) -> str:
    return f"{ms:.0f}" if ms >= 10 else f"{ms:.2f}"


def test_the_table_of_pipelines_is_the_record() -> None:
    runs = record("processors/pipeline.json")["processors"]["records"]
    assert all(run["right"] and run["rounds"] == 3 for run in runs)
    found = [run for run in runs if run["sink"] in ("SQLite", "Apache Kafka")]
    found = [run for run in found if run["contender"] != "no rules: librdkafka"]
    measured = {
        (f"{round(run['rows_per_s'], -2):,.0f}", f"{run['cpu_s_per_million']:.1f}", f"{run['whole_s']:.1f}")
        for run in found
    }
    assert {tuple(cells) for _, *cells in rows("Pipelines")} == measured


def test_the_table_of_delayed_messages_is_the_record() -> None:
    runs = [run for run in record("relay.json")["runs"] if run["keeper"].startswith("waterclock relay")]
    late = "late at {} due a second, half and 99 of 100"
    wanted = {
        "500,000 due at one instant, all read": [f"{run['burst 100000']['all_ms'] / 1000:.1f} s" for run in runs],
        **{
            late.format(f"{rate:,}"): [
                f"{run[f'late {rate}']['p50_ms']:.0f}, {run[f'late {rate}']['p99_ms']:.0f} ms" for run in runs
            ]
            for rate in (2000, 6000)
        },
        "cancels a second, each answered": [f"{round(run['cancel']['per_s'], -3):,.0f}" for run in runs],
    }
    assert {name: cells for name, *cells in rows("Delayed messages")} == wanted


def test_the_last_table_is_the_record() -> None:
    rates = [r for r in record("purgatory.json")["rates"] if (r["keys"], r["rate"]) == ("shared", 50_000)]
    cpu = {(r["contender"] == "waterclock", r["p50_ms"]): f"{r['cpu_us']:.1f}" for r in rates}
    runs = record("cdc.json")
    assert all(run["right"] for run in runs)
    per_s = {(run["database"], run["contender"].split()[0]): f"{round(run['changes_per_s'], -2):,.0f}" for run in runs}
    beside = (
        f"{per_s['MariaDB', 'Debezium']}; mysql-replication, decodes only: {per_s['MariaDB', 'mysql-replication,']}"
    )
    assert [cells for _, *cells in rows("The purgatory, and change capture")] == [
        [cpu[True, 20], f"Kafka's, in Java: {cpu[False, 20]}"],
        [cpu[True, 200], f"Kafka's, in Java: {cpu[False, 200]}"],
        [per_s["MariaDB", "waterclock"], f"Debezium, no sink: {beside}"],
        [per_s["PostgreSQL", "waterclock"], f"Debezium, no sink: {per_s['PostgreSQL', 'Debezium']}"],
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_beside_a_record_names_files_that_there_are(page: Path) -> None:
    named = set(re.findall(r"`((?:bench|docs|tests|src|examples)/[\w./-]+)`", page.read_text(encoding="utf-8")))
    assert [name for name in sorted(named) if not (ROOT / name.rstrip("/")).exists()] == []
