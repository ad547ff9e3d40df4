"""One PostgreSQL with logical decoding for all tests of a run; a database of its own for each of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("pymysqlreplication", reason="it comes with the extra cdc")
pytest.importorskip("confluent_kafka", reason="it comes with the extra cdc")

from tests.cdc.mariadb import MariaServer, MariaSource
from tests.cdc.postgres import run
from tests.postgres_server import PostgresServer, running_server
from tests.samples import free_port
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.testing import Broker

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def logical() -> Iterator[PostgresServer]:
    """PostgreSQL with logical decoding, in another time zone than the capture's."""
    with running_server() as started:
        with (started.folder / "data" / "postgresql.conf").open("a") as conf:
            conf.write("wal_level = logical\ntimezone = 'Asia/Kolkata'\n")
        started.crash()
        started.start()
        yield started


@pytest.fixture(scope="session")
def port() -> Iterator[int]:
    """Of a PostgreSQL with logical decoding that other programs reach, in another time zone than the capture's."""
    number = free_port()
    settings = {
        "listen_addresses": "127.0.0.1",
        "port": str(number),
        "wal_level": "logical",
        "timezone": "Asia/Kolkata",
    }
    with running_server(settings):
        yield number


@pytest.fixture
def slot(logical: PostgresServer, request: pytest.FixtureRequest) -> Iterator[ReplicationSlot]:
    """A database, a slot and a publication of the test's own."""
    name = "d" + format(hash(request.node.name) & 0xFFFFFFFF, "x")
    run(logical.url(), f"create database {name}")
    yield ReplicationSlot(logical.url(database=name), name, name)
    # the server may still have to notice that who read it is gone
    of_slot = f"from pg_replication_slots where slot_name = '{name}'"
    ended = f"select pg_terminate_backend(active_pid, 10000) {of_slot} and active"
    dropped = f"select pg_drop_replication_slot('{name}') {of_slot}"
    run(logical.url(), ended, dropped, f"drop database {name} with (force)")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture
def command(slot: ReplicationSlot, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What captures the slot's database, up to now. Its server is reached by a socket, which no address names."""
    monkeypatch.setattr("psycopg.conninfo.make_conninfo", lambda **given: slot.conninfo)
    to = ["--to", f"kafka://{broker.bootstrap}/{slot.name}", "--slot", slot.name, "--publication", slot.publication]
    return ["cdc", f"postgres://postgres@localhost/{slot.name}", *to, "--order", "global", "--once"]


def _own(server: MariaServer) -> Iterator[str]:
    """Of the test's own, and a binlog that begins with it: who reads from the start meets no other test's statements."""
    server.run("flush binary logs")
    newest = server.run("show binary logs")[-1][0]
    server.run(f"purge binary logs to '{newest}'")
    name = f"shop{next(_numbers)}"
    server.run(f"create database {name}")
    yield name
    server.run(f"drop database {name}")


@pytest.fixture
def database(mariadb: MariaServer) -> Iterator[str]:
    yield from _own(mariadb)


@pytest.fixture
def of_mysql(mysql: MariaServer) -> Iterator[MariaSource]:
    for name in _own(mysql):
        yield MariaSource(mysql, name)


@pytest.fixture
def here(mariadb: MariaServer, database: str) -> str:
    """Where the binlog stands when the test begins."""
    return mariadb.place()


@pytest.fixture
def source(mariadb: MariaServer, database: str) -> MariaSource:
    return MariaSource(mariadb, database)


@pytest.fixture
def data() -> Path:
    """Maxwell's examples and two stored binlogs; each folder has its licence beside it."""
    return Path(__file__).with_name("data")
