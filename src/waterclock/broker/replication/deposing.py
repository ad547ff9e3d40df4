"""Who leads after a start; and a new leader deposes the old one, as soon as that can be reached.

    the folder remembers            it is started            then
    that it follows X               nothing, or X            follows X
    anything                        to follow Y              follows Y
    that it was promoted over X     nothing, or X            follows X if X leads in a later epoch; otherwise leads
    a follower at X                 nothing                  the same
    nothing                         nothing                  leads

Rule 1: it is deposed by a follower's fetch with the new epoch, which an old leader cannot misunderstand: leader.py.
Rule 2: a new leader lets clients in once the old one has heard of it, or refuses its connection, or OVER_S has passed: by
    then the old one's lease is over, and it asks before it serves: lease.py. So at every start of a promoted broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from waterclock.broker.folder.identity import NODE
from waterclock.broker.replication.leader import JOURNAL_KEYS
from waterclock.broker.replication.lease import OVER_S
from waterclock.broker.replication.link import Link, LinkLost, NobodyListens
from waterclock.broker.replication.question import Question, Word
from waterclock.broker.security.link import OPEN, LinkAccess
from waterclock.broker.wire import client as asking
from waterclock.broker.wire.errors import Error

AGAIN_S: Final = 0.5
REFUSALS: Final = frozenset({Error.CLUSTER_AUTHORIZATION_FAILED})
log = logging.getLogger("waterclock.broker")


async def depose(address: str, node: int, name: str, epoch: int, access: LinkAccess = OPEN) -> None:
    """Try until the broker at `address` has heard of `epoch`; `node` and `name` are the new leader's."""
    logged = ""
    while (failure := await _tell(address, node, name, epoch, access)) is not None:
        if str(failure) != logged:
            logged = str(failure)
            log.warning("the old leader has not heard of epoch %d yet: %s", epoch, logged)
        await asyncio.sleep(AGAIN_S)


async def shut_out(address: str, node: int, name: str, epoch: int, access: LinkAccess) -> bool:
    """Until the broker at `address` serves nobody any more: Rule 2. Whether it has heard of `epoch`."""
    try:
        async with asyncio.timeout(OVER_S):
            while (failure := await _tell(address, node, name, epoch, access)) is not None:
                if isinstance(failure, NobodyListens):
                    return False
                await asyncio.sleep(AGAIN_S)
            return True
    except TimeoutError:
        return False


async def _tell(address: str, node: int, name: str, epoch: int, access: LinkAccess) -> LinkLost | None:
    """Tell it once; what was in the way, or None."""
    body = asking.fetch(node, 0, 1, [asking.PartitionFetch(JOURNAL_KEYS[1], 0, epoch, 0)])
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
