"""`Roles`: what a broker is in turn, a leader or a follower, in the loop that runs it.

Rule 1: what its folder remembers goes before what it was started with, and what the other broker says before both.
Rule 2: the next role listens on the port of the one before; a promoted follower hands its listener over.
Rule 3: everything here happens in the loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from waterclock.broker.core import Core
from waterclock.broker.follower import LEAD, STOP, Follower
from waterclock.broker.net.listener import Listener
from waterclock.broker.replication.tenure import whom_to_follow
from waterclock.broker.security.access import Access
from waterclock.broker.settings import Settings
from waterclock.broker.store import Store
from waterclock.clock import MachineClock, SystemClock, WallClock


@dataclass
class Roles:
    """A broker's data in `folder`, served on `host:port` (0: any free port). `follow`: HOST:PORT of the broker to copy.

    `clock` stamps and waits; `machine` measures what work takes and how long a lease holds, whoever turns `clock`.
    `taken` hears of each role once clients are let in.
    """

    folder: str
    host: str
    port: int
    settings: Settings
    access: Access
    clock: WallClock
    taken: Callable[[Core | Follower], object]
    follow: str | None = None
    machine: MachineClock = field(default_factory=SystemClock)
    present: Core | Follower | None = None  # the role that it has, or had when it ended
    stopping: bool = False
    power_is_cut: bool = False

    async def begin(self) -> None:
        """Take the first role, and let clients in."""
        kept = Store.kept_at(self.folder, "self")
        self.follow = await whom_to_follow(kept, self.follow, self.access.link)
        await self._take()

    async def run(self) -> None:
        """Change over until the end; then close, or lose what is not durable."""
        role = self._role()
        while (end := await role.over) != STOP and not self.stopping:
            listener = None
            if isinstance(role, Follower):
                listener = await role.hand_over()
            else:
                await role.close()
            self.follow = None if end == LEAD else end
            role = await self._take(listener)
        await (role.lose_power() if self.power_is_cut else role.close())

    def stop(self) -> None:
        """End as soon as may be: the present role may be over already, and the next one about to begin."""
        self.stopping = True
        role = self._role()
        if not role.over.done():
            role.over.set_result(STOP)

    def _role(self) -> Core | Follower:
        assert self.present is not None, "begin() comes first"
        return self.present

    async def _take(self, listener: Listener | None = None) -> Core | Follower:
        """Begin to lead or to follow; a leader with the listener of the follower that it was."""
        loop, address = asyncio.get_running_loop(), (self.host, self.port)
        own = Settings(self.settings.given)  # a client may change them while it runs
        role: Core | Follower
        if self.follow is not None:
            role = Follower(loop, self.folder, *address, own, self.follow, self.access, self.machine)
        else:
            role = Core(loop, self.folder, *address, own, self.clock, self.access, listener, self.machine)
        self.present, self.port = role, role.listener.port
        try:
            if isinstance(role, Core):
                await role.shut_out()
            role.open()
        except BaseException:
            await role.close()
            raise
        self.taken(role)
        return role
