"""A table of PostgreSQL that a worker polls: the strongest way of bench/polling, every 10 ms.

Rule 1: what the workers do on a crash of the database is the user's: none is measured.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np

from waterclock.bench.relay.figures import Figures
from waterclock.bench.relay.keeper import NotMeasured, resident_of
from waterclock.bench.relay.taking import Taking
from waterclock.errors import EnvironmentMissing, WrongAnswer

BATCH: Final = 500
EVERY_MS: Final = 10
WORKERS: Final = 1
PATIENCE_S: Final = 120.0
CANCEL: Final = "delete from task where id = any(%s) and not done returning id"


class Polled:
    """A keeper: a PostgreSQL server. Whoever takes are workers, so their rest is part of what idling costs."""

    way: Final = "table"
    most: Final = None

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Polled:
        from waterclock.bench.polling import tasks
        from waterclock.bench.servers.postgres import running_server

        with ExitStack() as stack:
            try:
                self._server = stack.enter_context(running_server(tasks.SERVER))
            except EnvironmentMissing as why:
                raise NotMeasured(str(why)) from None
            self.address = self._server.url()
            self._connection: Any = stack.enter_context(tasks.connected(self.address))
            tasks.make(self._connection, 0)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, query: str, of: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Of the database, beside what is measured."""
        done = self._connection.execute(query, of)
        return list(done.fetchall()) if done.description else []

    def version(self) -> str:
        return f"PostgreSQL {self.ask('show server_version')[0][0]}"

    def target(self) -> str:
        return "-"

    def catch_up_s(self, pending: int) -> float | None:
        self._connection.execute("vacuum analyze task")
        return None

    def until_kept(self, pending: int) -> None:
        from waterclock.bench.polling import tasks

        if (kept := tasks.waiting(self._connection)) < pending:
            raise WrongAnswer(f"{self.name} keeps {kept:,} messages of {pending:,}")

    def taking(self, target: str, count: int) -> AbstractContextManager[Taking]:
        return self._workers(count)

    @contextmanager
    def _workers(self, count: int) -> Iterator[Any]:
        from waterclock.bench.polling.poller import SKIP_LOCKED
        from waterclock.bench.polling.workers import Team, Workers

        workers = Workers()
        try:
            workers.start(self.address, Team(SKIP_LOCKED, EVERY_MS, WORKERS, BATCH))
            yield Polling(workers, count)
        finally:
            workers.kill()

    def processes(self) -> dict[str, list[int]]:
        pid = int((self._server.folder / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return {"server": [pid, *map(int, children)]}

    def resident_mb(self) -> float:
        return resident_of(self.processes()["server"])

    def bytes_on_disk(self) -> dict[str, int]:
        (row,) = self._connection.execute("select pg_total_relation_size('task')").fetchall()
        return {"files": row[0]}

    def cancel(self, numbers: Sequence[int]) -> float:
        began_s = time.monotonic()
        for first in range(0, len(numbers), BATCH):
            some = list(numbers[first : first + BATCH])
            if len(self._connection.execute(CANCEL, [some]).fetchall()) != len(some):
                raise WrongAnswer("a message that was to be cancelled was not there")
        return time.monotonic() - began_s

    def crash(self) -> int:
        raise NotMeasured("what workers do when their database is away is the user's")

    def take_over(self, first: int, rate: int, seconds: float) -> Figures:
        raise NotMeasured("any worker takes any row")


class Polling:
    """Workers, with the verbs of `Taking`."""

    def __init__(self, workers: Any, count: int) -> None:
        self._workers, self._count = workers, count

    def cpu_s(self) -> float:
        return float(self._workers.counters()["cpu_ns"]) / 1e9

    def had(self) -> Any:
        until_s = time.monotonic() + PATIENCE_S
        while self._workers.counters()["won"] < self._count and time.monotonic() < until_s:
            time.sleep(0.02)
        self._workers.end()
        return np.array([(number, at_us, 0) for number, at_us in self._workers.given], "i8").reshape(-1, 3)
