"""python -m tests.simulation hashes COUNT: one seed in so many fresh processes, each with other hashes of Python's.

What is not the command's own stands behind the seed: `hashes 1000 --pair`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation hashes", description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--python", default=sys.executable, help="the Python that runs it")
    parser.add_argument("--json", help="a file for what was found, so far and in the end")
    told, more = parser.parse_known_args(arguments)
    found: Counter[str] = Counter()
    with ThreadPoolExecutor(told.cores) as several:
        one = lambda number: hashes(told.seed, 1, *more, hashseed=number, python=told.python)[0]  # noqa: E731
        for line in several.map(one, range(1, told.count + 1)):
            found[line] += 1
            if told.json:
                Path(told.json).write_text(json.dumps(_told(told.python, more, found), indent=1) + "\n")
    print(json.dumps(_told(told.python, more, found), indent=1))
    return 0 if len(found) == 1 else 1


def _told(python: str, more: list[str], found: Counter[str]) -> dict[str, object]:
    version = subprocess.run([python, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "python": version,
        "words": more,
        "processes": found.total(),
        "equal": max(found.values()),
        "hashes": dict(found),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 1),
    }


def simulated(*arguments: str, hashes: int = 0, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """The command in a fresh process, with these hashes of Python's."""
    found = {"PYTHONHASHSEED": str(hashes), "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [python, "-m", "tests.simulation", *arguments]
    return subprocess.run(command, cwd=ROOT, env=os.environ | found, capture_output=True, text=True, check=False)


def hashes(seed: int, count: int = 1, *more: str, hashseed: int = 0, python: str = sys.executable) -> list[str]:
    """The lines `hash SEED HASH LINES` of a fresh process."""
    done = simulated(str(seed), str(count), "--seconds", "2", "--hash", *more, hashes=hashseed, python=python)
    found = [line for line in done.stdout.splitlines() if line.startswith("hash ")]
    assert len(found) == count, done.stdout + done.stderr
    return found
