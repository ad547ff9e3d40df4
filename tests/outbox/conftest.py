"""A broker, and a database of each kind with an outbox, for each test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

pytest.importorskip("pymysqlreplication", reason="it comes with the extra cdc")
pytest.importorskip("confluent_kafka", reason="it comes with the extra relay")

from tests.cdc.conftest import logical as logical
from tests.cdc.mariadb import MariaServer
from tests.cdc.postgres import run
from tests.outbox.taking import MariaShop, PostgresShop, Shop, Taking
from tests.postgres_server import PostgresServer
from waterclock.testing import Broker

_numbers = itertools.count(1)
KINDS = [pytest.param("postgres", marks=pytest.mark.postgres), pytest.param("mariadb", marks=pytest.mark.mariadb)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker"), settings={"group.initial.rebalance.delay.ms": "0"}) as started:
        yield started


@pytest.fixture
def postgres_shop(logical: PostgresServer) -> Iterator[PostgresShop]:
    name = f"outbox{next(_numbers)}"
    run(logical.url(), f"create database {name}")
    yield PostgresShop(logical.url(database=name))
    slots = "select pg_drop_replication_slot(slot_name) from pg_replication_slots where database = "
    run(logical.url(), f"{slots} '{name}'", f"drop database {name} with (force)")


@pytest.fixture
def maria_shop(mariadb: MariaServer) -> Iterator[MariaShop]:
    name = f"outbox{next(_numbers)}"
    mariadb.run(f"create database {name}")
    yield MariaShop(mariadb, name)
    mariadb.run(f"drop database {name}")


@pytest.fixture(params=KINDS)
def shop(request: pytest.FixtureRequest) -> Shop:
    """A database that has a binlog or slots."""
    found: Shop = request.getfixturevalue("postgres_shop" if request.param == "postgres" else "maria_shop")
    return found


@pytest.fixture
def taking(shop: Shop, broker: Broker) -> Taking:
    return Taking(shop, broker.bootstrap, f"delays{next(_numbers)}")
