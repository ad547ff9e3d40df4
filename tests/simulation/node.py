"""A machine with a disk, and the broker on it: what `Broker` is with a thread of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.strike import Struck
from waterclock.broker.core import Core
from waterclock.broker.replication.link import CannotFollow
from waterclock.broker.roles import Roles
from waterclock.broker.security.access import Access
from waterclock.broker.settings import Settings
from waterclock.simulation import disk, install
from waterclock.simulation.processes import Process
from waterclock.simulation.world import MS, NS

if TYPE_CHECKING:
    from tests.simulation.universe import Universe

FOLDER = "/data/broker"


class Node:
    """`follow`: HOST:PORT of the broker that it follows at first."""

    def __init__(self, universe: Universe, name: str, port: int, follow: str | None = None) -> None:
        self.universe, self.world, self.name = universe, universe.world, name
        self.address, self.first_follow = ("127.0.0.1", port), follow
        self.rng = universe.plan.stream(f"node {name}")
        self.disk = disk.Disk(name)
        self.process: Any = None
        self.role: Any = None
        self.up = False
        self.skew_ms = 0
        self.explained_ns = 0  # until when a start may fail for its disk

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def leads(self) -> bool:
        return self.alive and self.up and isinstance(self.role, Core)

    def start(self) -> None:
        if self.alive:
            return
        process = self.process = Process(self.name, self.disk)
        process.skew_ms = self.skew_ms
        process.on_exit = lambda code: self._exits(process)
        process.main(self._serve(process))

    def start_in(self, least_ns: int, most_ns: int) -> None:
        self.world.at(self.world.now + self.rng.randrange(least_ns, most_ns), self.start)

    def goes_down(self) -> None:
        """It is dead, and comes back."""
        self.up = False
        self.start_in(10 * MS, 10 * MS + self.rng.choice(self.universe.comes_back))

    def have_peace(self) -> None:
        """All of its faults end, and it is started."""
        self.skew_ms, self.disk.full = 0, False
        self.flushes()
        self.disk.mend_reads()
        if (process := self.process) is not None:
            process.skew_ms = 0
            process.have_peace()
            self.start()

    def start_once_more(self, cut: bool) -> None:
        self.process.kill()
        self.up = False
        if cut:
            self.world.log(self.name, "last power cut", self.disk.cut_power())
        what = "last power cut" if cut else "last kill"
        self.universe.struck.append(Struck(0, self.world.now, what, self.name, ""))
        self.start()

    def may_fail(self, until_ns: int) -> None:
        """Its disk refuses until then at most: an end soon behind is explained."""
        self.explained_ns = max(self.explained_ns, until_ns + NS)

    def has_room(self) -> None:
        self.disk.full = False
        self.world.log(self.name, "room again")

    def flushes(self) -> None:
        self.disk.broken_flush = False

    def _exits(self, process: Process) -> None:
        """It ends itself after a flush that failed."""
        self.universe.count("exit")
        process.kill()
        self.up = False
        self.flushes()
        self.start_in(50 * MS, 2 * NS)

    async def _serve(self, process: Process) -> None:
        settings, clock, machine = Settings(self.universe.settings), install.Clock(process), install.Machine(process)
        roles = Roles(FOLDER, *self.address, settings, Access(), clock, self._taken, self.first_follow, machine)
        try:
            await roles.begin()
        except Exception as error:
            return self._refused(process, error)
        try:
            await roles.run()
        except Exception as error:
            return self._ended(process, error)
        self.up = False
        self.world.log(self.name, "closed")
        process.kill()
        return None

    def _taken(self, role: object) -> None:
        self.role, self.up = role, True
        self.world.log(self.name, "is up", type(role).__name__)

    def _refused(self, process: Process, error: Exception) -> None:
        process.kill()
        if self._may_fail:
            self.world.log(self.name, "start refused", error)
            self.world.at(self.world.now + NS, self.start)
        else:
            self.world.problem("start", f"{self.name}: {type(error).__name__}: {error}")
            self.world.stop = True

    def _ended(self, process: Process, error: Exception) -> None:
        process.kill()
        if isinstance(error, CannotFollow) and self.universe.plan.past_known:
            self.universe.count("could not follow: folder emptied")  # as an operator would, while the leader lives
            self.disk = disk.Disk(self.name)
        elif not self._may_fail:
            self.world.problem("ended", f"{self.name}: {type(error).__name__}: {error}")
        self.goes_down()

    @property
    def _may_fail(self) -> bool:
        """Whether its disk explains an end."""
        lately = self.world.now < self.explained_ns
        return bool(self.disk.full or self.disk.broken_flush or lately)
