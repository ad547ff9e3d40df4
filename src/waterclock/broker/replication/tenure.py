"""The time in which a broker leads: it begins by deposing the leader of before, and lasts while the follower follows.

Rule 1: what it sets going ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from waterclock.broker.replication.deposing import depose, shut_out
from waterclock.broker.replication.leader import NAMESPACE, KnownFollower, id_of
from waterclock.broker.replication.lease import LeaderLease
from waterclock.broker.replication.question import FollowerWatch, Question
from waterclock.broker.security.link import LinkAccess
from waterclock.clock import elapsed_ns

if TYPE_CHECKING:
    from waterclock.broker.folder.identity import Identity
    from waterclock.broker.store import Store


class Tenure:
    """`deposed(address, epoch)` hears of a new leader; `access` is how the other broker is spoken to."""

    def __init__(
        self, loop: Any, identity: Identity, store: Store, access: LinkAccess, deposed: Callable[[str, int], None]
    ) -> None:
        self._loop = loop
        self._identity = identity
        self._store = store
        self._access = access
        self.lease = LeaderLease(elapsed_ns)
        self.watch = FollowerWatch(self.lease, store.load(NAMESPACE).get("epoch", 0), deposed)
        self._has_heard = False
        self._tasks: list[asyncio.Task[None]] = []

    def followed_by(self, address: str) -> None:
        """There is a follower at that address, which is asked from now on whether it still follows."""
        self.watch.follow(Question(address, self._identity.node, self._identity.cluster, self._access))

    async def shut_out(self, over: asyncio.Future[str]) -> None:
        """Before clients are let in: see that the leader of before answers nobody. Given up once `over` is done."""
        old = self._old_leader()
        if old is not None:
            asking = self._loop.create_task(shut_out(*old))
            await asyncio.wait([asking, over], return_when=asyncio.FIRST_COMPLETED)
            self._has_heard = asking.done() and asking.result()
            asking.cancel()

    def begin(self) -> None:
        """Clients are let in."""
        self._tasks.append(self._loop.create_task(self.watch.run()))
        old = self._old_leader()
        if old is not None and not self._has_heard:
            self._tasks.append(self._loop.create_task(depose(*old)))

    def _old_leader(self) -> tuple[str, int, str, int, LinkAccess] | None:
        """Whom it was promoted over, and what `depose` takes; None: nobody."""
        deposed = self._store.load(NAMESPACE).get("deposed")
        if deposed is None:
            return None
        us = KnownFollower(f"{self._identity.host}:{self._identity.port}", id_of(self._store))
        return deposed["address"], self._identity.node, us.name(), deposed["epoch"], self._access

    def close(self) -> None:
        """Ask and depose nobody any more."""
        for task in self._tasks:
            task.cancel()
        self.watch.close()
