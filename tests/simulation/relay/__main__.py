"""Universes with relays: python -m tests.simulation.relay FIRST COUNT [--relays N] [--plant NAME]."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from tests.simulation.plants import Finder
from tests.simulation.relay.plants import PLANTS
from waterclock.simulation.install import install, sweep


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--relays", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=6)
    parser.add_argument("--calm", action="store_true", help="no faults")
    parser.add_argument("--trace", help="a file for each event")
    parser.add_argument("--plant", choices=sorted(PLANTS))
    parser.add_argument("--until-found", action="store_true")
    return parser.parse_args()


def tell(universe: Any, seed: int, took_s: float) -> None:
    world, found = universe.world, universe.relays.found_last
    counts = found and (len(found.requests), len(found.delivered), len(found.replies), len(found.dead))
    faults = dict(sorted(universe.faults.items()))
    print(seed, world.digest.hexdigest(), world.lines, counts, faults, f"{took_s:.1f}s", flush=True)
    for problem in world.problems[:10]:
        print("   ", *problem, flush=True)


def main() -> int:
    given = options()
    if given.plant:
        sys.meta_path.insert(0, Finder(PLANTS[given.plant]))
    install()
    from tests.simulation.relay.universe import RelayUniverse  # what is planted is there by now

    failed = False
    for seed in range(given.first, given.first + given.count):
        began = time.process_time()
        trace = Path(given.trace).open("w", buffering=1) if given.trace else None  # noqa: SIM115
        universe = RelayUniverse(seed, trace, given.seconds, given.relays, given.calm)
        universe.run()
        tell(universe, seed, time.process_time() - began)
        failed |= bool(universe.world.problems)
        universe.world.over()
        sweep()
        if universe.world.problems and given.until_found:
            break
    return int(failed)


sys.exit(main())
