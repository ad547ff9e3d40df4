"""python -m tests.simulation attack: seeds on all cores, for as long as one says; what was run and found, as JSON.

Seeds are dealt out in blocks, each seed once, to sorts in their turn: one broker and pairs, with short histories and long
ones; with --short, short ones alone, and rooms that stand on the broker. A sort's command repeats any seed of it.

    --add FILE ...      no seeds: the sum of what such files say; a seed that two of them have run is refused

Rule 1: a process is a new one after BLOCKS blocks, so that nothing of a history can reach the ones behind it for long.
    It is forked off one where all is imported, and was used once: `warm.py`.
Rule 2: at the end of the time a block ends behind the universe that it runs; the seeds behind that are not dealt again.
Rule 3: a universe that fails lies in a file of its plan, beside the JSON, to be cut down with --shrink.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from functools import reduce
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from tests.simulation import coverage, warm

BLOCK, BLOCKS, SEEDS = 25, 20, 1_000_000


class Sort(NamedTuple):
    """`words` stand behind a seed on the command line. Of `every` so many rounds it has a block in one."""

    name: str
    words: str
    every: int = 1


SHORT = (
    Sort("one broker, short", "--seconds 1 --few"),
    Sort("a pair, short", "--seconds 1 --few --pair --past-known"),
    Sort("one broker that is refused, short", "--seconds 1 --kind uneven", 4),
)
LONG = (
    Sort("one broker, long", "--seconds 8 --mixed"),
    Sort("a pair, long", "--seconds 8 --pair --past-known --mixed"),
)
ROOMS = ("relay", "capture", "rules", "local")
"""Workloads that cost more than a short history of the broker's own."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation attack", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of each sort, at most")
    parser.add_argument("--seed", type=int, default=1_000_000, help="the first one")
    parser.add_argument("--cores", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--short", action="store_true", help="histories of one second")
    parser.add_argument("--add", nargs="+", metavar="FILE", help="the sum of what these say")
    parser.add_argument("--json", help="a file for what was run and found")
    told = parser.parse_args(arguments)
    if told.add:
        found = sum_of([json.loads(Path(path).read_text()) for path in told.add])
    else:
        began_s = time.monotonic()
        sorts = short() if told.short else (*SHORT, *LONG)
        found = run(deal(sorts, told.seed, told.seeds), told.cores, began_s + 60 * told.minutes)
        found["wall_s"] = round(time.monotonic() - began_s)
        found["commit"] = subprocess.check_output(["git", "describe", "--always", "--dirty"], text=True).strip()
    text = json.dumps(found, indent=1)
    if told.json:
        Path(told.json).write_text(text + "\n")
        for one in found["violations"]:
            Path(f"{told.json}.{one['seed']}.plan.json").write_text(json.dumps(one["plan"], indent=1) + "\n")
    print(text if not told.json else json.dumps({key: found.get(key) for key in ("histories", "virtual_s", "faults")}))
    for line in broken(found, told.json):
        print(line, file=sys.stderr)
    return 1 if found["violations"] else 0


def broken(found: dict[str, Any], path: str | None) -> Iterator[str]:
    """Each violation, and what repeats it where the folder of `path` is gone: a log may be all that is left of a run."""
    for one in found["violations"]:
        yield f"seed {one['seed']}: {', '.join(one['kinds'])}: {one['story']}"
        sort = next(
            s for s in found["sorts"].values() if any(first <= one["seed"] <= last for first, last in s["seeds"])
        )
        yield f"    again: python -m tests.simulation {one['seed']} {sort['command']}"
        if path:
            yield f"    its plan: {path}.{one['seed']}.plan.json; --shrink cuts it down"


def short() -> tuple[Sort, ...]:
    from tests.simulation.clients import WORKLOADS

    names = [one.name for one in WORKLOADS if one.name in ROOMS]
    return (*SHORT, *(Sort(f"{name}, short", f"--seconds 1 --workloads {name}", 4) for name in names))


def run(deals: Iterator[tuple[Sort, int]], cores: int, until_s: float) -> dict[str, Any]:
    """Blocks of seeds until that moment, or until none is left."""
    found = []
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([warm.__name__])
    os.environ[warm.FORKS] = "1"
    with ProcessPoolExecutor(cores, context, max_tasks_per_child=BLOCKS) as pool:
        running = {pool.submit(block, *one, until_s) for one in islice(deals, 2 * cores)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                found.append(one.result())
                if time.monotonic() < until_s and (following := next(deals, None)) is not None:
                    running.add(pool.submit(block, *following, until_s))
    return sum_of(found)


def deal(sorts: Sequence[Sort], seed: int, most: int = SEEDS) -> Iterator[tuple[Sort, int]]:
    """A sort, and the first seed of a block: each sort has a million seeds of its own, of which `most` are dealt."""
    for row in range(-(-most // BLOCK) * max(sort.every for sort in sorts)):
        for number, sort in enumerate(sorts):
            place = row // sort.every * BLOCK
            if row % sort.every == 0 and place < most:
                yield sort, seed + number * SEEDS + place


def block(sort: Sort, first: int, until_s: float) -> dict[str, Any]:
    """The universes of a block until that moment, and what they come to; in a process of its own."""
    from tests.simulation import planting

    planting.begin()
    from tests.simulation import command, universe
    from waterclock.simulation import install

    sums = command.Sums()
    began_s = time.process_time()
    for plan in command.plans(command.parser().parse_args([str(first), str(BLOCK), *sort.words.split()])):
        sums.add(universe.run(plan))
        if time.monotonic() > until_s:
            break
    install.sweep()
    whole = {**sums.told(), "cpu_s": round(time.process_time() - began_s, 2)}
    bad, passed = whole.pop("bad"), whole.pop("passed")
    of_sort = {"command": sort.words, "seeds": [[first, first + sums.histories - 1]], **whole}
    return {**whole, "violations": bad, "passed": passed, "sorts": {sort.name: of_sort}}


def sum_of(several: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Of what was run and found in each."""
    whole = reduce(added, several)
    for sort in whole["sorts"].values():
        sort["seeds"] = joined(sort["seeds"])
    passed = whole["passed"]
    whole["passed"] = {name: passed[name] for name in sorted(passed, key=passed.__getitem__)}
    whole["never_passed"] = sorted(coverage.MARKS.keys() - passed.keys())
    whole["cpu_s"] = round(whole["cpu_s"], 2)
    whole["virtual_days"] = round(whole["virtual_s"] / 86_400, 3)
    return whole


def joined(ranges: list[list[int]]) -> list[list[int]]:
    """Ranges from first to last seed, with those made one that touch."""
    ranges = sorted(ranges)
    for one, other in pairwise(ranges):
        if other[0] <= one[1]:
            raise SystemExit(f"seeds were run twice: {one[0]} to {one[1]}, and {other[0]} to {other[1]}")
    made: list[list[int]] = []
    for first, last in ranges:
        if made and made[-1][1] + 1 == first:
            made[-1][1] = last
        else:
            made.append([first, last])
    return made


def added(one: Any, other: Any) -> Any:
    """Numbers are added, lists put together, dictionaries value by value; a text is the same in both."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {key: added(one.get(key), other.get(key)) for key in {**one, **other}}
    if one is None or other is None or isinstance(one, str):
        return other if one is None else one
    return one + other
