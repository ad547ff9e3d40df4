"""A machine of a universe: its disk, and the broker that runs on it and comes back by itself."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from waterclock.broker.core import Core
from waterclock.broker.follower import Follower
from waterclock.broker.roles import Roles
from waterclock.broker.security.access import Access
from waterclock.broker.settings import Settings
from waterclock.simulation.clocks import Clock, Machine
from waterclock.simulation.disk import Disk
from waterclock.simulation.network import Socket
from waterclock.simulation.processes import Process
from waterclock.simulation.world import MS, NS, World

HOST, PORT = "127.0.0.1", 9092


class BrokerNode:
    def __init__(self, world: World, rng: Random, settings: Mapping[str, str]) -> None:
        self.name, self.disk = "broker", Disk("broker")
        self._world, self._rng, self._settings = world, rng, settings
        self._unheard: list[Socket] = []  # the other ends of what a power cut left silent
        self.process: Process | None = None
        self.up = False

    def start(self) -> None:
        if self.process is None:
            self.process = Process(self.name, self.disk)
            self.process.on_exit = lambda code: self.kill()
            self.process.main(self._serve(self.process))
            for sock in self._unheard:
                self._world.soon(sock.was_reset)
            self._unheard = []

    async def _serve(self, process: Process) -> None:
        roles = Roles(
            "/data/broker", HOST, PORT, Settings(self._settings), Access(), Clock(process), self._taken,
            None, Machine(process),
        )  # fmt: skip
        try:
            await roles.begin()
            await roles.run()
        except Exception as error:
            if not self.disk.full:
                raise
            self._world.log(self.name, "cannot run on a full disk", error)
            self.kill()

    def _taken(self, role: Core | Follower) -> None:
        self.up = True
        self._world.log(self.name, "is up")

    def place(self) -> str:
        """Of no interest."""
        return ""

    def kill(self) -> None:
        """Its process ends, and is started again after a while."""
        if self.process is not None:
            self.process.kill()
            self.process, self.up = None, False
            back = self._rng.choice((20 * MS, 300 * MS, 5 * NS))
            self._world.at(self._world.now + self._rng.randrange(10 * MS, 10 * MS + back), self.start)

    def cut_power(self) -> None:
        """As a kill, but nobody is told, and what was not flushed may be gone."""
        if self.process is not None:
            self._unheard += [sock.peer for sock in self.process.sockets.values() if isinstance(sock, Socket)]
            self.process.lose_power()
            self.kill()
