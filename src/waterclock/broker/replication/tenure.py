"""Who leads after a start; and the time in which a broker leads: it begins by deposing the leader of before, and lasts
while the follower follows.

    the folder remembers            it is started            then
    that it follows X               nothing, or X            follows X
    anything                        to follow Y              follows Y
    that it was promoted over X     nothing, or X            follows X if X leads in a later epoch; otherwise leads
    a follower at X                 nothing                  the same
    nothing                         nothing                  leads

Rule 1: it is deposed by a follower's fetch with the new epoch, which an old leader cannot misunderstand: leader.py.
Rule 2: a new leader lets clients in once the old one has heard of it, or refuses its connection, or OVER_S has passed: by
    then the old one's lease is over, and it asks before it serves: lease.py. So at every start of a promoted broker.
Rule 3: what a tenure sets going ends with it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from waterclock.broker.folder.identity import NODE
from waterclock.broker.replication.leader import JOURNAL_KEYS, NAMESPACE, KnownFollower, id_of
from waterclock.broker.replication.lease import OVER_S, FollowerWatch, LeaderLease, Question, Word
from waterclock.broker.replication.link import LastSentence, Link, LinkLost, NobodyListens
from waterclock.broker.security.link import OPEN, LinkAccess
from waterclock.broker.wire import client as asking
from waterclock.broker.wire.errors import Error

if TYPE_CHECKING:
    from waterclock.broker.folder.identity import Identity
    from waterclock.broker.store import Store

AGAIN_S: Final = 0.5
REFUSALS: Final = frozenset({Error.CLUSTER_AUTHORIZATION_FAILED})
log = logging.getLogger("waterclock.broker")


async def depose(address: str, node: int, name: str, epoch: int, access: LinkAccess = OPEN) -> None:
    """Try until the broker at `address` has heard of `epoch`; `node` and `name` are the new leader's."""
    says = LastSentence()
    while (failure := await _announce(address, node, name, epoch, access)) is not None:
        says.log(f"the old leader has not heard of epoch {epoch} yet: {failure}")
        await asyncio.sleep(AGAIN_S)


async def shut_out(address: str, node: int, name: str, epoch: int, access: LinkAccess) -> bool:
    """Until the broker at `address` serves nobody any more: Rule 2. Whether it has heard of `epoch`."""
    try:
        async with asyncio.timeout(OVER_S):
            while (failure := await _announce(address, node, name, epoch, access)) is not None:
                if isinstance(failure, NobodyListens):
                    return False
                await asyncio.sleep(AGAIN_S)
            return True
    except TimeoutError:
        return False


async def _announce(address: str, node: int, name: str, epoch: int, access: LinkAccess) -> LinkLost | None:
    """Announce it once; what was in the way, or None."""
    body = asking.fetch(node, 0, 1, [asking.PartitionFetch(JOURNAL_KEYS[1], 0, epoch, 0, -1)])
    link = Link(address, name, access)
    try:
        await link.connect()
        error, _ = await link.fetch(body)
        return LinkLost(f"{address} does not take this broker for its follower") if error in REFUSALS else None
    except LinkLost as lost:
        return lost
    finally:
        link.close()


async def whom_to_follow(kept: Mapping[str, Any], follow: str | None, access: LinkAccess = OPEN) -> str | None:
    """The address of the leader, of what the folder remembers and what the broker was started with; None: itself."""
    over = (kept.get("deposed") or {}).get("address")
    if follow is not None and follow != over:
        return follow
    if kept.get("follows") is not None:
        return str(kept["follows"])
    other = over or (kept.get("follower") or {}).get("address")
    if other is None:
        return None
    question = Question(str(other), int(kept.get("node", NODE)), None, access)
    said = await question.ask()
    question.close()
    return str(other) if said.word is Word.LEADS and said.epoch > int(kept.get("epoch", 0)) else None


class Tenure:
    """`deposed(address, epoch)` hears of a new leader; `access` is how the other broker is spoken to.

    `elapsed_ns` measures the lease: it goes on while the machine sleeps.
    """

    def __init__(
        self, loop: Any, identity: Identity, store: Store, access: LinkAccess, deposed: Callable[[str, int], None],
        elapsed_ns: Callable[[], int],
    ) -> None:  # fmt: skip
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
