"""`waterclock broker promote`: ask a follower to lead, and see that it does.

1. Who leads, by its own account?
2. ElectLeaders, for the journal of the store: a follower answers once it is durable that it leads; a leader has nothing
   to elect.
3. Ask until it names another leader than in 1: then it serves.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, Final

from waterclock.broker.replication.journal import TOPIC
from waterclock.broker.replication.link import Link, LinkLost
from waterclock.broker.security.link import OPEN, LinkAccess
from waterclock.broker.wire import client as asking
from waterclock.broker.wire.errors import Error
from waterclock.errors import UsageError, WaterclockError, unstopped

ELECT, ELECT_VERSION = 43, 2
UNCLEAN: Final = 1  # a kind of election
PATIENCE: Final = timedelta(seconds=60)
AGAIN_S: Final = 0.02


def checked(address: str, option: str) -> str:
    """`address` if it is one; UsageError if it is no HOST:PORT.

    >>> checked("127.0.0.1:9093", "--at")
    '127.0.0.1:9093'
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UsageError(f"{option} takes HOST:PORT, got {address!r}")
    return address


def promote(address: str, unclean: bool, access: LinkAccess = OPEN) -> None:
    """Make the follower at `address` the leader; UsageError if it leads already, WaterclockError if it cannot."""
    asyncio.run(_promote(checked(address, "--at"), unclean, access))


async def _promote(address: str, unclean: bool, access: LinkAccess) -> None:
    link = Link(address, "waterclock", access)
    try:
        await link.connect()
        _, before = await link.leader()  # 1
        requested = asking.part(ELECT, ELECT_VERSION, "TopicPartitions", topic=TOPIC, partitions=(0,))
        kind = UNCLEAN if unclean else 0
        answer: Any = await link.ask(  # 2
            ELECT, ELECT_VERSION, election_type=kind, topic_partitions=(requested,), timeout=PATIENCE
        )
        rows = [row for result in answer.replica_election_results for row in result.partition_result]
        _judge(address, Error(rows[0].error_code.value if rows else answer.error_code.value))
    except LinkLost as lost:
        raise WaterclockError(f"{unstopped(lost)}. Is the follower running there?") from lost
    finally:
        link.close()
    async with asyncio.timeout(PATIENCE.total_seconds()):
        while await _not_yet(address, before, access):  # 3
            await asyncio.sleep(AGAIN_S)


def _judge(address: str, error: Error) -> None:
    if error in (Error.ELECTION_NOT_NEEDED, Error.UNKNOWN_TOPIC_OR_PARTITION):
        raise UsageError(f"the broker at {address} is the leader already: give the follower's address with --at")
    if error == Error.ELIGIBLE_LEADERS_NOT_AVAILABLE:
        raise WaterclockError(
            f"the follower at {address} has copied nothing yet: let it reach its leader first, or say --unclean to lose "
            f"what only the old leader has"
        )
    if error:
        raise WaterclockError(f"the follower at {address} cannot lead: {error.name}")


async def _not_yet(address: str, before: int, access: LinkAccess) -> bool:
    """Whether the broker at `address` names the leader of before still, or cannot be asked just now."""
    link = Link(address, "waterclock", access)
    try:
        await link.connect()
        return (await link.leader())[1] == before
    except LinkLost:
        return True
    finally:
        link.close()
