"""The sinks of a simulated pipeline: the product's own, with a point between any two of a batch's numbered steps where the
process may die, stand still, or let the others go on.

    topic     on the simulated broker
    sqlite    a real file. That what was committed stays, and the rest is rolled back, is taken from SQLite as it is: who
              is killed loses its connection. Another one's lock is waited for in virtual time
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from waterclock.errors import EnvironmentMissing
from waterclock.simulation.world import MS, NS, US, world
from waterclock.sinks import SQLiteSink, TopicSink

RESULTS = "rule-results"
WAIT_S = 30  # as sqlite.py says, where time is real


def made(kind: str, path: Path, partitions: int, cuts: dict[int, str] | None = None) -> Any:
    """A sink for a run, and how its machine forgets it. `cuts` gets what each batch says it read."""
    if kind == "topic":
        return Stepped(TopicSink("simulated:9092", RESULTS, partitions=partitions), lambda: None, lambda: None, cuts)
    sink: Any = SQLiteSink(path)
    sink.db.db.execute("PRAGMA busy_timeout = 0")  # who holds the lock goes on in virtual time alone
    return Stepped(sink, lambda: _until_free(sink), sink.db.db.close, cuts)


def _until_free(sink: Any) -> None:
    """Wait for whoever writes to the file."""
    until, here = world().now + WAIT_S * NS, world()
    while True:
        try:
            sink.db.begin("", may_be_taken_over=True)
        except EnvironmentMissing:
            if here.now >= until:
                raise
            here.sleep(20 * MS)
        else:
            return sink.db.rollback()


class Stepped:
    """A sink of which each verb is a system call or two."""

    def __init__(
        self, sink: Any, until_free: Callable[[], None], die: Callable[[], None], cuts: dict[int, str] | None
    ) -> None:
        self._sink, self._until_free, self.die, self._cuts = sink, until_free, die, cuts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def open(self, results: Any) -> None:
        self._until_free()
        self._sink.open(results)

    def fence(self, epoch: Any) -> None:
        world().breathe("opened", 0.5, 10 * US, 20 * MS)
        self._until_free()
        self._sink.fence(epoch)
        world().breathe("fenced", 0.5, 10 * US, 20 * MS)

    def begin(self) -> None:
        world().breathe("taken", 0.5, 10 * US, 20 * MS)
        self._until_free()
        self._sink.begin()
        world().breathe("begun", 0.5, 10 * US, 20 * MS)

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        found = self._sink.is_applied(query_id, batch_id)
        world().breathe("looked", 0.5, 10 * US, 20 * MS)
        return bool(found)

    def write(self, batch: Any) -> Any:
        if self._cuts is not None:
            self._cuts[batch.batch_id] = batch.offsets
        written = self._sink.write(batch)
        world().breathe("written", 0.5, 10 * US, 20 * MS)
        return written

    def commit(self) -> None:
        self._sink.commit()
        world().breathe("committed", 0.5, 10 * US, 20 * MS)
