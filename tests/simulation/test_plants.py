"""Plants and marks stand in the source of today; a plan is JSON, and each part of it is drawn by itself."""

from __future__ import annotations

import ast
import importlib.util
import json
from pathlib import Path

import pytest

from tests.simulation import faults, plan
from tests.simulation.coverage import MARKS
from tests.simulation.planting import Edit, PlantDoesNotApply, marks_of, planted
from tests.simulation.plants import MENDED, PLANTS


def source(module: str) -> str:
    found = importlib.util.find_spec(module)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).read_text()


@pytest.mark.parametrize("name", PLANTS)
def test_a_plant_still_applies_and_is_python(name: str) -> None:
    edits = PLANTS[name].edits
    for module in {edit.module for edit in edits}:
        ast.parse(planted(source(module), [edit for edit in edits if edit.module == module], marks_of(module)))


def test_ten_mended_defects_at_least_are_plants() -> None:
    assert len(MENDED) >= 10


@pytest.mark.parametrize("name", MARKS)
def test_a_mark_stands_once_and_moves_no_line(name: str) -> None:
    module, line = MARKS[name]
    text = source(module)
    assert text.count(line) == 1
    marked = planted(text, (), [(name, line)])
    ast.parse(marked)
    assert marked.count("\n") == text.count("\n")


def test_a_plant_whose_text_has_moved_says_so() -> None:
    with pytest.raises(PlantDoesNotApply, match="stands 0 times"):
        planted("a = 1\n", [Edit("a.module", "b = 2", "")])


def test_a_plan_is_the_same_after_its_way_through_json() -> None:
    drawn = plan.draw(7, pair=True)
    assert plan.from_json(json.loads(drawn.to_json())) == drawn


def test_what_is_left_out_of_a_plan_shifts_nothing_else() -> None:
    one = plan.draw(7, seconds=8)
    rest = one.but(faults=one.faults[1:])
    assert [one.stream(f"fault {fault.number}").random() for fault in rest.faults] == [
        rest.stream(f"fault {fault.number}").random() for fault in one.faults[1:]
    ]


def test_every_fault_that_a_plan_names_is_there_and_an_aimed_one_has_its_mark() -> None:
    drawn = [fault for seed in range(50) for fault in plan.draw(seed, pair=bool(seed % 2)).faults]
    assert {fault.kind for fault in drawn} <= faults.KINDS.keys()
    assert all((fault.kind in faults.AIMED) == (fault.mark in MARKS) for fault in drawn)
