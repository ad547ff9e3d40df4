"""The ledger of the plants: after how many histories, and how many CPU seconds, each is found. `ledger [NAME ...]`.

Rule 1: what a plant's universes show without it is no proof of it: a history counts if it is clean without the plant.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from tests.simulation.plants import PLANTS

FOUND = re.compile(r"found after .* CPU s: (.*)")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation ledger", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="these plants; all of them if none is named")
    parser.add_argument("--seed", type=int, default=1000, help="the first one")
    parser.add_argument("--cpu-seconds", type=float, default=300, help="for each")
    parser.add_argument("--json", help="a file for what was found")
    told = parser.parse_args(arguments)
    rows = [row(name, told.seed, told.cpu_seconds) for name in told.names or PLANTS]
    if told.json:
        Path(told.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 0 if all(one["shown"] for one in rows) else 1


def row(name: str, seed: int, cpu_s: float) -> dict[str, object]:
    """Look for one plant."""
    plant, began, spent_s, shown = PLANTS[name], seed, 0.0, ""
    wants = [*(["--pair", "--past-known"] if plant.pair else []), *(["--mixed"] if plant.mixed else [])]
    wants += ["--workloads", plant.workloads] if plant.workloads else []
    while not shown and spent_s < cpu_s:
        seed, more_s, shown = _search(seed, ["--plant", name, "--cpu-seconds", str(cpu_s - spent_s), *wants])
        spent_s += more_s
        if shown and _search(seed, wants, 1)[2]:
            shown = ""  # rule 1
        seed += 1
    print(f"{name:28} {seed - began:6} {spent_s:8.1f} {shown or 'not found'}", flush=True)
    return {"plant": name, "histories": seed - began, "cpu_s": round(spent_s, 1), "shown": shown}


def _search(seed: int, wants: list[str], count: int = 100_000) -> tuple[int, float, str]:
    """In a process of its own: the seed that it came to, the CPU seconds, what was found."""
    command = [
        sys.executable,
        "-m",
        "tests.simulation",
        str(seed),
        str(count),
        "--seconds",
        "0",
        "--until-found",
        *wants,
    ]
    told = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    sums = json.loads(told.splitlines()[-1])
    kinds = FOUND.search(told)
    return seed + sums["histories"] - 1, sums["cpu_s"], kinds[1] if kinds else ""
