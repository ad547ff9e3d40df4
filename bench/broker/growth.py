"""What more of everything costs the others: p99 of a produce while connections, partitions and long polls grow.

    connections    so many, together RATE requests a second, on one partition
    partitions     so many in one topic, each with a connection of its own, together RATE requests a second
    long polls     so many wait on the partition, each answered at each produce; SLOW requests a second from one connection

Rule 1: the load stays the same, only the number grows: a cost that grows is one of numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from waterclock.bench.broker import workloads
from waterclock.bench.broker.asked import Figures, asked, polling
from waterclock.bench.servers.server import Server
from waterclock.errors import WrongAnswer

RATE: Final = 1_000
SLOW: Final = 50
MOST_POLLS: Final = 100  # more of them at SLOW are a load of their own


def measure(server: Server, sizes: Sequence[int], seconds: float) -> dict[str, Figures]:
    """`<kind>: <size>` -> figures."""
    found = {}
    for kind, ask in KINDS.items():
        for size in sizes:
            if kind != "long polls" or size <= MOST_POLLS:
                found[f"{kind}: {size:,}"] = ask(server, size, seconds)
    return found


def _connections(server: Server, size: int, seconds: float) -> Figures:
    topic = f"connections-{size}"
    workloads.create(server.bootstrap, topic)
    return asked(server, "closed_loop", topic, 1, size, seconds, RATE / size)


def _partitions(server: Server, size: int, seconds: float) -> Figures:
    topic = f"partitions-{size}"
    workloads.create(server.bootstrap, topic, size)
    return asked(server, "closed_loop", topic, size, size, seconds, RATE / size)


def _long_polls(server: Server, size: int, seconds: float) -> Figures:
    topic = f"polls-{size}"
    workloads.create(server.bootstrap, topic)
    try:
        with polling(server, topic, size):
            return asked(server, "closed_loop", topic, 1, 1, seconds, SLOW)
    except WrongAnswer as error:
        return {"error": str(error)}


KINDS: Final[dict[str, Callable[[Server, int, float], Figures]]] = {
    "connections": _connections,
    "partitions": _partitions,
    "long polls": _long_polls,
}
