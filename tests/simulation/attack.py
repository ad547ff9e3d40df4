"""python -m tests.simulation attack: seeds on all cores, for as long as one says; what was run and found, as JSON.

Seeds are dealt out in blocks, each seed once: a quarter of the blocks are pairs with long histories, a quarter pairs with
short ones, the others have one broker. Any line is repeated by its seed and the words beside it.

Rule 1: every process is a new one after BLOCKS blocks, so that nothing of a history can reach the ones behind it for long.
Rule 2: a universe that fails lies in a file of its plan, beside the JSON, to be cut down with --shrink.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from tests.simulation import coverage

BLOCK, BLOCKS = 25, 20
SORTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("one broker, short", {"seconds": 1}),
    ("a pair, short", {"seconds": 1, "pair": True, "past_known": True}),
    ("one broker, long", {"seconds": 8, "mixed": True}),
    ("a pair, long", {"seconds": 8, "pair": True, "past_known": True, "mixed": True}),
)


@dataclass
class Sort:
    """What was run of one sort."""

    name: str
    words: str
    seeds: list[int] = field(default_factory=list)  # the first and the last: there is no gap between
    sums: dict[str, Any] = field(default_factory=dict)

    def add(self, first: int, sums: dict[str, Any]) -> None:
        last = first + BLOCK - 1
        self.seeds = [min(first, *self.seeds[:1]), max(last, *self.seeds[1:])] if self.seeds else [first, last]
        self.sums = added(self.sums, sums)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation attack", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--seed", type=int, default=1_000_000, help="the first one")
    parser.add_argument("--cores", type=int, default=multiprocessing.cpu_count())
    parser.add_argument("--json", help="a file for what was run and found")
    told = parser.parse_args(arguments)
    began_s = time.monotonic()
    found = told_of(run(told.seed, told.cores, began_s + 60 * told.minutes), time.monotonic() - began_s)
    text = json.dumps(found, indent=1)
    if told.json:
        Path(told.json).write_text(text + "\n")
        for one in found["violations"]:
            Path(f"{told.json}.{one['seed']}.plan.json").write_text(json.dumps(one["plan"], indent=1) + "\n")
    print(text if not told.json else json.dumps({key: found[key] for key in ("histories", "virtual_days", "faults")}))
    return 1 if found["violations"] else 0


def run(seed: int, cores: int, until_s: float) -> list[Sort]:
    """Blocks of seeds, each of the next sort, until that moment."""
    sorts = [Sort(name, words(kind)) for name, kind in SORTS]
    deals = deal(seed)
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn"), max_tasks_per_child=BLOCKS) as pool:
        running = {pool.submit(block, *next(deals)) for _ in range(2 * cores)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for number, first, sums in (one.result() for one in done):
                sorts[number].add(first, sums)
                if time.monotonic() < until_s:
                    running.add(pool.submit(block, *next(deals)))
    return sorts


def deal(seed: int) -> Iterator[tuple[int, int]]:
    """A sort, and the first seed of a block: each sort has a million seeds of its own."""
    for row in count():
        for number in range(len(SORTS)):
            yield number, seed + number * 1_000_000 + row * BLOCK


def block(number: int, first: int) -> tuple[int, int, dict[str, Any]]:
    """The universes of a block; in a process of its own."""
    from tests.simulation import planting

    planting.begin()
    from tests.simulation import plan, universe
    from tests.simulation.command import Sums
    from waterclock.simulation import install

    sums = Sums()
    began_s = time.process_time()
    for seed in range(first, first + BLOCK):
        sums.add(universe.run(plan.draw(seed, **SORTS[number][1])))
        install.sweep()
    return number, first, {**sums.told(), "cpu_s": round(time.process_time() - began_s, 2)}


def words(kind: dict[str, Any]) -> str:
    """What stands behind a seed on the command line."""
    switches = [f"--{name.replace('_', '-')}" for name, value in kind.items() if value is True]
    return " ".join((f"--seconds {kind['seconds']}", *switches))


def added(one: Any, other: Any) -> Any:
    """Numbers are added, and so are those of dictionaries and lists."""
    if isinstance(other, dict):
        return {key: added((one or {}).get(key), other.get(key)) for key in {**(one or {}), **other}}
    return one if other is None else other if one is None else one + other


def told_of(sorts: list[Sort], wall_s: float) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    for sort in sorts:
        whole = added(whole, sort.sums)
    passed, bad = whole.pop("passed", {}), whole.pop("bad", [])
    return {
        **whole,
        "wall_s": round(wall_s),
        "virtual_days": round(whole.get("virtual_s", 0) / 86_400, 3),
        "violations": bad,
        "passed": {name: passed[name] for name in sorted(passed, key=passed.__getitem__)},
        "never_passed": sorted(coverage.MARKS.keys() - passed.keys()),
        "sorts": [{"name": one.name, "command": one.words, "seeds": one.seeds, **_small(one.sums)} for one in sorts],
    }


def _small(sums: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in sums.items() if key not in ("passed", "bad")}
