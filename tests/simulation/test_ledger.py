"""The ledger goes on where it stopped, and believes no history that fails without its plant; what is passed is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation import coverage, ledger, reached
from tests.simulation.plants import PLANTS

NAME = "ahead-unflushed"


class Found:
    """Searches that find the plant at a seed, and something else at those of `without`."""

    def __init__(self, found_at: int, without: tuple[int, ...] = ()) -> None:
        self._found_at, self._without = found_at, without

    def run(self, first: int, name: str, cpu_s: float) -> ledger.Row:
        at = min(one for one in (self._found_at, *self._without) if one >= first)
        return {"shown": ["lost"], "histories": at - first + 1, "cpu_s": 10.0}

    def is_clean(self, seed: int, name: str) -> bool:
        return seed not in self._without

    def close(self) -> None:
        pass


def row(searches: Found, known: ledger.Row | None = None) -> ledger.Row:
    return ledger.row(NAME, 1000, 300, searches, known)  # type: ignore[arg-type]


def test_a_plant_is_found_at_a_seed_with_the_command_that_repeats_it() -> None:
    found = row(Found(1007))
    assert (found["seed"], found["histories"], found["cpu_s"]) == (1007, 8, 10)
    assert found["command"] == f"python -m tests.simulation 1007 --kind one --plant {NAME}"


def test_a_history_that_fails_without_its_plant_is_told_and_proves_nothing() -> None:
    found = row(Found(1007, without=(1003,)))
    assert found["seed"] == 1007
    assert found["without_it"] == ["python -m tests.simulation 1003 --kind one"]


def test_what_was_not_found_is_looked_for_from_there_on() -> None:
    text = ledger.text_of(NAME)
    known = {"plant": NAME, "seed": None, "histories": 40, "cpu_s": 60.0, "text": text, "without_it": []}
    assert not ledger.is_open(known, text, 60, again=False)
    assert ledger.is_open(known, text, 300, again=False)
    found = row(Found(1050), known)
    assert (found["seed"], found["histories"], found["cpu_s"]) == (1050, 51, 70)


def test_a_plant_that_has_changed_is_looked_for_anew() -> None:
    text = ledger.text_of(NAME)
    assert ledger.is_open({"seed": 1003, "text": 0, "cpu_s": 1}, text, 300, again=False)
    assert not ledger.is_open({"seed": 1003, "text": text, "cpu_s": 1}, text, 300, again=True)


def test_a_file_has_each_plant_as_soon_as_it_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plants.json"
    monkeypatch.setattr(ledger, "Searches", lambda: Found(1002))
    assert ledger.main([NAME, "--json", str(path)]) == 0
    assert [*ledger.read(path)] == [NAME]
    assert f"| `{NAME}` | 3 |" in ledger.table([*ledger.read(path).values()])
    monkeypatch.setattr(ledger, "Searches", lambda: Found(10**6))  # nobody asks for it again
    assert ledger.main([NAME, "--json", str(path)]) == 0
    assert ledger.read(path)[NAME]["seed"] == 1002


def test_what_universes_pass_is_kept_with_the_first_that_did(monkeypatch: pytest.MonkeyPatch) -> None:
    often, seldom = list(coverage.MARKS)[:2]
    monkeypatch.setattr(reached, "passed", lambda seed, kind: [often, seldom] if seed == 3 else [often])
    known = {"histories": {}, "marks": {}}
    for _ in range(4):
        reached.add(known, "one")
    assert known["marks"][often] == {"times": 4, "seed": 1, "kind": "one"}
    assert known["marks"][seldom] == {"times": 1, "seed": 3, "kind": "one"}
    assert f"{coverage.MARKS[often][0]}: {often}" not in reached.table(known)
    monkeypatch.setattr(reached, "passed", lambda seed, kind: [often])
    reached.check(known)
    assert known["marks"].keys() == {often}


def test_the_kept_marks_and_the_kept_plants_are_there() -> None:
    assert reached.read()["marks"].keys() <= coverage.MARKS.keys()
    record = Path(__file__).parents[2] / "bench" / "results" / "simulation-plants.json"
    if record.exists():
        assert ledger.read(record).keys() <= PLANTS.keys()
