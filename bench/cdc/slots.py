"""PostgreSQL's log: `waterclock cdc` by its slot into our broker, and Debezium by a slot of its own, without a sink.

A procedure on the server writes transactions: ten rows are inserted, all ten updated, and five of them deleted; or
one of a million rows.

Rule 1: both slots are there before anything is written; each change is counted by whoever reads it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from waterclock.bench.broker.process import cpu_s
from waterclock.bench.cdc.debezium import MARK, NAME, Debezium, Engine
from waterclock.bench.cdc.ended import attempted, ended
from waterclock.bench.servers.ours import OurBroker
from waterclock.clock import SystemClock
from waterclock.examples.cdc.servers import Postgres, free_port

DATABASE = "shop"
_MADE = f"""
create schema {MARK};
create table {MARK}.place (id serial primary key);
create table item (id bigint primary key, name text, price numeric(12,2), quantity int, ratio double precision,
    made timestamp(6), active boolean, state varchar(20));
create publication bench for all tables;
"""
ROWS = (
    "select n, 'item number ' || n, n * 1.25, n, n / 7.0, timestamp '2026-01-01' + n * interval '1 second', n % 2 = 0, "
    "'new' from generate_series({first}, {last}) n"
)
_WORK = f"""
create procedure work(rows int) language plpgsql as $$
begin
    for at in 0 .. rows - 1 by 10 loop
        insert into item {ROWS.format(first="at", last="at + 9")};
        commit;
        update item set price = price + 1, state = 'paid' where id between at and at + 9;
        commit;
        delete from item where id between at and at + 9 and id % 2 = 0;
        commit;
    end loop;
end $$;
"""
MILLION = 1_000_000
MILLION_AT_ONCE = 0  # the size that stands for one transaction of so many
OURS = "waterclock cdc, into the broker"
Figures = dict[str, Any]
Report = Callable[[str], None]


class Slots(Postgres):
    """A PostgreSQL whose log is read."""

    def __init__(self, folder: Path, found: dict[str, str]) -> None:
        super().__init__(folder / "postgres", folder / "postgres.log", found, SystemClock())
        self.port = free_port()
        more = f"wal_level = logical\nmax_replication_slots = 40\nlisten_addresses = '127.0.0.1'\nport = {self.port}\n"
        with (folder / "postgres" / "data" / "postgresql.conf").open("a") as conf:
            conf.write(more)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def engine(self, engine: Debezium, slot: str) -> Engine:
        """Debezium by a slot of this name, which it has made."""
        place = {"database.port": str(self.port), "database.dbname": DATABASE, "slot.name": slot}
        made = engine.engine("postgres", slot, place)
        return made.placed(lambda: self.ask(DATABASE, f"insert into {MARK}.place default values"))

    def ours(self, broker: OurBroker, topic: str) -> Figures:
        """What `waterclock cdc --once` told, and what it took."""
        where = [f"postgres://postgres@127.0.0.1:{self.port}/{DATABASE}", "--to", f"kafka://{broker.bootstrap}/{topic}"]
        options = ["--once", "--json", "--publication", "bench", "--tables", "public.item"]
        command = [sys.executable, "-P", "-m", "waterclock.cli", "cdc", *where, *options]
        before = cpu_s(broker.pid)
        told = ended("waterclock cdc", command)
        return {**told, "broker_cpu_s": cpu_s(broker.pid) - before}


def measure(
    folder: Path, found: dict[str, str], sizes: tuple[int, int], engine: Debezium | None, report: Report
) -> list[Figures]:
    """Both contenders' runs over `sizes`: row changes, or MILLION_AT_ONCE, and rounds."""
    changes, rounds = sizes
    broker, server = OurBroker(folder / "broker-postgres", {}), Slots(folder, found)
    try:
        report("cdc: starting PostgreSQL, and a slot for each round")
        server.start(DATABASE)
        server.ask(DATABASE, _MADE)
        server.ask(DATABASE, _WORK)
        engines = []
        for number in range(rounds):
            server.ours(broker, f"items-{number}")
            engines += [server.engine(engine, f"debezium_{number}")] if engine is not None else []
        report(f"cdc: writing {changes:,} row changes")
        written = changes or MILLION
        if changes:
            server.ask(DATABASE, f"call work({changes * 2 // 5})")
        else:
            server.ask(DATABASE, "insert into item " + ROWS.format(first=1, last=MILLION))
        runs: list[Figures] = []
        for number in range(rounds):
            report(f"cdc, PostgreSQL, {written:,} row changes, round {number + 1} of {rounds}")
            runs.append(attempted(OURS, written, partial(server.ours, broker, f"items-{number}")))
            until = [partial(each.until, written, "public") for each in engines[number : number + 1]]
            runs += [attempted(NAME, written, each) for each in until]
        return runs
    finally:
        server.process.stop()
        broker.kill()
