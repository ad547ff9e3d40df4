"""A new leader tells the old one that its time is over, as soon as that can be reached.

Rule 1: it is told by a follower's fetch with the new epoch, which an old leader cannot misunderstand: leading.py.
"""

from __future__ import annotations

import asyncio
from typing import Final

from waterclock.broker.replication.journal import TOPIC
from waterclock.broker.replication.link import Link, LinkLost
from waterclock.broker.wire import asking

AGAIN_S: Final = 0.5
METADATA: Final = 3


async def depose(address: str, node: int, name: str, epoch: int) -> None:
    """Try until the broker at `address` has heard of `epoch`; `node` and `name` are the new leader's."""
    body = asking.fetch(node, 0, 1, 1, [asking.Copying(TOPIC, 0, epoch, 0)])
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


async def leads(address: str, node: int) -> bool:
    """Whether a broker is at `address` and says that `node` leads."""
    link = Link(address, "waterclock")
    try:
        await link.connect()
        said = await asyncio.wait_for(link.ask(METADATA, 1, topics=()), 1.0)
        return bool(said.controller_id == node)
    except (LinkLost, TimeoutError):
        return False
    finally:
        link.close()
