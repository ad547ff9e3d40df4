"""The ledger of the plants: at which seed each is found, after how many histories and CPU seconds. `ledger [NAME ...]`.

    ledger --json FILE              all of them; each goes into the file as it is found. Called again it goes on from there
    ledger --json FILE --again      what was not found, or has changed, from the first seed on
    ledger --json FILE --check      what was found is run again by its command, and looked for anew if that shows nothing
    ledger --json FILE --table      the table alone

Rule 1: what a plant's universe shows without it is no proof of it: a history counts if it is clean without the plant. One
    that is not is a fault of the product, and is told.
Rule 2: the cheapest first, as far as a file knows them: a ledger that is stopped has most of them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from tests.simulation import planting
from tests.simulation.plants import PLANTS, Plant

Row = dict[str, Any]
COMMAND = "python -m tests.simulation"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog=f"{COMMAND} ledger", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="these plants; all of them if none is named")
    parser.add_argument("--seed", type=int, default=1000, help="the first one")
    parser.add_argument("--cpu-seconds", type=float, default=300, help="for each")
    parser.add_argument("--json", help="a file for what was found, and of what was found before")
    parser.add_argument("--again", action="store_true", help="look for those that were not found once more")
    parser.add_argument("--check", action="store_true", help="run what was found again")
    parser.add_argument("--table", action="store_true", help="show what stands in the file")
    told = parser.parse_args(arguments)
    path = Path(told.json) if told.json else None
    rows = read(path) if path and path.exists() else {}
    searches = Searches()
    if told.check:
        rows = {name: one for name, one in rows.items() if name in PLANTS and holds(one, searches)}
    if not told.table:
        for name in open_ones(told.names or [*PLANTS], rows, told.cpu_seconds, told.again):
            rows[name] = row(name, told.seed, told.cpu_seconds, searches, None if told.again else rows.get(name))
            print(line(rows[name]), flush=True)
            if path:
                write(path, rows)
    searches.close()
    if told.table or not told.names:
        print(table([rows[name] for name in PLANTS if name in rows]))
    return 0 if all(rows[name]["seed"] is not None for name in told.names or PLANTS if name in rows) else 1


def read(path: Path) -> dict[str, Row]:
    return {one["plant"]: one for one in json.loads(path.read_text())["figures"]["plants"]}


def write(path: Path, rows: dict[str, Row]) -> None:
    told = {"benchmark": "simulation-plants", "command": f"{COMMAND} ledger --json {path}"}
    plants = [rows[one] for one in PLANTS if one in rows]
    path.write_text(json.dumps({**told, "figures": {"plants": plants}}, indent=1) + "\n")


def open_ones(names: list[str], rows: dict[str, Row], cpu_s: float, again: bool) -> list[str]:
    """Whom to look for, the cheapest first."""
    left = [name for name in names if is_open(rows.get(name), text_of(name), cpu_s, again)]
    return sorted(left, key=lambda name: rows.get(name, {}).get("cpu_s", 30.0))


def is_open(known: Row | None, text: int, cpu_s: float, again: bool) -> bool:
    """Whether a plant is to be looked for: nobody has, or not for so long, or it was another one."""
    if known is None or known["text"] != text:
        return True
    return known["seed"] is None and (again or known["cpu_s"] < cpu_s)


def text_of(name: str) -> int:
    """What tells one text of a plant from another."""
    return zlib.crc32(repr(PLANTS[name]).encode())


class Searches:
    """Processes in which universes are run: a new one for each plant, one for what is run without any."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(
            ["numpy", "confluent_kafka", "aiokafka", "kio.schema", "tests.simulation.plants"]
        )
        self._planted = ProcessPoolExecutor(1, context, max_tasks_per_child=1)
        self._clean = ProcessPoolExecutor(1, context, max_tasks_per_child=50)

    def run(self, first: int, name: str, cpu_s: float) -> Row:
        """Universes with the plant, from that seed on until one shows something."""
        return self._planted.submit(search, first, name, PLANTS[name], cpu_s).result()

    def is_clean(self, seed: int, name: str) -> bool:
        """Whether the universe shows nothing without the plant."""
        return not self._clean.submit(search, seed, None, PLANTS[name], 0).result()["shown"]

    def close(self) -> None:
        self._planted.shutdown()
        self._clean.shutdown()


def search(first: int, planted: str | None, plant: Plant, cpu_s: float) -> Row:
    """Universes of a plant's kinds, with it or without, until one shows something, or the time is over."""
    planting.begin(plant.edits if planted else ())
    from tests.simulation import kinds, universe
    from waterclock.simulation import install

    began_s, seed, shown = time.process_time(), first, list[str]()
    while not shown:
        drawn = kinds.draw(seed, kinds.of(seed, plant.kinds), workloads=plant.workloads)
        shown = sorted({kind for kind, _ in universe.run(drawn).world.problems})
        install.sweep()
        seed += 1
        if time.process_time() - began_s > cpu_s:
            break
    return {"histories": seed - first, "shown": shown, "cpu_s": time.process_time() - began_s}


def holds(known: Row, searches: Searches) -> bool:
    """Whether a row's universe shows something still."""
    if known["seed"] is None:
        return True
    shown: list[str] = searches.run(known["seed"], known["plant"], 0)["shown"]
    print(f"{known['plant']:28} {', '.join(shown) or 'shows nothing any more'}", flush=True)
    return bool(shown)


def row(name: str, first: int, cpu_s: float, searches: Searches, known: Row | None = None) -> Row:
    """Look for one plant; `known`: as far as somebody has."""
    plant, seed, spent_s = PLANTS[name], first, 0.0
    strange: list[str] = []
    if known is not None and known["text"] == text_of(name):
        seed, spent_s, strange = first + known["histories"], known["cpu_s"], known["without_it"]
    words = f" --workloads {','.join(plant.workloads)}" if plant.workloads else ""
    found: Row = {"seed": None, "command": "", "shown": []}
    while found["seed"] is None and spent_s < cpu_s:
        told = searches.run(seed, name, cpu_s - spent_s)
        spent_s, seed = spent_s + told["cpu_s"], seed + told["histories"]
        if told["shown"]:
            alone = f"{COMMAND} {seed - 1} --kind {plant.kinds[(seed - 1) % len(plant.kinds)]}{words}"
            if searches.is_clean(seed - 1, name):
                found = {"seed": seed - 1, "command": f"{alone} --plant {name}", "shown": told["shown"]}
            else:
                strange.append(alone)
    spent = {"histories": seed - first, "cpu_s": round(spent_s, 1)}
    return {"plant": name, **found, **spent, "without_it": strange, "text": text_of(name)}


def line(one: Row) -> str:
    shown = ", ".join(one["shown"]) if one["seed"] is not None else "not found"
    without = f"; without it: {one['without_it']}" if one["without_it"] else ""
    return f"{one['plant']:28} {one['seed'] or '':>6} {one['histories']:6} {one['cpu_s']:8.1f}  {shown}{without}"


def table(rows: list[Row]) -> str:
    """As Markdown."""
    head = ["| plant | histories | CPU s | shown as | again |", "|---|---|---|---|---|"]
    told = [
        f"| `{one['plant']}` | {one['histories']} | {one['cpu_s']} | {', '.join(one['shown']) or 'not found'} | "
        f"{'`' + one['command'].removeprefix(COMMAND + ' ') + '`' if one['command'] else ''} |"
        for one in sorted(rows, key=lambda one: (one["seed"] is None, one["cpu_s"]))
    ]
    found = sum(one["seed"] is not None for one in rows)
    return "\n".join((f"{found} of {len(rows)} are found", "", *head, *told))
