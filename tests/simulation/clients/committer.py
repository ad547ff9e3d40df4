"""A group without members, whose offsets only rise."""

from __future__ import annotations

from tests.simulation.clients.actor import Actor
from tests.simulation.kafka.codes import RETRIABLE
from tests.simulation.kafka.groups import commit_offset


class Committer(Actor):
    """Commits rising offsets, and asks for them."""

    async def work(self) -> None:
        history, group, tp = self.history, f"plain-{self.name}", ("log", 1)
        floor, asked = history.offset_floor.get((group, tp), -1), history.offset_asked.get((group, tp), 0)
        history.ops += 1
        if self.rng.random() < 0.7:
            history.asks_offset(group, tp, asked + 1)
            error = await commit_offset(self.kafka, group, tp, asked + 1)
            self.tell("committed", asked + 1, error)
            self.kafka.elsewhere(error)
            if not error:
                history.told_offset(group, tp, asked + 1)
            elif error not in RETRIABLE:
                self.refused("commit", error)
        else:
            error, offset = await self.kafka.fetch_offset(group, tp)
            self.tell("offset", offset, error)
            self.kafka.elsewhere(error)
            if not error:
                history.holds_offset(group, tp, offset, floor)
        await self.between(0.2)
