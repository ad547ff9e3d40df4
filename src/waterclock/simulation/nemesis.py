"""The faults of a universe that runs a user's code: which ones, and what each does; when is the seed's choice."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Protocol

from waterclock.simulation.machine import Machine
from waterclock.simulation.network import Network
from waterclock.simulation.processes import Process
from waterclock.simulation.user_loop import UserLoop
from waterclock.simulation.world import MS, NS, US, World

FAULTS = ("kill", "freeze", "power_cut", "reset", "slow_disk", "full_disk", "slow_network")


class Victim(Protocol):
    """What can be killed, and comes back by itself: the broker's machine, or a process of the user's."""

    name: str
    process: Process | None

    def kill(self) -> None: ...


class Nemesis:
    """`victims` are asked for at each fault; `tell` hears what happened."""

    def __init__(
        self,
        world: World,
        network: Network,
        machine: Machine,
        victims: Callable[[], list[Victim]],
        faults: Iterable[str],
        tell: Callable[[str], object],
    ) -> None:
        self._world, self._network, self._machine, self._victims, self._tell = world, network, machine, victims, tell
        self._rng: Random = world.stream("faults")
        self._weights = {fault: self._rng.choice((1, 1, 3)) for fault in faults}
        self._calm_ns = self._rng.choice((600 * MS, 2 * NS, 5 * NS))
        self.quiet = True

    def begin(self) -> None:
        if self.quiet and self._weights:
            self.quiet = False
            self._later(0, self._calm_ns, self._strike)

    def end(self) -> None:
        """Everything works again, and goes on doing so."""
        self.quiet = True
        self._usual_disk(), self._usual_network()
        for victim in self._victims():
            if victim.process is not None:
                victim.process.frozen_until = min(victim.process.frozen_until, self._world.now + 1)

    def _later(self, least: int, most: int, deed: Callable[..., object], *args: object) -> None:
        self._world.at(self._world.now + self._rng.randrange(least, most), deed, *args)

    def _strike(self) -> None:
        if not self.quiet:
            fault = self._rng.choices(list(self._weights), list(self._weights.values()))[0]
            getattr(self, f"_{fault}")()
            self._later(100 * MS, self._calm_ns, self._strike)

    def _alive(self) -> tuple[Victim, Process] | None:
        alive = [(one, one.process) for one in self._victims() if one.process is not None]
        return self._rng.choice(alive) if alive else None

    def _kill(self) -> None:
        """Now, or some of its steps from now: so what it does in a burst is cut too."""
        if (found := self._alive()) is not None:
            victim, process = found
            deed = lambda: self._end_of(victim, process, victim.kill, "killed")  # noqa: E731
            if isinstance(process.loop, UserLoop) and self._rng.random() < 0.7:
                process.loop.when_steps, process.loop.deed = self._rng.randrange(1, 200), deed
            elif process.loop is not None and self._rng.random() < 0.5:
                process.doom, process.doomed = self._rng.randrange(1, 100), lambda where: deed()
            else:
                deed()

    def _power_cut(self) -> None:
        process = self._machine.process
        if process is not None:
            self._end_of(self._machine, process, self._machine.cut_power, "lost power")

    def _end_of(self, victim: Victim, process: Process, deed: Callable[[], object], how: str) -> None:
        if victim.process is process and not self.quiet:
            self._tell(f"{victim.name} {how}")
            deed()

    def _freeze(self) -> None:
        if (found := self._alive()) is not None:
            victim, process = found
            lasts = self._rng.choice((500 * MS, 5 * NS, 30 * NS))  # the last is longer than a group's session
            process.frozen_until = self._world.now + lasts
            self._tell(f"{victim.name} stood still for {lasts / NS:g} s")

    def _reset(self) -> None:
        pairs = list(self._network.pairs)
        if pairs:
            some = self._rng.sample(pairs, self._rng.randrange(1, len(pairs) + 1))
            self._tell(f"{len(some)} connections reset")
            for sock in some:
                self._network.reset(sock)

    def _slow_disk(self) -> None:
        self._tell("the disk became slow")
        self._world.fsync_ns = (20 * MS, 400 * MS)
        self._later(200 * MS, 5 * NS, self._usual_disk)

    def _full_disk(self) -> None:
        self._tell("the disk is full")
        self._machine.disk.full = True
        self._later(50 * MS, 4 * NS, self._usual_disk)

    def _usual_disk(self) -> None:
        self._world.fsync_ns, self._machine.disk.full = (200 * US, 4 * MS), False

    def _slow_network(self) -> None:
        self._tell("the network became slow")
        self._network.delay = (1 * MS, 300 * MS)
        self._later(200 * MS, 5 * NS, self._usual_network)

    def _usual_network(self) -> None:
        self._network.delay = (20 * US, 2 * MS)
