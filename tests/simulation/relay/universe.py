"""A universe of one broker and relays on it."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.simulation.kafka import Kafka
from tests.simulation.relay.workload import Relays
from tests.simulation.universe import Universe
from waterclock.simulation.processes import Process
from waterclock.simulation.world import MS


class RelayUniverse(Universe):
    """One broker, relays on it, and nothing else."""

    kinds = tuple(one for one in Universe.kinds if "client" not in one)

    def __init__(self, seed: int, trace: Any, seconds: int, relays: int, calm: bool) -> None:
        super().__init__(f"relay {seed}", trace, seconds)
        self.has_faults = not calm
        self.relays = Relays(self, relays)

    def begin(self) -> None:
        helper = Process("helper")
        helper.main(self.relays.begin(Kafka(helper, self.network, self.where)))

    def nemesis(self) -> None:
        if self.has_faults and self.relays.is_ready:
            super().nemesis()
        elif self.has_faults:
            self.world.at(self.world.now + 100 * MS, self.nemesis)

    async def _verify(self, kafka: Kafka) -> None:
        while not all(getattr(actor, "done", False) for actor, *_ in self.working.values()):
            await asyncio.sleep(0.5)
            for node in self.nodes:
                node.start()
        await self.relays.verify(kafka)
        self.verified = True
