"""Damage is done as it is said, and what a broker says of it is judged by its words."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.broker.consistency import damage
from tests.broker.consistency.damage import DAMAGES, View
from tests.broker.consistency.nemesis import ONE, TWO, Nemesis

ROWS = [["lists", 0, 0, 7], ["lists", 0, 1, 8]]


def view(rows: list[list[object]], offset: int = 5) -> View:
    return View({"read_committed": rows}, {"g": {"lists-0": offset}})


@pytest.mark.parametrize("what", DAMAGES)
def test_a_damaged_file_is_another_one_than_before(tmp_path: Path, what: str) -> None:
    for seed in range(20):
        path, older = tmp_path / "00.log", tmp_path / "older"
        path.write_bytes(bytes(range(1, 200)))
        older.write_bytes(b"older")
        assert damage.apply(path, what, random.Random(seed), older)
        assert not path.exists() or path.read_bytes() != bytes(range(1, 200))


@pytest.mark.parametrize("what", [one for one in DAMAGES if one != "delete"])
def test_what_would_change_nothing_is_no_damage(tmp_path: Path, what: str) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert damage.apply(path, what, random.Random(1), None) == ""


def test_each_kind_of_file_has_the_same_chance(tmp_path: Path) -> None:
    for name in ("store.log", *(f"{number:020}.log" for number in range(50))):
        (tmp_path / name).touch()
    dice = random.Random(1)
    chosen = [damage.kind_of(damage.choose(tmp_path, dice)) for _ in range(100)]
    assert set(chosen) == {"store.log", "N.log"}
    assert chosen.count("store.log") > 30


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (view(ROWS), ""),
        (view(ROWS[:1]), "1 gone [('lists', 0, 1, 8)], 0 new []"),
        (view([*ROWS, ["lists", 0, 2, 9]]), "0 gone [], 1 new [('lists', 0, 2, 9)]"),
        (view(ROWS, 4), "{'lists-0': 4} for {'lists-0': 5}"),
    ],
)
def test_what_clients_are_shown_otherwise_is_told(found: View, words: str) -> None:
    assert words in damage.differences(view(ROWS), found)
    assert bool(words) == bool(damage.differences(view(ROWS), found))


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ("lists-0 lost 3 records", True),
        ("0007.log is broken at byte 12", True),
        ("lists-0.ab12 was moved aside", True),
        ("", False),
        ("lists-1 lost 3 records", False),
    ],
)
def test_a_loss_is_told_where_its_file_its_folder_or_its_partition_is_named(said: str, named: bool) -> None:
    assert damage.named(said, Path("data/topics/lists-0.ab12/0007.log")) is named


def test_every_fault_that_is_drawn_can_be_done() -> None:
    for name in {*ONE, *TWO}:
        assert name in Nemesis.DEEDS
