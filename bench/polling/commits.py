"""How often one database commits: a row, a commit, and again, from so many connections at a time.

Nothing else is done, so nobody who commits once a task can do more tasks a second with as many connections. Connections
are threads of one process: they wait for the database nearly all the time.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from waterclock.bench.polling.figures import percentile
from waterclock.bench.polling.tasks import connected

MAKE: Final = "drop table if exists bare; create table bare (number bigint)"
COMMIT: Final = "insert into bare values (%s)"


def measure(url: str, connections: int, seconds: float) -> dict[str, Any]:
    """Commits a second of all together, and the milliseconds of half of them."""
    with connected(url) as connection:
        connection.execute(MAKE)
    with ThreadPoolExecutor(connections) as threads:
        found = list(threads.map(lambda _: _commit(url, seconds), range(connections)))
    ms = [one_ms for of in found for one_ms in of]
    return {
        "connections": connections,
        "a_second": sum(len(of) * 1e3 / sum(of) for of in found),
        "p50_ms": percentile(ms, 0.5),
    }


def _commit(url: str, seconds: float) -> list[float]:
    """The milliseconds of each commit of one connection."""
    took_ms: list[float] = []
    with connected(url) as connection:
        began_s = last_s = time.monotonic()
        while last_s - began_s < seconds:
            connection.execute(COMMIT, [len(took_ms)], prepare=True)
            took_ms.append(((now_s := time.monotonic()) - last_s) * 1e3)
            last_s = now_s
    return took_ms
