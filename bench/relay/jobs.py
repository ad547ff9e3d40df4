"""procrastinate: jobs in a table of PostgreSQL, a worker of its own that asks for one at a time.

Rule 1: it is given what its documents advise, but for the time between two questions that found nothing: 50 ms for 5 s.
Rule 2: more than `MOST` would take all day; less is asked of it, and the table says how much.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from importlib.util import find_spec
from typing import Final

from waterclock.bench.relay.figures import Figures
from waterclock.bench.relay.keeper import Most, NotMeasured, resident_of
from waterclock.bench.relay.polled import Polled
from waterclock.bench.relay.taking import Taking, taking
from waterclock.bench.relay.ways import PAYLOAD, Came, moment, now_us
from waterclock.errors import WrongAnswer

MOST: Final = Most(pending=20_000, rate=200, burst=1_000)
QUEUE: Final = "bench"
CONCURRENCY: Final = 10
ASKS_S: Final = 0.05
WAITING: Final = "select count(*) from procrastinate_jobs where status = 'todo'"
OF_NUMBERS: Final = "select id from procrastinate_jobs where (args->>'number')::bigint between %s and %s"


class IntoJobs:
    """A batch of jobs for each call."""

    def __init__(self, address: str) -> None:
        import procrastinate

        self._app = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=address))
        self._app.open()
        self._task = self._app.task(name="had", queue=QUEUE)(_nothing)
        self._payload = PAYLOAD.decode()

    def put(self, numbers: Sequence[int], dues_ms: Sequence[int]) -> None:
        jobs = [
            self._task.configure(schedule_at=moment(due_ms)).job.evolve(
                task_kwargs={"number": number, "payload": self._payload}
            )
            for number, due_ms in zip(numbers, dues_ms, strict=True)
        ]
        self._app.job_manager.batch_defer_jobs(jobs=jobs)

    def flush(self) -> None:
        """Each batch was committed."""
        self._app.close()


def _nothing(number: int, payload: str) -> None:
    """Who puts jobs in does not do them."""


def from_jobs(address: str) -> Came:
    """A worker in a thread; what it is given, by and by."""
    given: deque[tuple[int, int, int]] = deque()
    under_way = threading.Event()
    work = threading.Thread(target=lambda: asyncio.run(_work(address, given, under_way)), daemon=True)
    work.start()
    under_way.wait()
    while True:
        time.sleep(0.005)
        yield [given.popleft() for _ in range(len(given))]


async def _work(address: str, given: deque[tuple[int, int, int]], under_way: threading.Event) -> None:
    import procrastinate

    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=address))

    @app.task(name="had", queue=QUEUE)  # type: ignore[misc]
    async def had(number: int, payload: str) -> None:
        given.append((number, now_us(), 0))

    async with app.open_async():
        under_way.set()
        await app.run_worker_async(
            queues=[QUEUE],
            concurrency=CONCURRENCY,
            fetch_job_polling_interval=ASKS_S,
            install_signal_handlers=False,
            delete_jobs="always",
        )


class Jobs:
    """A keeper: PostgreSQL as for the polled table, with procrastinate's tables."""

    way: Final = "jobs"
    most: Final = MOST

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> Jobs:
        if find_spec("procrastinate") is None:
            raise NotMeasured("needs procrastinate: pip install procrastinate")
        import procrastinate

        with ExitStack() as stack:
            self._table = stack.enter_context(Polled(self.name))
            self.address = self._table.address
            connector = procrastinate.SyncPsycopgConnector(conninfo=self.address)
            self._app = stack.enter_context(procrastinate.App(connector=connector).open())
            self._app.schema_manager.apply_schema()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def version(self) -> str:
        return self._table.version()

    def target(self) -> str:
        return "-"

    def catch_up_s(self, pending: int) -> float | None:
        self._table.ask("vacuum analyze procrastinate_jobs")
        return None

    def until_kept(self, pending: int) -> None:
        if (kept := self._table.ask(WAITING)[0][0]) < pending:
            raise WrongAnswer(f"{self.name} keeps {kept:,} messages of {pending:,}")

    def taking(self, target: str, count: int) -> AbstractContextManager[Taking]:
        return taking(self.way, self.address, target, count)

    def processes(self) -> dict[str, list[int]]:
        return self._table.processes()

    def resident_mb(self) -> float:
        return resident_of(self.processes()["server"])

    def bytes_on_disk(self) -> dict[str, int]:
        tables = ("procrastinate_jobs", "procrastinate_events")
        return {"files": sum(self._table.ask(f"select pg_total_relation_size('{name}')")[0][0] for name in tables)}

    def cancel(self, numbers: Sequence[int]) -> float:
        ids = [row[0] for row in self._table.ask(OF_NUMBERS, [numbers[0], numbers[-1]])]
        began_s = time.monotonic()
        if sum(self._app.job_manager.cancel_job_by_id(id, delete_job=True) for id in ids) != len(numbers):
            raise WrongAnswer("a job that was to be cancelled was not there")
        return time.monotonic() - began_s

    def crash(self) -> int:
        raise NotMeasured("what workers do when their database is away is the user's")

    def take_over(self, first: int, rate: int, seconds: float) -> Figures:
        raise NotMeasured("any worker takes any job")
