"""The attack deals each seed once, and adds up what its files say."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("greenlet")
pytest.importorskip("kio")

from tests.simulation.attack import BLOCK, LONG, SHORT, Sort, broken, deal, sum_of
from tests.simulation.hashes import simulated


def told(first: int, name: str = "short", **more: Any) -> dict[str, Any]:
    """What a block's file might say."""
    figures = {"histories": BLOCK, "cpu_s": 2.5, "virtual_s": 86_400.0, "faults": {"kill": 2}}
    sort = {"command": "--seconds 1", "seeds": [[first, first + BLOCK - 1]], **figures}
    return {**figures, "violations": [], "passed": {"a torn end": 1}, "sorts": {name: sort}, **more}


def test_no_seed_is_dealt_twice() -> None:
    sorts = (*SHORT, *LONG, Sort("seldom", "", every=4))
    blocks = list(islice(deal(sorts, 1_000_000), 400))
    assert len({first for _, first in blocks}) == 400
    assert all(first % BLOCK == 0 for _, first in blocks)


def test_a_sort_that_is_seldom_leaves_no_gap_in_its_seeds() -> None:
    seldom = Sort("seldom", "", every=4)
    firsts = [first for sort, first in islice(deal((*SHORT[:2], seldom), 0), 90) if sort is seldom]
    assert firsts == [2_000_000 + BLOCK * number for number in range(10)]


def test_of_each_sort_so_many_seeds_are_dealt_and_no_more() -> None:
    sorts = (*SHORT, *LONG)
    dealt = list(deal(sorts, 0, 100))
    assert sorted(dealt, key=lambda each: each[1]) == [
        (sort, number * 1_000_000 + first) for number, sort in enumerate(sorts) for first in range(0, 100, BLOCK)
    ]


def test_what_files_say_is_added_up_by_sort_with_seeds_that_touch_as_one_range() -> None:
    bad = {"seed": 7, "kinds": ["lost"]}
    whole = sum_of([told(100), told(0, violations=[bad]), told(25), told(0, "other")])
    assert whole["histories"] == 4 * BLOCK
    assert whole["faults"] == {"kill": 8}
    assert whole["violations"] == [bad]
    assert whole["virtual_days"] == 4
    assert whole["sorts"]["short"]["seeds"] == [[0, 49], [100, 124]]
    assert whole["sorts"]["short"]["cpu_s"] == 7.5
    assert whole["sorts"]["other"]["histories"] == BLOCK


def test_sums_are_added_up_once_more() -> None:
    assert sum_of([sum_of([told(0), told(25)]), told(50)]) == sum_of([told(0), told(25), told(50)])


def test_a_seed_that_two_files_have_run_is_no_second_history() -> None:
    with pytest.raises(SystemExit, match="seeds were run twice: 0 to 24, and 20 to 44"):
        sum_of([told(0), told(20)])


def test_a_violation_is_told_with_the_command_that_repeats_it() -> None:
    bad = {"seed": 107, "kinds": ["lost", "refused"], "story": "offset 3 is gone", "plan": {}}
    found = sum_of([told(0, "other"), told(100, violations=[bad])])
    found["sorts"]["short"]["command"] = "--seconds 1 --pair"
    assert list(broken(found, "a.json")) == [
        "seed 107: lost, refused: offset 3 is gone",
        "    again: python -m tests.simulation 107 --seconds 1 --pair",
        "    its plan: a.json.107.plan.json; --shrink cuts it down",
    ]


def test_the_attack_ends_with_its_time_each_block_behind_the_universe_that_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "found.json"
    told = simulated("attack", "--short", "--minutes", "0", "--cores", "1", "--json", str(path))
    assert told.returncode == 0, told.stdout + told.stderr
    seeds = {name: sort["seeds"] for name, sort in json.loads(path.read_text())["sorts"].items()}
    assert seeds == {"one broker, short": [[1_000_000, 1_000_000]], "a pair, short": [[2_000_000, 2_000_000]]}
