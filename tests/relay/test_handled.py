"""Handlers that write to PostgreSQL: what they write is there exactly once, whoever dies between which steps; and
whichever of several processes is killed with SIGKILL.
"""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Producer, TopicPartition

from tests.postgres_server import PostgresServer
from tests.relay.handler_steps import Failing, death, deliver, handle, making, requests
from tests.relay.test_delays import _run
from tests.relay.world import World, step_until
from waterclock.clock import SystemClock
from waterclock.errors import ConnectionLost, SinkLost, UsageError
from waterclock.kafka.transactions import TransactionalProducer
from waterclock.postgres.session import PostgresSession
from waterclock.relay import Delivery
from waterclock.relay.handlers.handled_offsets import TABLE
from waterclock.relay.handlers.handler import Handler
from waterclock.testing import Broker

pytestmark = pytest.mark.postgres


@pytest.fixture
def table(postgres: PostgresServer, world: World) -> str:
    """A table of the test's own."""
    name = f"done_{world.topic}"
    with psycopg.connect(postgres.url(), autocommit=True) as db:
        db.execute(f"DROP TABLE IF EXISTS {name}")
        db.execute(f"DROP TABLE IF EXISTS {TABLE}")
        db.execute(f"CREATE TABLE {name} (id text, value text, attempt integer)")
    return name


@pytest.fixture
def own(world: World, postgres: PostgresServer) -> Iterator[Callable[..., Handler]]:
    with making(world, database=postgres.url(), waits=("1 s",)) as one:
        yield one


def writing(table: str, *errors: Exception | None) -> Callable[[Delivery, Any], None]:
    """A handler that writes a row, and then may raise."""
    failing = Failing(*errors)

    def write(delivery: Delivery, db: Any) -> None:
        db.execute(f"INSERT INTO {table} VALUES (%s, %s, %s)", (delivery.id, delivery.text, delivery.attempt))
        failing(delivery)

    return write


def written(postgres: PostgresServer, table: str) -> list[tuple[str, int]]:
    with psycopg.connect(postgres.url()) as db:
        return db.execute(f"SELECT value, attempt FROM {table} ORDER BY value, attempt").fetchall()


def send(world: World, *values: str) -> Any:
    relay = world.started()
    world.send(*values, in_ms=0)
    deliver(world, relay, 0)
    return relay


def test_it_writes_through_the_connection_and_its_offset_is_noted_with_it(
    world: World, own: Callable[..., Handler], postgres: PostgresServer, table: str
) -> None:
    send(world, "a", "b")
    handle(own(writing(table)), 2)
    assert written(postgres, table) == [("a", 1), ("b", 1)]
    with psycopg.connect(postgres.url()) as db:
        row = db.execute(f"SELECT group_id, topic, partition, next_offset FROM {TABLE}").fetchone()
    assert row is not None
    assert row[:3] == (f"{world.topic}.group", world.target, 0)
    assert row[3] == world.seen()[-1].offset + 1


EACH = [(step, when) for step in ("begin", "run", "commit") for when in ("before", "after")]


@pytest.mark.parametrize(
    ("step", "when"),
    [pytest.param(*one, marks=() if one[0] == "commit" else pytest.mark.long(seconds=2)) for one in EACH],
)
def test_a_death_at_each_step_leaves_what_it_writes_once(
    step: str,
    when: str,
    world: World,
    own: Callable[..., Handler],
    postgres: PostgresServer,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    send(world, "a", "b")
    handler = own(writing(table))
    step_until(lambda: handler._consumer.assignment() or handler.take(0.05))
    with death(monkeypatch, PostgresSession, step, when):
        handle(handler)
    handler._next.clear()
    handler.close()
    again = own(writing(table))
    step_until(lambda: again.step(0.05) and written(postgres, table)[1:])
    assert not again.step(0.3)
    assert written(postgres, table) == [("a", 1), ("b", 1)]


def test_what_kafka_has_forgotten_or_gives_again_is_not_written_again(
    world: World, own: Callable[..., Handler], postgres: PostgresServer, table: str
) -> None:
    """The group's offsets are gone; and of two processes that have the same message, the second one passes it over."""
    send(world, "a")
    first, raised = own(writing(table)), list[Any]()
    step_until(lambda: raised or raised.extend(filter(None, [first.take(0.05)])))
    assert first.call(raised[0]) is None
    assert first.call(raised[0]) is None
    first.close()
    assert not own(writing(table)).step(1.0)
    assert written(postgres, table) == [("a", 1)]


def test_a_topic_that_is_made_again_while_it_runs_begins_anew(
    world: World, own: Callable[..., Handler], postgres: PostgresServer, table: str
) -> None:
    """The old one's offset stood for the new one's: as many of its messages were never handled, in silence."""

    def put(*values: str) -> None:
        producer = Producer({"bootstrap.servers": world.broker.bootstrap})
        for value in values:
            producer.produce(world.target, value)
        producer.flush()

    put("a", "b")
    handler, place = own(writing(table)), TopicPartition(world.target, 0)
    handle(handler, 2)
    handler._commit(handler._next)
    world.remove(world.target)
    world.admin.make(world.target, 1)
    put("c", "d", "e")
    with pytest.raises(ConnectionLost, match="was deleted, and may have been made again"):
        handler._on_assign(handler._consumer, [place])
    handler.close()
    handle(own(writing(table)), 3)
    assert written(postgres, table) == [(value, 1) for value in "abcde"]


def test_what_fails_is_undone_and_tried_again_then_put_aside(
    world: World, own: Callable[..., Handler], postgres: PostgresServer, table: str
) -> None:
    relay = send(world, "bad", "good")
    handler = own(writing(table, ValueError("no"), None, ValueError("no")))
    handle(handler, 2)
    assert written(postgres, table) == [("good", 1)]
    deliver(world, relay, 60_000)
    handle(handler)
    assert written(postgres, table) == [("good", 1)]
    assert world.values(f"{world.topic}.group.dead") == ["bad"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_death_around_the_commit_that_sends_it_on_leaves_one_of_it(
    when: str,
    world: World,
    own: Callable[..., Handler],
    postgres: PostgresServer,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kafka has it, and the database has not heard of it: it must not be handled once more beside its retry."""
    relay = send(world, "first", "bad")
    handler = own(writing(table, None, ValueError("no")))
    handle(handler)
    with death(monkeypatch, TransactionalProducer, "commit", when):
        handle(handler)
    handler.close()
    again = own(writing(table))
    if when == "before":
        handle(again)
    else:
        assert not again.step(1.0)
        deliver(world, relay, 60_000)
        handle(again)
    assert written(postgres, table) == [("bad", 1 if when == "before" else 2), ("first", 1)]
    assert requests(world) == (1 if when == "after" else 0)


def test_a_handler_that_ends_its_transaction_is_told_what_to_leave_out(
    world: World, own: Callable[..., Handler], postgres: PostgresServer, table: str
) -> None:
    def committing(delivery: Delivery, db: Any) -> None:
        db.execute("COMMIT")

    send(world, "a")
    with pytest.raises(UsageError, match="has ended the transaction"):
        handle(own(committing))


def test_a_handler_may_undo_a_part_and_an_error_that_it_passes_over_is_one(
    world: World, own: Callable[..., Handler], postgres: PostgresServer, table: str
) -> None:
    def undoing(delivery: Delivery, db: Any) -> None:
        with suppress(psycopg.Error), db.transaction():
            db.execute("no SQL")
        writing(table)(delivery, db)
        if delivery.text == "bad":
            with suppress(psycopg.Error):
                db.execute("no SQL")

    send(world, "bad", "good")
    handle(own(undoing), 2)
    assert (written(postgres, table), requests(world)) == ([("good", 1)], 1)


def test_a_connection_that_goes_away_is_no_fault_of_the_handlers(
    world: World, own: Callable[..., Handler], postgres: PostgresServer, table: str
) -> None:
    def losing(delivery: Delivery, db: Any) -> None:
        writing(table)(delivery, db)
        with psycopg.connect(postgres.url(), autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 5000)", (db.info.backend_pid,))
        db.execute("SELECT 1")

    send(world, "a")
    handler = own(losing)
    with pytest.raises(SinkLost):
        handle(handler)
    handler.close()
    handle(own(writing(table)))
    assert (written(postgres, table), requests(world)) == ([("a", 1)], 0)


MESSAGES = 300
OVER_MS = 20_000


@pytest.mark.long(seconds=60)
def test_each_message_is_written_once_though_processes_are_killed(
    relay_broker: Broker, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance, table = random.Random(seed), "done_by_many"
    with psycopg.connect(postgres.url(), autocommit=True) as db:
        db.execute(f"CREATE TABLE {table} (id text, value text, attempt integer)")
    with World(relay_broker, tmp_path, "handled", 3) as world:
        world.clock = SystemClock()  # type: ignore[assignment]
        relay, ended = world.started(), threading.Event()
        thread = threading.Thread(target=_run, args=(relay, ended))
        thread.start()
        for number in range(MESSAGES):
            world.send(str(number), in_ms=chance.randrange(OVER_MS), partition=number % 3)
        arguments = [relay_broker.bootstrap, world.topic, world.target, postgres.url(), table]
        command = [sys.executable, "-m", "tests.relay.handling", *arguments]
        with (tmp_path / "out.txt").open("w") as out:
            running = [subprocess.Popen(command, stdout=out, stderr=out) for _ in range(2)]
            try:
                until_s = time.monotonic() + 120
                kills = 0
                while len(rows(postgres, table)) < MESSAGES:
                    assert time.monotonic() < until_s, (tmp_path / "out.txt").read_text()
                    time.sleep(chance.uniform(1.0, 4.0))
                    if kills < 6:
                        kills += 1
                        which = chance.randrange(2)
                        running[which].kill()
                        running[which].wait(10)
                        running[which] = subprocess.Popen(command, stdout=out, stderr=out)
            finally:
                for process in running:
                    process.kill()
                    process.wait(10)
                ended.set()
                thread.join()
    found = rows(postgres, table)
    assert sorted(int(value) for value, _ in found) == list(range(MESSAGES))
    assert {value for value, attempt in found if attempt > 1} == {str(n) for n in range(MESSAGES) if n % 10 == 7}


def rows(postgres: PostgresServer, table: str) -> list[tuple[str, int]]:
    with psycopg.connect(postgres.url()) as db:
        return db.execute(f"SELECT value, attempt FROM {table}").fetchall()
