"""ACLs that are made and taken back: what was acknowledged holds, for whoever asks from then on."""

from __future__ import annotations

from typing import Any

from tests.simulation.clients.actor import Actor
from tests.simulation.clients.reading import sure
from tests.simulation.kafka import Kafka
from tests.simulation.kafka import codes as k
from tests.simulation.kafka.batches import batch
from tests.simulation.kafka.client import Place
from waterclock.simulation.world import world

WHO = "User:ANONYMOUS"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
MISSING = 54  # SECURITY_DISABLED: this broker has no authorizer


class Rights:
    """Whether writing to a topic is forbidden, as far as that is known. No such topic is there: rights come first."""

    def __init__(self) -> None:
        self.denied: dict[str, bool] = {}


class Guard(Actor):
    """Forbids and allows, and looks whether that holds. Where an outcome is not known it goes on with another name."""

    def begin(self) -> None:
        self.rights, self.number = self.history.part(Rights), 0
        self.other = Kafka(self.process, self.universe.network, self.universe.where)

    async def work(self) -> None:
        name = f"guarded-{self.name}-{self.number}"
        denied = self.rights.denied.pop(name, False)
        if self.rng.random() < 0.5:
            self.number += 1  # unless it is known soon
            error = await (self.kafka.allow if denied else self.kafka.deny)(name, WHO)
            self.history.ops += 1
            self.tell("allow" if denied else "deny", name, error)
            if error:
                if error not in (*k.RETRIABLE, MISSING):
                    self.refused("a change of ACLs", error)
                return await self.go_elsewhere("acl", error)
            self.number, denied = self.number - 1, not denied
        self.rights.denied[name] = denied
        for kafka in (self.kafka, self.other):
            judge(name, denied, await produced(kafka, (name, 0)), self.world.problem)
        await self.between(0.3)
        return None

    async def run(self) -> None:
        await super().run()
        self.other.close()


async def produced(kafka: Kafka, tp: Place) -> int:
    error, _ = await kafka.produce(tp, batch([(b"", b"0.")], world().wall_ms()))
    kafka.elsewhere(error)
    return error


def judge(name: str, denied: bool, error: int, problem: Any) -> None:
    """`error` answered a write."""
    if denied and error not in (k.DENIED, *k.RETRIABLE - {k.UNKNOWN_TOPIC}):
        problem("right back", f"writing to {name} is forbidden, and was answered {error}")
    if not denied and error == k.DENIED:
        problem("right lost", f"writing to {name} is allowed, and was refused")


async def begin(universe: Any) -> None:
    universe.spawn(Guard, "guard-a")
    universe.spawn(Guard, "guard-b")


async def verify(universe: Any, kafka: Kafka) -> None:
    for name, denied in universe.history.part(Rights).denied.items():
        final = (k.UNKNOWN_TOPIC, *k.FINAL)
        error = await sure(universe, kafka, "write", lambda name=name: produced(kafka, (name, 0)), final)
        judge(name, denied, error, universe.world.problem)
