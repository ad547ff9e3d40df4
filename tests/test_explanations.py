"""The pages of docs/explanation: their samples print what they show, and each number in them is its record's."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.samples import all_blocks, run_page

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "explanation").glob("*.md"))
WITH_SAMPLES = [page for page in PAGES if any(b.language != "text" for b in all_blocks(page.read_text()))]


def text_of(name: str) -> str:
    return (ROOT / "docs" / "explanation" / f"{name}.md").read_text(encoding="utf-8")


def record(name: str) -> Any:
    return json.loads((ROOT / "bench" / "results" / name).read_text(encoding="utf-8"))["figures"]


@pytest.mark.parametrize("page", WITH_SAMPLES, ids=lambda page: page.stem)
def test_an_explanations_samples_print_what_they_show(page: Path, tmp_path: Path) -> None:
    for package in ("kio", "confluent_kafka") if "waterclock demo" in page.read_text() else ():
        pytest.importorskip(package)
    assert run_page(page, tmp_path) > 0


def test_what_a_wheel_costs_beside_a_heap_is_what_was_measured() -> None:
    ns, page = record("timers.json")["ns"], text_of("why-a-wheel")
    table = page.split("| CPU ns to cancel")[1].split("\n\n")[0]
    shown = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    names = ("waterclock, compiled", "Kafka SystemTimer", "asyncio call_later")
    churn = [[f"{ns[name]['churn'][size]:,.0f}" for size in ("1000", "1000000")] for name in names]
    assert [numbers for _, *numbers in shown] == churn
    cancel = [f"{ns[name]['cancel']['100000']:.0f}" for name in ("heapq, lazy deletion", "waterclock, compiled")]
    assert re.search(rf"\({cancel[0]} ns and {cancel[1]}\)", page)


def test_half_of_all_messages_take_what_was_measured() -> None:
    shown = re.search(r"take ([\d.]+) s from producer to table", text_of("exactly-once"))
    assert shown is not None
    ours = [r for r in record("latency.json")["records"] if r["contender"].startswith("waterclock:")]
    assert {float(shown[1])} == {round(run["p50_ms"] / 1000, 2) for run in ours}


def rows_of(page: str) -> list[list[str]]:
    """The cells of each row of each table, without headings."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]
    return [row for row in rows if row[-1] != "its test" and not set(row[0]) <= {"-", "|"}]


def test_each_promise_names_the_test_or_the_file_of_tests_that_holds_it() -> None:
    names = {
        name for file in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", file.read_text())
    }
    rows = rows_of(text_of("promises"))
    assert len(rows) > 30
    wrong = [
        promise
        for promise, told in rows
        if not (found := re.findall(r"`([\w/.]+)`", told))
        or not all((ROOT / test).exists() if "/" in test else test in names for test in found)
    ]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_an_explanation_is_of_a_length_that_one_reads_at_once(page: Path) -> None:
    prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    assert 350 <= len(re.findall(r"\w[\w'’.-]*", prose)) <= 1_250


def test_each_part_that_is_promised_says_what_is_not() -> None:
    parts = text_of("promises").split("\n## ")[1:]
    assert [part.splitlines()[0] for part in parts if "**Not promised.**" not in part] == ["Everywhere"]
