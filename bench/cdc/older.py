"""The snapshot of a table into our broker, and Debezium's (`initial_only`), which has no sink.

Rule 1: the rows are made by the server; nothing is written while they are read.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from waterclock.bench.broker.process import cpu_s
from waterclock.bench.cdc import slots
from waterclock.bench.cdc.debezium import NAME, Debezium
from waterclock.bench.cdc.ended import attempted, ended
from waterclock.bench.servers.ours import OurBroker
from waterclock.examples.cdc.servers import MariaDB

_COLUMNS = (
    "name varchar(100), price numeric(12,2), quantity int, ratio double{0}, made {1}(6), active boolean, "
    "state varchar(20)"
)
MARIADB = (
    "create database old",
    "use old",
    f"create table item (id bigint primary key, {_COLUMNS.format('', 'datetime')})",
    "insert into item select seq, concat('item number ', seq), seq * 1.25, seq, seq / 7.0, "
    "timestamp'2026-01-01 00:00:00' + interval seq second, seq % 2, 'new' from seq_1_to_{rows}",
)
_POSTGRES = (
    f"create table item (id bigint primary key, {_COLUMNS.format(' precision', 'timestamp')})",
    "create publication bench for all tables",
)
_MODE = {"snapshot.mode": "initial_only", "snapshot.locking.mode": "none"}
Figures = dict[str, Any]
Report = Callable[[str], None]


def mariadb(
    folder: Path, server: MariaDB, sizes: tuple[int, int], engine: Debezium | None, report: Report
) -> list[Figures]:
    """Both contenders' runs over `sizes`, rows and rounds."""
    broker = OurBroker(folder / "broker", {})
    try:
        server.start()
        with server.connection() as connection, connection.cursor() as cursor:
            for statement in MARIADB:
                cursor.execute(statement.format(rows=sizes[0]))
        given = [f"mysql://root@127.0.0.1:{server.port}/old", "--from", "now", "--snapshot", "initial"]
        place = {"database.port": str(server.port), "database.include.list": "old"}
        return _rounds("mysql", "old", (given, place), broker, sizes, engine, report)
    finally:
        server.process.stop()
        broker.kill()


def postgres(
    folder: Path, found: dict[str, str], sizes: tuple[int, int], engine: Debezium | None, report: Report
) -> list[Figures]:
    """The same of PostgreSQL."""
    broker, server = OurBroker(folder / "broker", {}), slots.Slots(folder, found)
    try:
        server.start(slots.DATABASE)
        for statement in _POSTGRES:
            server.ask(slots.DATABASE, statement)
        server.ask(slots.DATABASE, "insert into item " + slots.ROWS.format(first=1, last=sizes[0]))
        given = [f"postgres://postgres@127.0.0.1:{server.port}/{slots.DATABASE}", "--publication", "bench"]
        place = {"database.port": str(server.port), "database.dbname": slots.DATABASE, "slot.name": "debezium"}
        return _rounds("postgres", "public", (given, place), broker, sizes, engine, report)
    finally:
        server.process.stop()
        broker.kill()


def _rounds(
    kind: str,
    schema: str,
    places: tuple[list[str], dict[str, str]],
    broker: OurBroker,
    sizes: tuple[int, int],
    engine: Debezium | None,
    report: Report,
) -> list[Figures]:
    runs: list[Figures] = []
    for number in range(1, sizes[1] + 1):
        report(f"cdc, {kind}, a snapshot of {sizes[0]:,} rows, round {number} of {sizes[1]}")
        to = ["--to", f"kafka://{broker.bootstrap}/older-{number}", "--snapshot-only", "--json"]
        before = cpu_s(broker.pid)
        command = [sys.executable, "-P", "-m", "waterclock.cli", "cdc", *places[0], *to]
        told = attempted(slots.OURS, sizes[0], partial(ended, "waterclock cdc", command))
        runs.append({**told, "broker_cpu_s": cpu_s(broker.pid) - before})
        if engine is not None:
            made = engine.engine(kind, f"{kind}-older-{number}", {**_MODE, **places[1]})
            runs.append(attempted(NAME, sizes[0], partial(made.until, sizes[0], schema)))
    return runs
