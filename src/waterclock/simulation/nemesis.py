"""The faults of a universe that runs a user's code: when, which and where is the seed's choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from waterclock.simulation.broker_node import BrokerNode
from waterclock.simulation.network import USUAL_DELAY_NS
from waterclock.simulation.processes import Process
from waterclock.simulation.user_loop import UserLoop
from waterclock.simulation.world import MS, NS, USUAL_FLUSH_NS, World

FAULTS = ("kill", "freeze", "power_cut", "reset", "slow_disk", "full_disk", "slow_network")


def _now(deed: Callable[[], object], where: str) -> None:
    deed()


class Victim(Protocol):
    """What can be killed, and comes back by itself: the broker's machine, or a process of the user's."""

    name: str
    process: Process | None

    def kill(self) -> None: ...

    def place(self) -> str: ...


class Nemesis:
    """`victims` are asked for at each fault, the broker's machine is the first; `tell` hears what happened."""

    def __init__(
        self, world: World, victims: Callable[[], list[Victim]], machine: BrokerNode, faults: Iterable[str],
        tell: Callable[[str], object],
    ) -> None:  # fmt: skip
        self._world, self._victims, self._machine, self._tell = world, victims, machine, tell
        self._rng = world.stream("faults")
        self._weights = {fault: self._rng.choice((1, 1, 3)) for fault in faults}
        self._calm_ns = self._rng.choice((600 * MS, 2 * NS, 5 * NS))
        self._quiet = True

    def begin(self) -> None:
        if self._quiet and self._weights:
            self._quiet = False
            self._later(0, self._calm_ns, self._strike)

    def end(self) -> None:
        """Everything works again, and goes on doing so."""
        self._quiet = True
        self._usual()
        for victim in self._victims():
            if victim.process is not None:
                victim.process.have_peace()

    def _later(self, least: int, most: int, deed: Callable[[], object]) -> None:
        self._world.at(self._world.now + self._rng.randrange(least, most), deed)

    def _strike(self) -> None:
        if not self._quiet:
            fault = self._rng.choices(list(self._weights), list(self._weights.values()))[0]
            alive = [victim for victim in self._victims() if victim.process is not None]
            getattr(self, f"_{fault}")(alive)
            self._later(100 * MS, self._calm_ns, self._strike)

    def _kill(self, alive: list[Victim]) -> None:
        """Now, or in the midst of what it does: some of its callbacks or system calls from now."""
        for victim in self._rng.sample(alive, min(1, len(alive))):
            process, steps = victim.process, self._rng.randrange(1, 200)
            deed = partial(self._end_of, victim, process, victim.kill, "was killed")
            if process is None or self._rng.random() < 0.3:
                deed()
            elif isinstance(process.loop, UserLoop):
                process.loop.steps, process.loop.deed = steps, deed
            else:
                process.doom, process.doomed = steps, partial(_now, deed)

    def _end_of(self, victim: Victim, process: Process | None, deed: Callable[[], object], how: str) -> None:
        if victim.process is process is not None and not self._quiet:
            self._tell(f"{victim.name} {how}{victim.place()}")
            deed()

    def _power_cut(self, alive: list[Victim]) -> None:
        self._end_of(self._machine, self._machine.process, self._machine.cut_power, "lost power")

    def _freeze(self, alive: list[Victim]) -> None:
        for victim in self._rng.sample(alive, min(1, len(alive))):
            lasts = self._rng.choice((500 * MS, 5 * NS, 30 * NS))  # the last is longer than a group's session
            if victim.process is not None:
                self._tell(f"{victim.name} stands still for {lasts / NS:g} s")
                victim.process.frozen_until = self._world.now + lasts

    def _reset(self, alive: list[Victim]) -> None:
        pairs = list(self._world.network.pairs)
        some = self._rng.sample(pairs, self._rng.randrange(1, len(pairs) + 1)) if pairs else []
        if some:
            self._tell(f"connections reset: {len(some)}")
        for sock in some:
            self._world.network.reset(sock)

    def _slow_disk(self, alive: list[Victim]) -> None:
        self._tell("the disk is slow")
        self._world.fsync_ns = (20 * MS, 400 * MS)
        self._later(200 * MS, 5 * NS, self._usual)

    def _full_disk(self, alive: list[Victim]) -> None:
        self._tell("the disk is full")
        self._machine.disk.full = True
        self._later(50 * MS, 4 * NS, self._usual)

    def _slow_network(self, alive: list[Victim]) -> None:
        self._tell("the network is slow")
        self._world.network.delay = (1 * MS, 300 * MS)
        self._later(200 * MS, 5 * NS, self._usual)

    def _usual(self) -> None:
        """The disk has room, and both it and the network are as quick as ever."""
        self._world.fsync_ns, self._machine.disk.full = USUAL_FLUSH_NS, False
        self._world.network.delay = USUAL_DELAY_NS
