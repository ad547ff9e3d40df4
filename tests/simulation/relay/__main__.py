"""Universes with relays: python -m tests.simulation.relay FIRST COUNT [--relays N] [--seconds S] [--calm]."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from tests.simulation.kafka import Kafka
from tests.simulation.relay.workload import Relays
from tests.simulation.universe import Universe
from waterclock.simulation.install import install, sweep
from waterclock.simulation.world import MS


class RelayUniverse(Universe):
    """One broker, relays on it, and nothing else."""

    kinds = tuple(one for one in Universe.kinds if "client" not in one)

    def __init__(self, seed: int, trace: Any, seconds: float, relays: int, calm: bool) -> None:
        super().__init__(f"relay {seed}", trace, seconds)
        self.has_faults = not calm
        self.relays = Relays(self, relays)

    def begin(self) -> None:
        from waterclock.simulation.processes import Process

        helper = Process("helper")
        helper.main(self.relays.begin(Kafka(helper, self.network, self.where)))

    def nemesis(self) -> None:
        if self.has_faults and self.relays.is_ready:
            super().nemesis()
        elif self.has_faults:
            self.world.at(self.world.now + 100 * MS, self.nemesis)

    async def _verify(self, kafka: Kafka) -> None:
        import asyncio

        while not all(getattr(actor, "done", False) for actor, *_ in self.working.values()):
            await asyncio.sleep(0.5)
            for node in self.nodes:
                node.start()
        await self.relays.verify(kafka)
        self.verified = True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--relays", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--calm", action="store_true")
    parser.add_argument("--trace")
    given = parser.parse_args()
    install()
    for seed in range(given.first, given.first + given.count):
        began = time.process_time()
        trace = Path(given.trace).open("w", buffering=1) if given.trace else None  # noqa: SIM115
        universe = RelayUniverse(seed, trace, round(given.seconds), given.relays, given.calm)
        universe.run()
        world = universe.world
        found = getattr(universe.relays, "found_last", None)
        counts = found and (len(found.requests), len(found.delivered), len(found.replies), len(found.dead))
        print(seed, world.digest.hexdigest(), world.lines, counts, dict(sorted(universe.faults.items())),
              f"{time.process_time() - began:.1f}s", flush=True)  # fmt: skip
        for problem in universe.world.problems[:10]:
            print("   ", *problem, flush=True)
        world.over()
        sweep()


main()
