"""Servers that are set up or looked after in another way than ours: the capture reads them just as well."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.cdc.mariadb import MariaServer, as_found, running_server
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc.mysql.server import oldest
from waterclock.cdc.position import MariaGtidList, MySqlGtidSet
from waterclock.errors import UsageError
from waterclock.testing import Broker

pytestmark = pytest.mark.mariadb


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaServer]:
    """It keeps tables' names in small letters, and has thrown its first binlogs away, one GTID domain with them."""
    with running_server(tmp_path_factory.mktemp("lower"), "--lower-case-table-names=1") as server:
        server.run("create database shop", "create table shop.t (id int primary key)")
        server.run("set gtid_domain_id = 5", "insert into shop.t values (1)", "flush binary logs")
        purge(server)
        yield server


def purge(server: MariaServer) -> None:
    """The server keeps a binlog for a moment after it began the next one."""
    last = str(server.run("show binary logs")[-1][0])
    end = time.monotonic() + 30
    while len(server.run(f"purge binary logs to '{last}'", "show binary logs")) > 1:
        assert time.monotonic() < end


def test_where_binlogs_are_gone_the_start_is_the_oldest_one_that_is_left(server: MariaServer, broker: Broker) -> None:
    with server.connection() as connection:
        assert oldest(connection.cursor()).split(",")[0] == "5-1-1"
    server.run("set gtid_domain_id = 7", "insert into shop.t values (2)")
    command = ["cdc", f"mysql://root@127.0.0.1:{server.port}/shop", "--to", f"kafka://{broker.bootstrap}/purged"]
    for count in (1, 2):  # what was read is not read again, and the place is one that the server knows
        assert cli.main([*command, "--order", "global", "--once", "--from-here"]) == 0
        assert len(committed(broker, "purged")[0]) == count
        server.run(f"insert into shop.t values ({count + 2})")


def test_a_truncate_names_its_table_as_its_rows_do(server: MariaServer) -> None:
    here = server.place()
    server.run(
        "use shop", "create table Item (id int primary key)", "insert into ITEM values (1)", "truncate Shop.iTEM"
    )
    changes = server.changes(here, "shop.item")
    assert as_found(changes) == [("insert", {"id": 1}), ("truncate", {})]
    assert {(change.database, change.table) for change in changes} == {("shop", "item")}


def test_of_two_that_read_as_one_replica_the_earlier_ends(server: MariaServer) -> None:
    """It took this for a broken connection, came back, and threw the later one out: so the two went on for ever."""
    server.run("insert into shop.t values (100)")
    with (
        closing(server.reader(server.place())) as earlier,
        closing(server.reader(server.place())),
        pytest.raises(UsageError, match="Another process reads this binlog as the replica 4711"),
    ):
        list(earlier.items())


def test_a_place_whose_binlogs_are_gone_is_said_with_a_way_on(server: MariaServer) -> None:
    """The way was --from now alone, which counts where Kafka holds no position."""
    with (
        closing(server.reader("0-1-1")) as reader,
        pytest.raises(UsageError, match=r"cannot go on from 0-1-1: .* under another --name with --from now"),
    ):
        list(reader.items())


def test_a_server_whose_binlogs_began_anew_is_refused(server: MariaServer, broker: Broker) -> None:
    """With --once it was "all done", and what the server had written since was passed over."""
    command = [
        "cdc",
        f"mysql://root@127.0.0.1:{server.port}/shop",
        "--to",
        f"kafka://{broker.bootstrap}/anew",
        "--once",
        "--from-here",
    ]
    server.run("insert into shop.t values (200), (201)", "insert into shop.t values (202)")
    assert cli.main(command) == 0
    server.run("reset master")
    for _ in range(2):  # with nothing in the binlogs, and with less than before
        assert cli.main(command) == 2
        server.run("insert into shop.t values (203) on duplicate key update id = 204")


def test_a_place_may_have_domains_that_the_server_does_not_know() -> None:
    assert not MariaGtidList("0-1-7,3-1-9").beyond(MariaGtidList("0-2-8"))
    assert MariaGtidList("0-1-7,3-1-9").beyond(MariaGtidList("0-2-8,3-1-8"))
    assert MariaGtidList("3-1-9").beyond(MariaGtidList("0-2-8"))
    assert not MariaGtidList("").beyond(MariaGtidList("0-1-1"))
    server = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
    assert MySqlGtidSet(f"{server}:1-9").beyond(MySqlGtidSet(f"{server}:1-8"))
