"""ALTER TABLE in the middle of traffic, capture and writer killed again and again: the target's table is the source's."""

from __future__ import annotations

import multiprocessing
import random
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import pytest

from tests.cdc.mariadb import MariaSource
from tests.cdc.postgres import run
from tests.processes import FORKS
from tests.sinks.stores import MirroringStore, PostgresStore
from tests.sinks.test_replica_kills import die_at_statement
from waterclock import sinks
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
from waterclock.changes.packed import CHANGES, as_table, packed
from waterclock.clock import SystemClock
from waterclock.kafka.client import whole
from waterclock.sinks import Batch, apply_once
from waterclock.sinks.tables import BATCHES
from waterclock.streaming import frames

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
    mirror = f"sinks.Replica('kafka://{broker.bootstrap}/{origin.name}.schema')"
    target = store.mirroring("changes").replace("sinks.Replica()", mirror), broker.bootstrap, origin.name
    for start in range(0, 80, 20):
        capture = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
        capture.start()
        if start:
            dying = _begin_to_die(target, drawn)
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
        if start:
            dying.join()
            assert dying.exitcode in (0, -signal.SIGKILL)  # 0: there was less to do
        function(*arguments, origin.end())
        if drawn.random() < 0.5 and start < 60:  # the target is behind, and takes several shapes at once
            continue
        dying = _begin_to_die(target, drawn)
        dying.join()
        assert dying.exitcode == -signal.SIGKILL
    put(*target, seed=drawn.randrange(1000))
    found = store.look("id, cost, n", store.mirrored(origin.table))
    assert [tuple(map(str, row)) for row in found] == [
        tuple(map(str, row)) for row in origin.sql("select id, cost, n from t order by id")
    ]
    kept = dict(store.look("id, c", store.mirrored(origin.table)))
    assert all(kept[n] == f"c{n}" for n in range(60))


def _begin_to_die(target: tuple[str, str, str], drawn: random.Random) -> Any:
    """A process that puts what is new into the target, until it is killed before a statement."""
    process = FORKS.Process(target=put, args=target, kwargs={"seed": drawn.random(), "dies_at": drawn.randrange(1, 40)})
    process.start()
    return process


def put(made: str, servers: str, topic: str, seed: float, dies_at: int | None = None) -> None:
    """What is new into the target, in batches, each with the offset behind it; some come twice. `made` makes the sink."""
    drawn, read = random.Random(seed), reader_of("maxwell")
    if dies_at is not None:
        die_at_statement(dies_at)
    with closing(eval(made, {"sinks": sinks})) as sink:
        sink.open(CHANGES)
        last = sink.db.ask(f"SELECT batch_id, offsets FROM {sink.name(BATCHES)} ORDER BY batch_id DESC LIMIT 1")
        batch, offset = (last[0][0] + 1, int(last[0][1])) if last else (0, 0)
        messages = list(whole({"bootstrap.servers": servers}, topic, offset))
        while messages:
            some, messages = messages[: (size := drawn.randrange(1, 9))], messages[size:]
            changes = [change for one in some for change in read(Message(one.key(), one.value(), one.offset() or 0))]
            for _ in range(drawn.randrange(1, 3)):
                rows, offsets = as_table(map(packed, changes)), str((some[-1].offset() or 0) + 1)
                letters = frames.DEAD_SCHEMA.empty_table()
                assert apply_once(sink, Batch("q", batch, offsets, rows, letters, {}, None, 0.1))
                batch += 1
