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
