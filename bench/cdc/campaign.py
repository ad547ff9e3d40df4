"""One binlog of MariaDB: `waterclock cdc` from there to acknowledged in our broker, and mysql-replication decoding it.

The shop of `waterclock demo cdc` writes to four of its tables before anything is measured: transactions of one row to 300,
each row a statement of its own, some rolled back. Each contender is a process of its own and reads the binlog from its
start; the server is beside it, and so is the broker, on the same cores.

Rule 1: what ours has written is read again, every version: nothing missing, twice, wrong, swapped or torn. Of the decoder
        the rows are counted.
Rule 2: contenders take turns, and each round has a topic of its own. Medians are shown.
Rule 3: seconds are those of the job, without the interpreter's start; CPU is that of the whole process.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from waterclock.bench.broker.process import cpu_s
from waterclock.bench.servers.ours import OurBroker
from waterclock.clock import SystemClock
from waterclock.errors import WaterclockError
from waterclock.examples.cdc.checker import Checker, check_topic
from waterclock.examples.cdc.servers import MariaDB, programs
from waterclock.examples.cdc.shop import DATABASE, Shop
from waterclock.examples.cdc.tables import tables

OURS, DECODER = "waterclock cdc, into the broker", "mysql-replication, decodes only"
TABLES = tables()[:4]
Report = Callable[[str], None]
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Course:
    """A binlog that is written, with who serves it; `first` is the number of the last transaction that made a table."""

    mariadb: MariaDB
    broker: OurBroker
    shop: Shop
    first: int


def measure(sizes: Sequence[int], rounds: int, report: Report) -> list[Figures]:
    """A record for each contender at each size; EnvironmentMissing where there is no MariaDB."""
    found = programs("the benchmark cdc", ["MariaDB"])
    return [record for changes in sizes for record in _measured(found, changes, rounds, report)]


def _measured(found: dict[str, str], changes: int, rounds: int, report: Report) -> list[Figures]:
    with _course(found, changes, report) as course:
        runs: dict[str, list[Figures]] = {OURS: [], DECODER: []}
        for number in range(1, rounds + 1):
            what = f"cdc, {changes:,} row changes, round {number} of {rounds}"
            report(f"{what}: {OURS}")
            runs[OURS].append(_ours(course, f"shop-{number}", partial(report, f"{what}: reading what was written")))
            report(f"{what}: {DECODER}")
            runs[DECODER].append(_decoder(course))
        return [{"contender": name, **_medians(some, changes)} for name, some in runs.items()]


@contextmanager
def _course(found: dict[str, str], changes: int, report: Report) -> Iterator[Course]:
    folder = Path(tempfile.mkdtemp(prefix="waterclock-bench-", dir="/tmp"))  # short: a socket's path has 107 characters
    folder.chmod(0o755)
    try:
        report("cdc: starting MariaDB and the broker")
        mariadb = MariaDB(folder / "mariadb", folder / "mariadb.log", found, SystemClock())
        broker = OurBroker(folder / "broker", {})
        try:
            mariadb.start()
            shop = Shop(mariadb.connection, 1, changes, TABLES)
            shop.make()
            first = int(mariadb.place().rpartition("-")[2])
            report(f"cdc: writing {changes:,} row changes to {len(TABLES)} tables")
            shop.write()
            yield Course(mariadb, broker, shop, first)
        finally:
            mariadb.process.stop()
            broker.kill()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ours(course: Course, topic: str, checking: Callable[[], object]) -> Figures:
    source = f"mysql://root@127.0.0.1:{course.mariadb.port}/{DATABASE}"
    to = f"kafka://{course.broker.bootstrap}/{topic}"
    before = cpu_s(course.broker.pid)
    reported = _reported(course, "waterclock.cli", "cdc", source, "--to", to, "--once", "--json")
    broker_cpu_s = cpu_s(course.broker.pid) - before
    checking()
    errors = check_topic(course.broker.bootstrap, topic, Checker(course.shop.history, course.first, TABLES))
    right = not errors.errors and errors.versions == reported["changes"] == course.shop.written
    return {**reported, "broker_cpu_s": broker_cpu_s, "right": right}


def _decoder(course: Course) -> Figures:
    reported = _reported(course, "waterclock.bench.cdc.decoding", str(course.mariadb.port))
    return {**reported, "broker_cpu_s": None, "right": reported["rows"] == _rows(course.shop)}


def _rows(shop: Shop) -> int:
    """A row that gets another key is one row in the binlog, and a delete and an insert for whoever looks at keys."""
    return sum(not (v.operation == "insert" and v.rev > 1) for versions in shop.history for v in versions)


def _reported(course: Course, module: str, *arguments: str) -> Figures:
    """What a contender printed, with the processor seconds of it and of the server meanwhile."""
    before = _children_s(), course.mariadb.process.cpu_s()
    command = [sys.executable, "-P", "-m", module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise WaterclockError(f"{module} failed: {(done.stderr.strip().splitlines() or ['nothing was said'])[-1]}")
    after = _children_s(), course.mariadb.process.cpu_s()
    reported: Figures = json.loads(done.stdout)
    return {**reported, "cpu_s": after[0] - before[0], "server_cpu_s": after[1] - before[1]}


def _children_s() -> float:
    """Seconds of processor of the processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _medians(runs: list[Figures], changes: int) -> Figures:
    """By million row changes, so that sizes can be compared."""

    def a_million(name: str) -> float | None:
        return None if runs[0][name] is None else median(run[name] for run in runs) / changes * 1e6

    return {
        "changes": changes,
        "changes_per_s": changes / median(run["seconds"] for run in runs),
        "cpu_s_per_million": a_million("cpu_s"),
        "broker_cpu_s_per_million": a_million("broker_cpu_s"),
        "server_cpu_s_per_million": a_million("server_cpu_s"),
        "right": all(run["right"] for run in runs),
    }
