"""`published FILE ...`: what attacks ran and found, as the record in bench/results and two tables of docs/reliability.md.

Rule 1: a seed's history is that of its commit alone, so all files are of one.
Rule 2: what failed is in the record with its plan, and in the table with its number.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.simulation import attack, ledger

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "bench" / "results" / "simulation.json"
PLANTS = ROOT / "bench" / "results" / "simulation-plants.json"
PAGE = ROOT / "docs" / "reliability.md"
RUN, FOUND = "| run |", "| found |"
Record = dict[str, Any]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation published", description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE", help="of attacks: build/attack.json")
    told = parser.parse_args(arguments)
    record = record_of([json.loads(Path(path).read_text()) for path in told.files])
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")
    print(RECORD, PAGE, sep="\n")
    return 0


def record_of(several: list[dict[str, Any]]) -> Record:
    """Of what was run at one commit; SystemExit where it was at two."""
    commits = sorted({one["commit"] for one in several})
    if len(commits) > 1:
        raise SystemExit(f"these were run at {' and at '.join(commits)}: their seeds are not each other's; attack anew")
    command = "make attack; python -m tests.simulation published build/attack.json"
    return {"benchmark": "simulation", "command": command, "figures": attack.sum_of(several)}


def with_tables(page: str, record: Record) -> str:
    """The page with both tables in the place of those that it has."""
    lines = page.splitlines()
    for head, table in ((RUN, run(record["figures"])), (FOUND, found(record["figures"]))):
        first = next(number for number, line in enumerate(lines) if line.startswith(head))
        end = next(number for number in range(first, len(lines)) if not lines[number].startswith("|"))
        lines[first:end] = table
    return "\n".join(lines) + "\n"


def run(figures: dict[str, Any]) -> Iterator[str]:
    again = f"again, at commit {figures['commit']}: `python -m tests.simulation SEED ...`"
    yield f"{RUN} histories | virtual days | CPU hours | {again} | seeds |"
    yield "|---|---|---|---|---|---|"
    for name, one in figures["sorts"].items():
        seeds = ", ".join(f"{first} to {last}" for first, last in one["seeds"])
        yield f"| {name} | {amounts(one)} | `{one['command']}` | {seeds} |"
    bad = [f"{one['seed']} ({', '.join(one['kinds'])})" for one in figures["violations"]]
    yield f"| all | {amounts(figures)} | | {len(bad)} violations{': ' * bool(bad)}{'; '.join(bad)} |"


def amounts(one: dict[str, Any]) -> str:
    return f"{one['histories']:,} | {one['virtual_s'] / 86_400:.2f} | {one['cpu_s'] / 3_600:.2f}"


def found(figures: dict[str, Any]) -> Iterator[str]:
    faults = sorted(figures["faults"].items(), key=lambda each: -each[1])
    passed, never = figures["passed"], figures["never_passed"]
    plants = ledger.read(PLANTS).values()
    unseen = [f"`{one['plant']}`" for one in plants if one["seed"] is None]
    yield f"{FOUND} number | which |"
    yield "|---|---|---|"
    yield f"| faults | {sum(figures['faults'].values()):,} | {', '.join(f'{name} {count:,}' for name, count in faults)} |"
    yield f"| rare branches that none passed | {len(never)} of {len({*passed, *never})} | {', '.join(never)} |"
    yield f"| planted bugs that were not found | {len(unseen)} of {len(plants)} | {', '.join(unseen)} |"
