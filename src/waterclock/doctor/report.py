"""A verdict for each door, from the machine's facts and from the packages; as text or as JSON.

    the door                                                          its state        exit code
    it has all of its packages, and nothing stops it                  works            0
    it lacks all of its packages                                      not installed    1 where it was named, else 0
    it lacks some; another door may have brought the others           partly installed 1 where it was named, else 0
    a package is broken or of a wrong version, or a fact stops it     does not work    1

Rule 1: where no door is named, those are meant that are installed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from waterclock import __version__
from waterclock.doctor import packages
from waterclock.doctor.machine import Fact, facts
from waterclock.errors import pip_install

WORKS: Final = "works"
NOT_INSTALLED: Final = "not installed"
PARTLY: Final = "partly installed"
DOES_NOT_WORK: Final = "does not work"


class Verdict(NamedTuple):
    """What there is to say of a door."""

    door: str
    state: str
    why: tuple[str, ...] = ()
    remedy: str = ""


class Report(NamedTuple):
    """Everything that was seen, and the exit code that follows."""

    facts: list[Fact]
    doors: list[Verdict]
    exit_code: int


def look(named: Sequence[str], folder: Path) -> Report:
    """Look at this machine, for the doors that are named or for all."""
    doors = [door for door in packages.NEEDS if door in named or not named]
    told = packages.imported(chain.from_iterable(packages.NEEDS[door] for door in doors))
    seen = [packages.compiled(), *facts(folder)]
    verdicts = [_verdict(door, seen, *packages.faults_of(door, told)) for door in doors]
    states = {one.state for one in verdicts} - (set() if named else {NOT_INSTALLED, PARTLY})
    return Report(seen, verdicts, 0 if states <= {WORKS} else 1)


def _verdict(door: str, seen: Iterable[Fact], missing: list[str], wrong: list[str]) -> Verdict:
    if missing:
        state = PARTLY if packages.has_some(door, missing) else NOT_INSTALLED
        return Verdict(door, state, (f"{', '.join(missing)} missing", *wrong), pip_install(door))
    if wrong:
        ours = all(fault.startswith("waterclock") for fault in wrong)
        remedy = "install waterclock again" if ours else f"{pip_install(door)} (or --force-reinstall what is there)"
        return Verdict(door, DOES_NOT_WORK, tuple(wrong), remedy)
    stops = tuple(f"{fact.what}: {fact.seen}" for fact in seen if door in fact.stops)
    return Verdict(door, DOES_NOT_WORK if stops else WORKS, stops)


def as_text(report: Report) -> str:
    """For people: a line for each thing, and below it what to do."""
    lines = [(fact.what, fact.seen, fact.remedy) for fact in report.facts]
    doors = [(one.door, ": ".join(filter(None, (one.state, "; ".join(one.why)))), one.remedy) for one in report.doors]
    parts = [
        "\n".join(f"{a:12} {b}" + (f"\n{'':12} -> {c}" if c else "") for a, b, c in part) for part in (lines, doors)
    ]
    return "\n\n".join([f"waterclock {__version__}", *parts])


def as_json(report: Report) -> str:
    """For programs."""
    plain = {part: [one._asdict() for one in getattr(report, part)] for part in ("facts", "doors")}
    return json.dumps({"version": __version__, **plain, "exit_code": report.exit_code}, indent=1)
