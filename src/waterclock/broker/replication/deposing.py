"""Who leads after a start; and a new leader deposes the old one, as soon as that can be reached.

    the folder remembers            it is started            then
    that it follows X               nothing, or X            follows X
    anything                        to follow Y              follows Y
    that it was promoted over X     nothing, or X            follows X where X says that it leads; otherwise leads
    a follower at X                 nothing                  the same
    nothing                         nothing                  leads

Rule 1: it is deposed by a follower's fetch with the new epoch, which an old leader cannot misunderstand: leader.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from waterclock.broker.identity import NO_NODE, NODE
from waterclock.broker.replication.leader import JOURNAL_KEYS
from waterclock.broker.replication.link import Link, LinkLost
from waterclock.broker.wire import client as asking

AGAIN_S: Final = 0.5
PATIENCE_S: Final = 1.0
METADATA: Final = 3


async def depose(address: str, node: int, name: str, epoch: int) -> None:
    """Try until the broker at `address` has heard of `epoch`; `node` and `name` are the new leader's."""
    body = asking.fetch(node, 0, 1, [asking.PartitionFetch(JOURNAL_KEYS[1], 0, epoch, 0)])
    while True:
        link = Link(address, name)
        try:
            await link.connect()
            await link.fetch(body)
            return
        except LinkLost:
            await asyncio.sleep(AGAIN_S)
        finally:
            link.close()


async def whom_to_follow(kept: Mapping[str, Any], follow: str | None) -> str | None:
    """The address of the leader, of what the folder remembers and what the broker was started with; None: itself."""
    over = (kept.get("deposed") or {}).get("address")
    if follow is not None and follow != over:
        return follow
    if kept.get("follows") is not None:
        return str(kept["follows"])
    other = over or (kept.get("follower") or {}).get("address")
    node = int(kept.get("node", NODE))
    return str(other) if other is not None and await leads(other, node) else None


async def leads(address: str, node: int) -> bool:
    """Whether a broker is at `address`, and by its account another than broker `node` leads."""
    link = Link(address, "waterclock")
    try:
        async with asyncio.timeout(PATIENCE_S):
            await link.connect()
            said = await link.ask(METADATA, 1, topics=())
        return said.controller_id not in (NO_NODE, node)
    except (LinkLost, TimeoutError):
        return False
    finally:
        link.close()
