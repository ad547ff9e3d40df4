"""Which marks universes pass: how many of each kind do, one that does, and what was never reached.

    reached --count N        so many more universes of each kind; reached.json keeps what they passed
    reached --check          run the universe of each mark again, and forget those that do not pass it any more
    reached                  the table

Rule 1: reached.json has, of each mark, how many histories passed it, and the first that did: its seed and its kind.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from tests.simulation import coverage, planting

PATH = Path(__file__).parent / "reached.json"
Known = dict[str, Any]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation reached", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=0, help="so many more universes of each kind")
    parser.add_argument("--kinds", help="only these, with commas")
    parser.add_argument("--check", action="store_true", help="forget what is passed no more where it was")
    told = parser.parse_args(arguments)
    planting.begin()
    from tests.simulation.kinds import KINDS

    known = read()
    if told.check:
        check(known)
    for kind in told.kinds.split(",") if told.kinds else KINDS:
        for _ in range(told.count):
            add(known, kind)
            write(known)
    print(table(known))
    return 0


def read(path: Path = PATH) -> Known:
    return json.loads(path.read_text()) if path.exists() else {"histories": {}, "marks": {}}  # type: ignore[no-any-return]


def write(known: Known, path: Path = PATH) -> None:
    marks = {name: known["marks"][name] for name in sorted(known["marks"])}
    path.write_text(json.dumps({**known, "marks": marks}, indent=1) + "\n")


def add(known: Known, kind: str) -> None:
    """One more universe of the kind: the next seed."""
    seed = known["histories"].get(kind, 0) + 1
    known["histories"][kind] = seed
    for name in passed(seed, kind):
        one = known["marks"].setdefault(name, {"times": 0, "seed": seed, "kind": kind})
        one["times"] += 1


def passed(seed: int, kind: str) -> list[str]:
    """The marks that a universe passes."""
    from tests.simulation import kinds, universe
    from waterclock.simulation import install

    one = universe.run(kinds.draw(seed, kind))
    install.sweep()
    return [name for name in one.passed if name in coverage.MARKS]


def check(known: Known) -> None:
    """Forget marks that are gone, and those that the universe of theirs does not pass any more."""
    marks, places = known["marks"], dict[tuple[int, str], list[str]]()
    for name, one in list(marks.items()):
        places.setdefault((one["seed"], one["kind"]), []).append(name)
    for place, names in places.items():
        still = passed(*place)
        for name in names:
            if name not in still:
                del marks[name]


def table(known: Known) -> str:
    """What was never reached, and what seldom: by modules."""
    marks, histories = known["marks"], sum(known["histories"].values())
    never = [name for name in coverage.MARKS if name not in marks]
    seldom = sorted((one["times"], name) for name, one in marks.items() if one["times"] * 50 < histories)
    return "\n".join((
        f"{len(marks)} of {len(coverage.MARKS)} marks were passed in {histories} histories: {known['histories']}",
        "never:", *(f"  {coverage.MARKS[name][0]}: {name}" for name in never),
        "in one of fifty, or less:",
        *(f"  {times:4}  {name}: {marks[name]['seed']} --kind {marks[name]['kind']}" for times, name in seldom),
    ))  # fmt: skip
