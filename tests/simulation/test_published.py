"""What attacks found stands in the page as it does in the record."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.simulation.published import PAGE, RECORD, record_of, with_tables


def told(first: int, commit: str = "abc1234") -> dict[str, Any]:
    """What the file of an attack might say."""
    figures = {"histories": 2, "cpu_s": 3_600.0, "virtual_s": 86_400.0, "faults": {"kill": 1_000, "stop": 2_000}}
    sort = {"command": "--seconds 1", "seeds": [[first, first + 1]], **figures}
    also = {"passed": {"a torn end": 1}, "violations": [{"seed": first, "kinds": ["lost"]}], "commit": commit}
    return {**figures, **also, "sorts": {"short": sort}}


def test_the_page_says_what_the_record_says() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page, json.loads(RECORD.read_text())) == page


def test_figures_take_the_place_of_those_before_and_nothing_else_does() -> None:
    before = "# Page\n\n| run | old |\n|---|---|\n| x | 1 |\n\nText.\n\n| found | old |\n|---|---|\n\n| other |\n"
    page = with_tables(before, record_of([told(5), told(7)])).splitlines()
    assert "| short | 4 | 2.00 | 2.00 | `--seconds 1` | 5 to 8 |" in page
    assert "| all | 4 | 2.00 | 2.00 | | 2 violations: 5 (lost); 7 (lost) |" in page
    assert "| faults | 6,000 | stop 4,000, kill 2,000 |" in page
    assert [page[0], page[page.index("Text.")], page[-1]] == ["# Page", "Text.", "| other |"]
    assert not [line for line in page if "| old |" in line]


def test_seeds_of_two_commits_are_not_added_up() -> None:
    with pytest.raises(SystemExit, match="run at abc1234 and at def5678"):
        record_of([told(5), told(7, "def5678")])
