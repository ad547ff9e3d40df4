"""`waterclock cdc` from a database's log to acknowledged in our broker; beside it Debezium embedded, which has no sink, and
for MariaDB mysql-replication, which decodes rows and no more.

The shop of `waterclock demo cdc` writes to four of its tables before anything is measured: transactions of one row to 300,
each row a statement of its own, some rolled back. Each contender is a process of its own and reads the binlog from its
start; the server is beside it, and so is the broker, on the same cores.

Rule 1: what ours has written is read again, every version: nothing missing, twice, wrong, swapped or torn. Of the decoder
        the rows are counted.
Rule 2: contenders take turns, and each round has a topic of its own. Of a contender's rounds the one that took the least
        CPU is shown: on a machine with neighbours the others had more of them.
Rule 3: seconds are those of the job, without the interpreter's start; CPU is that of the whole process, of Debezium without
        the start of its JVM, up to its first change.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from waterclock.bench.broker.process import cpu_s
from waterclock.bench.cdc import older, slots
from waterclock.bench.cdc.debezium import MARK, NAME, Debezium, Engine, debezium
from waterclock.bench.cdc.ended import attempted, ended
from waterclock.bench.kafka.harness import NotMeasured
from waterclock.bench.servers.ours import OurBroker
from waterclock.clock import SystemClock
from waterclock.errors import EnvironmentMissing
from waterclock.examples.cdc.checker import Checker, check_topic
from waterclock.examples.cdc.servers import MariaDB, programs
from waterclock.examples.cdc.shop import DATABASE, Shop
from waterclock.examples.cdc.tables import tables
from waterclock.wording import counted

OURS, DECODER = slots.OURS, "mysql-replication, decodes only"
# without UUID, which MySQL has not, so that Debezium's connector of MySQL cannot read the statement that makes the table
TABLES = [replace(each, columns=tuple(c for c in each.columns if c.sql != "uuid")) for each in tables()[:4]]
# Debezium's connector of MySQL asks a server that calls itself 10 for what MySQL 10 would have
_VERSION = "--version=5.7.19-MariaDB"
_IN_EARNEST = 100_000  # from so many row changes on the transaction of a million is measured too
Report = Callable[[str], None]
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Course:
    """A binlog that is written, with who serves it; `first` is the number of the last transaction that made a table."""

    mariadb: MariaDB
    broker: OurBroker
    shop: Shop
    first: int
    engines: list[Engine]


def measure(sizes: Sequence[int], rounds: int, report: Report) -> list[Figures]:
    """A record for each contender at each size; EnvironmentMissing where there is no MariaDB."""
    found = programs("the benchmark cdc", ["MariaDB"])
    with ExitStack() as opened:
        engine = None
        try:
            engine = opened.enter_context(debezium())
        except NotMeasured as why:
            report(f"Debezium is not measured: {why}")
        mariadb = [record for size in sizes for record in _measured(found, size, rounds, engine, report)]
        more = [slots.MILLION_AT_ONCE] if max(sizes) >= _IN_EARNEST else []
        slots_of = [record for size in (*sizes, *more) for record in _slots(size, rounds, engine, report)]
        if more:
            mariadb += _at_once(found, rounds, engine, report)
        return mariadb + slots_of + _older(found, (max(sizes), rounds), engine, report)


def _older(found: dict[str, str], sizes: tuple[int, int], engine: Debezium | None, report: Report) -> list[Figures]:
    """Snapshots, of both databases."""
    with _folder() as folder:
        server = MariaDB(folder / "mariadb", folder / "mariadb.log", found, SystemClock(), [_VERSION])
        records = _records("MariaDB, snapshot", sizes[0], older.mariadb(folder, server, sizes, engine, report))
    try:
        with _folder() as folder:
            runs = older.postgres(folder, programs("the benchmark cdc", ["PostgreSQL"]), sizes, engine, report)
    except EnvironmentMissing as why:
        report(f"PostgreSQL's snapshot is not measured: {why}")
        return records
    return records + _records("PostgreSQL, snapshot", sizes[0], runs)


def _at_once(found: dict[str, str], rounds: int, engine: Debezium | None, report: Report) -> list[Figures]:
    """MariaDB's transaction of a million rows, which one statement writes."""
    with _folder() as folder:
        server = MariaDB(folder / "mariadb", folder / "mariadb.log", found, SystemClock(), [_VERSION])
        broker = OurBroker(folder / "broker", {})
        try:
            server.start()
            with server.connection() as connection, connection.cursor() as cursor:
                for statement in older.MARIADB[:-1]:
                    cursor.execute(statement)
                engines = [_placed(server, engine, number) for number in range(rounds)] if engine is not None else []
                report(f"cdc: writing {slots.MILLION:,} rows in one transaction")
                cursor.execute(older.MARIADB[-1].format(rows=slots.MILLION))
            runs: list[Figures] = []
            for number in range(rounds):
                report(f"cdc, MariaDB, one transaction, round {number + 1} of {rounds}")
                where = [f"mysql://root@127.0.0.1:{server.port}/old", "--once", "--json"]
                to = ["--to", f"kafka://{broker.bootstrap}/old-{number}"]
                before = cpu_s(broker.pid)
                command = [sys.executable, "-P", "-m", "waterclock.cli", "cdc", *where, *to]
                told = attempted(OURS, slots.MILLION, partial(ended, OURS, command))
                runs.append({**told, "broker_cpu_s": cpu_s(broker.pid) - before})
                until = [partial(each.until, slots.MILLION, "old") for each in engines[number:][:1]]
                runs += [attempted(NAME, slots.MILLION, each) for each in until]
        finally:
            server.process.stop()
            broker.kill()
    return _records("MariaDB, one transaction", slots.MILLION, runs)


def _slots(changes: int, rounds: int, engine: Debezium | None, report: Report) -> list[Figures]:
    """PostgreSQL's; none where there is none."""
    try:
        found = programs("the benchmark cdc", ["PostgreSQL"])
        with _folder() as folder:
            runs = slots.measure(folder, found, (changes, rounds), engine, report)
    except EnvironmentMissing as why:
        report(f"PostgreSQL's log is not measured: {why}")
        return []
    what = "PostgreSQL, one transaction" if changes == slots.MILLION_AT_ONCE else "PostgreSQL"
    return _records(what, changes or slots.MILLION, runs)


def _measured(
    found: dict[str, str], changes: int, rounds: int, engine: Debezium | None, report: Report
) -> list[Figures]:
    with _folder() as folder, _course(folder, found, (changes, rounds), engine, report) as course:
        runs: list[Figures] = []
        for number in range(1, rounds + 1):
            what = f"cdc, {changes:,} row changes, round {number} of {rounds}"
            report(f"{what}: {OURS}")
            checking = partial(report, f"{what}: reading what was written")
            runs.append(attempted(OURS, course.shop.written, partial(_ours, course, f"shop-{number}", checking)))
            report(f"{what}: {DECODER}")
            runs.append(attempted(DECODER, _rows(course.shop), partial(_decoder, course)))
            for each in course.engines[number - 1 : number]:
                report(f"{what}: {NAME}")
                before = course.mariadb.process.cpu_s()
                told = attempted(NAME, course.shop.written, partial(each.until, course.shop.written, DATABASE))
                runs.append({**told, "server_cpu_s": course.mariadb.process.cpu_s() - before})
        return _records("MariaDB", changes, runs)


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="waterclock-bench-", dir="/tmp"))  # short: a socket's path has 107 characters
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _course(
    folder: Path, found: dict[str, str], sizes: tuple[int, int], engine: Debezium | None, report: Report
) -> Iterator[Course]:
    report("cdc: starting MariaDB and the broker")
    changes, rounds = sizes
    mariadb = MariaDB(folder / "mariadb", folder / "mariadb.log", found, SystemClock(), [_VERSION])
    broker = OurBroker(folder / "broker", {})
    try:
        mariadb.start()
        shop = Shop(mariadb.connection, 1, changes, TABLES)
        shop.make()
        engines = [_placed(mariadb, engine, number) for number in range(rounds)] if engine is not None else []
        first = int(mariadb.place().rpartition("-")[2])
        report(f"cdc: writing {changes:,} row changes to {len(TABLES)} tables")
        shop.write()
        yield Course(mariadb, broker, shop, first, engines)
    finally:
        mariadb.process.stop()
        broker.kill()


def _placed(mariadb: MariaDB, engine: Debezium, number: int) -> Engine:
    """Debezium, which stands at the end of the binlog."""
    with mariadb.connection() as connection, connection.cursor() as cursor:
        cursor.execute(f"create database if not exists {MARK}")
        cursor.execute(f"create table if not exists {MARK}.place (id int auto_increment primary key)")
        made = engine.engine("mysql", f"mysql-{number}", {"database.port": str(mariadb.port)})
        return made.placed(lambda: cursor.execute(f"insert into {MARK}.place values ()"))


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
    return {**reported, "changes": reported["rows"]}


def _rows(shop: Shop) -> int:
    """A row that gets another key is one row in the binlog, and a delete and an insert for whoever looks at keys."""
    return sum(not (v.operation == "insert" and v.rev > 1) for versions in shop.history for v in versions)


def _reported(course: Course, module: str, *arguments: str) -> Figures:
    """What a contender told, with what it took, and the server meanwhile."""
    before = course.mariadb.process.cpu_s()
    figures = ended(module, [sys.executable, "-P", "-m", module, *arguments])
    return {**figures, "server_cpu_s": course.mariadb.process.cpu_s() - before}


def _records(database: str, changes: int, runs: list[Figures]) -> list[Figures]:
    """The best round of each contender (rule 2), by million row changes, so that sizes can be compared; of one that failed
    in a round its error."""
    found = []
    for name in dict.fromkeys(run["contender"] for run in runs):
        own = [run for run in runs if run["contender"] == name]
        if errors := [run["error"] for run in own if "error" in run]:
            why = f"{len(errors)} of {counted(len(own), 'round')} failed: {errors[0]}"
            found.append({"contender": name, "database": database, "changes": changes, "error": why, "right": False})
            continue
        best = min(own, key=lambda run: float(run["cpu_s"]) - float(run.get("start_cpu_s", 0)))
        used = best["cpu_s"] - best.get("start_cpu_s", 0)
        figures = {"cpu_s": used, **{each: best.get(each) for each in ("broker_cpu_s", "server_cpu_s")}}
        found.append(
            {
                "contender": name,
                "database": database,
                "changes": changes,
                "changes_per_s": changes / best["seconds"],
                "changes_per_cpu_s": changes / used,
                **{f"{each}_per_million": s if s is None else s / changes * 1e6 for each, s in figures.items()},
                "start_cpu_s": best.get("start_cpu_s"),
                "peak_mb": best["peak_mb"],
                "right": all(run["right"] for run in own),
            }
        )
    return found
