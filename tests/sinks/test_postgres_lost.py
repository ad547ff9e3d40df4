"""What becomes of a batch when PostgreSQL, or the way to it, goes away: all of it or nothing, and told which."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.postgres_server import PostgresServer
from tests.sinks.stores import SCHEMA, PostgresStore, batch, everything, of_batches
from tests.sinks.way import Interrupted, Way
from waterclock.errors import CommitUnknown, SinkLost, UsageError
from waterclock.sinks import LastBatch, PostgresSink, apply_once

pytestmark = pytest.mark.postgres
STEPS = ("begin", "is_applied", "write", "commit")


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server, started again where a test leaves it stopped."""
    yield postgres
    if not postgres.is_running():
        postgres.start()


@pytest.fixture
def store(server: PostgresServer) -> PostgresStore:
    return PostgresStore(server)


# The server dies


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_server_that_dies_between_two_steps_and_comes_back_costs_a_second_try(
    server: PostgresServer, store: PostgresStore, sink: PostgresSink, step: str, when: str
) -> None:
    def restart() -> None:
        server.crash()
        server.start()

    assert apply_once(Interrupted(sink, step, when, restart), batch(1)) is True
    assert everything(store) == of_batches(0, 1)
    assert apply_once(sink, batch(1)) is False
    assert sink.totals() == {"events": 4, "late": 2}


@pytest.mark.parametrize("step", STEPS)
def test_a_server_that_stays_away_is_told_and_a_rerun_makes_the_table_whole(
    server: PostgresServer, store: PostgresStore, sink: PostgresSink, step: str
) -> None:
    with pytest.raises(SinkLost, match=r"the connection to postgresql://.* went away: .*the same command goes on"):
        apply_once(Interrupted(sink, step, "before", server.crash), batch(1))
    sink.rollback()
    server.start()
    assert everything(store) == of_batches(0)
    assert apply_once(sink, batch(1)) is True
    assert everything(store) == of_batches(0, 1)


def test_a_sink_that_was_idle_while_the_server_restarted_notices_nothing(
    server: PostgresServer, store: PostgresStore, sink: PostgresSink
) -> None:
    for look in (sink.last_applied, sink.totals, sink.begin):
        server.crash()
        server.start()
        look()
    sink.rollback()
    assert sink.last_applied() == LastBatch("q", 0)


def test_a_server_that_is_not_there_at_the_start_is_a_usage_error(server: PostgresServer, store: PostgresStore) -> None:
    server.crash()
    with closing(store.sink()) as sink, pytest.raises(UsageError, match=r"cannot connect to .*Is the server there"):
        sink.open(SCHEMA)


# One connection is ended


def test_a_connection_that_is_ended_inside_of_a_batch_is_never_replaced_in_the_middle_of_it(
    store: PostgresStore, sink: PostgresSink
) -> None:
    sink.begin()
    sink.write(batch(1))
    end_connections(store)
    for call in (lambda: sink.write(batch(2)), lambda: sink.is_applied("q", 1), sink.last_applied):
        with pytest.raises(SinkLost):
            call()
    with pytest.raises(CommitUnknown):
        sink.commit()
    assert everything(store) == of_batches(0)


def end_connections(store: PostgresStore) -> None:
    query = "FROM pg_stat_activity WHERE application_name = 'waterclock'"
    store.ask(f"SELECT pg_terminate_backend(pid) {query}")
    until_none(store, f"SELECT 1 {query}")


def until_none(store: PostgresStore, query: str) -> None:
    """Return when `query` finds nothing any more."""
    for _ in range(2_000):
        if not store.ask(query):
            return
    raise AssertionError(f"still there: {store.ask(query)}")


# A commit without an answer


def way_to(server: PostgresServer, folder: Path, cut: str) -> Way:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(folder / ".s.PGSQL.5432"))

    def connect() -> socket.socket:
        made = socket.socket(socket.AF_UNIX)
        made.connect(str(server.folder / ".s.PGSQL.5432"))
        return made

    return Way(listening, connect, b"COMMIT\0", cut)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="way-", dir="/tmp") as made:
        yield Path(made)


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_without_an_answer_is_looked_up_and_the_batch_is_there_once(
    server: PostgresServer, store: PostgresStore, folder: Path, cut: str
) -> None:
    with closing(store.sink()) as straight:
        straight.open(SCHEMA)
    sink = PostgresSink(f"postgresql://postgres@/postgres?host={folder}", schema=store.schema)
    with closing(way_to(server, folder, cut)), closing(sink):
        assert apply_once(sink, batch(0)) is True
        assert everything(store) == of_batches(0)
        assert apply_once(sink, batch(0)) is False


@pytest.mark.parametrize("cut", ["before", "after"])
def test_a_commit_without_an_answer_is_no_success(
    server: PostgresServer, store: PostgresStore, folder: Path, cut: str
) -> None:
    with closing(store.sink()) as straight:
        straight.open(SCHEMA)
    sink = PostgresSink(f"postgresql://postgres@/postgres?host={folder}", schema=store.schema)
    with closing(way_to(server, folder, cut)), closing(sink):
        sink.begin()
        sink.write(batch(0))
        with pytest.raises(CommitUnknown, match="it may have got through"):
            sink.commit()
    until_none(store, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'")
    assert everything(store) == (of_batches() if cut == "before" else of_batches(0))
