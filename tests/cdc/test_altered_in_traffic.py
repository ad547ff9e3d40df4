"""ALTER TABLE in the middle of traffic, the capture killed again and again: the target's table is the source's."""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from tests.cdc.mariadb import MariaSource
from tests.cdc.postgres import run
from tests.sinks.stores import MirroringStore, PostgresStore
from tests.sinks.test_replica import give
from waterclock.broker import Broker
from waterclock.cdc.capture import Capture
from waterclock.cdc.mysql.reader import BinlogReader
from waterclock.cdc.mysql.server import MySqlLogin
from waterclock.cdc.position import Position
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.postgres.slot import OWN, SlotReader, current
from waterclock.cdc.produce import Publisher, Target
from waterclock.cdc.source import TableFilter
from waterclock.changes import Message, reader_of
from waterclock.changes.packed import CHANGES
from waterclock.clock import SystemClock
from waterclock.kafka.client import whole
from waterclock.sinks import Replica

_ALTERED = {
    20: "alter table t rename column price to cost",
    40: "alter table t add column n int not null default 7",
    60: "alter table t drop column c",
}


class Origin(NamedTuple):
    """A source: its table t in Kafka's words, what runs SQL there, a capture until `end`, and where its end is."""

    name: str
    table: str
    sql: Callable[..., list[tuple[Any, ...]]]
    capture: tuple[Callable[..., None], tuple[Any, ...]]
    end: Callable[[], str]


def capture_mariadb(servers: str, login: MySqlLogin, here: str, name: str, end: str | None = None) -> None:
    wanted = TableFilter((f"{name}.*",), frozenset({"mysql"}))
    _capture(servers, name, lambda position: BinlogReader(login, position, wanted), Position(here), end)


def capture_postgres(servers: str, slot: ReplicationSlot, start: Position, end: str | None = None) -> None:
    clock = SystemClock()
    _capture(servers, slot.name, lambda place: SlotReader(slot, place, TableFilter((), OWN), clock), start, end)


def _capture(servers: str, name: str, source: Any, start: Position, end: str | None) -> None:
    target = Target(servers, name, "global")
    Capture(lambda: Publisher(target, name), source, SystemClock(), start=start).run(end)


@pytest.fixture(params=["mariadb", "postgresql"])
def origin(request: pytest.FixtureRequest, broker: Broker) -> Origin:
    if request.param == "mariadb":
        source: MariaSource = request.getfixturevalue("source")
        made = (broker.bootstrap, source.server.login(), source.here, source.name)
        name = source.name
        return Origin(name, f"{name}.t", source.run, (capture_mariadb, made), source.server.place)
    slot: ReplicationSlot = request.getfixturevalue("slot")
    start = begun(slot, [])
    capture = (capture_postgres, (broker.bootstrap, slot, start))
    return Origin(slot.name, "public.t", lambda *given: run(slot.conninfo, *given), capture, lambda: current(slot))


@pytest.fixture
def store(target: MirroringStore, origin: Origin) -> Iterator[MirroringStore]:
    yield target
    if isinstance(target, PostgresStore):
        target.run(f"DROP TABLE IF EXISTS {target.mirrored(origin.table)}")


def test_a_table_that_is_altered_in_traffic_arrives_as_it_is(
    origin: Origin, store: MirroringStore, broker: Broker
) -> None:
    drawn = random.Random(origin.table)
    origin.sql("create table t (id int primary key, price decimal(10,2), c varchar(20))")
    function, arguments = origin.capture
    offset = batch = 0
    for start in range(0, 80, 20):
        capture = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
        capture.start()
        for n in range(start, start + 20):
            if n in _ALTERED:
                origin.sql(_ALTERED[n])
            price = "price" if n < 20 else "cost"
            more, value = (", c", f", 'c{n}'") if n < 60 else (", n", f", {n}")
            origin.sql(f"insert into t (id, {price}{more}) values ({n}, {n}.10{value})")
            origin.sql(f"update t set {price} = {price} + 1 where id = {drawn.randrange(n + 1)}")
            if n == start + drawn.randrange(20):
                capture.kill()
        capture.kill()
        capture.join()
        if drawn.random() < 0.5 and start < 60:  # the target is behind, and takes several shapes at once
            continue
        function(*arguments, origin.end())
        offset, batch = _put(origin, store, broker, offset, batch, drawn)
    found = store.look("id, cost, n", store.mirrored(origin.table))
    assert [tuple(map(str, row)) for row in found] == [
        tuple(map(str, row)) for row in origin.sql("select id, cost, n from t order by id")
    ]
    kept = dict(store.look("id, c", store.mirrored(origin.table)))
    assert all(kept[n] == f"c{n}" for n in range(60))


def _put(
    origin: Origin, store: MirroringStore, broker: Broker, offset: int, batch: int, drawn: random.Random
) -> tuple[int, int]:
    """What is new into the target, in batches, by a sink of its own; some come twice."""
    read, servers = reader_of("maxwell"), {"bootstrap.servers": broker.bootstrap}
    mirror = Replica(f"kafka://{broker.bootstrap}/{origin.name}.schema")
    with closing(store.sink("changes", mirror)) as sink:
        sink.open(CHANGES)
        messages = list(whole(servers, origin.name, offset))
        while messages:
            some = messages[: drawn.randrange(1, 9)]
            changes = [change for one in some for change in read(Message(one.key(), one.value(), one.offset() or 0))]
            for _ in range(drawn.randrange(1, 3)):
                give(sink, batch, *changes)
                batch += 1
            messages = messages[len(some) :]
            offset = (some[-1].offset() or 0) + 1
    return offset, batch
