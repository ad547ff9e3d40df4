"""What a server knows beside its binlog: servers that are set up or looked after in another way than ours are read just as
well, and the catalog is believed only for what it can know.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress

import pymysql
import pytest

from tests.cdc.mariadb import MariaServer, MariaSource, as_found, running_server
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc.mysql import binlog
from waterclock.cdc.mysql import server as of_server
from waterclock.cdc.mysql.beginning import oldest
from waterclock.cdc.mysql.binlog import BinlogEvent
from waterclock.cdc.mysql.server import connected
from waterclock.cdc.position import MariaGtidList, MySqlGtidSet
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.errors import ConnectionLost, EnvironmentMissing, Unreadable, UsageError
from waterclock.testing import Broker

pytestmark = pytest.mark.mariadb


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaServer]:
    """It keeps tables' names in small letters, writes nothing of one database into its binlog, and has thrown its first
    binlogs away, one GTID domain with them."""
    with running_server(
        tmp_path_factory.mktemp("lower"), "--lower-case-table-names=1", "--binlog-ignore-db=silent"
    ) as server:
        server.run("create database shop", "create table shop.t (id int primary key)")
        server.run("set gtid_domain_id = 5", "insert into shop.t values (1)", "flush binary logs")
        purge(server)
        yield server


def test_a_server_that_has_too_many_connections_is_not_told_as_missing(server: MariaServer) -> None:
    with ExitStack() as others:
        first = others.enter_context(server.connection())
        first.cursor().execute("set global max_connections = 10")
        with suppress(pymysql.OperationalError):
            while True:
                others.enter_context(server.connection())
        with pytest.raises(EnvironmentMissing, match=r"refuses: Too many connections \(1040\)\. Raise max_connections"):
            connected(server.login())
        first.cursor().execute("set global max_connections = 100")
        connected(server.login()).close()


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


def test_what_the_server_leaves_out_of_its_binlog_is_said(
    server: MariaServer, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["cdc", f"mysql://root@127.0.0.1:{server.port}/shop", "--to", f"kafka://{broker.bootstrap}/out"]
    assert cli.main([*command, "--once", "--from", "now"]) == 0
    told = capsys.readouterr().err
    assert "(binlog_do_db=, binlog_ignore_db=silent). What is written there will be missing." in told
    assert "replica" not in told
    server.run("set global gtid_slave_pos = '9-9-9'")
    try:
        assert cli.main([*command, "--once"]) == 0
    finally:
        server.run("set global gtid_slave_pos = ''")
    assert "does not write what it replicates into its own binlog" in capsys.readouterr().err


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
        pytest.raises(UsageError, match=r"cannot go on from 0-1-1: .* under another --name with --from now") as told,
    ):
        list(reader.items())
    assert ".. " not in str(told.value)  # the server's sentence has a full stop of its own


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


KINDS = (
    "id int unsigned primary key, a bigint unsigned, b decimal(10,3), c varchar(5) character set latin1, d "
    "enum('x','it''s'), e set('p','q'), f binary(3), g datetime(3), h json, i text, j blob, k year, l double, m "
    "bit(4), n time(6), o char(4), p date"
)
ROW = (
    "4294967295, 18446744073709551615, -1.5, 'é', 'it''s', 'q', 'z', '2024-01-02 03:04:05.006', '{\"a\":1}', 'ü', "
    "x'00', 1999, 0.5, b'101', '-00:00:00.000001', 'ab', '0000-00-00'"
)


@pytest.fixture(params=["NO_LOG", "MINIMAL"])
def unnamed(request: pytest.FixtureRequest, source: MariaSource) -> Iterator[MariaSource]:
    source.run(f"set global binlog_row_metadata = '{request.param}'")
    yield source
    source.run("set global binlog_row_metadata = 'FULL'")


def test_without_names_in_the_binlog_the_rows_are_the_same(unnamed: MariaSource) -> None:
    unnamed.run("set sql_mode = ''", f"create table t ({KINDS})", f"insert into t values ({ROW})")
    unnamed.run("set global binlog_row_metadata = 'FULL'")
    unnamed.run("set sql_mode = ''", "update t set id = 1")
    first, gone, _ = unnamed.changes()
    assert (first.type, gone.type) == ("insert", "delete")
    assert (first.data, first.key) == (gone.data, gone.key)


CHANGED = {
    "another column": "alter table t add column b int",
    "made anew": "create or replace table t (a int primary key, id int)",
    "another name": "alter table t rename column a to b",
}


@pytest.mark.parametrize("changed", CHANGED)
def test_rows_of_a_table_that_was_changed_since_are_refused(changed: str, unnamed: MariaSource) -> None:
    unnamed.run(
        "create table t (id int primary key, a int)", "set timestamp = unix_timestamp() - 10",
        "insert into t values (1, 1)", "set timestamp = default", CHANGED[changed],
    )  # fmt: skip
    with pytest.raises(Unreadable, match=rf"{unnamed.name}.t.*changed or dropped.*binlog_row_metadata=FULL"):
        unnamed.changes()


def test_after_a_column_got_another_name_rows_have_it(unnamed: MariaSource) -> None:
    """The table map stays as it was, byte for byte: a plan kept from before would give the rows the old name."""
    unnamed.run("create table t (id int primary key, a int)", "insert into t values (1, 1)")
    reader = unnamed.reader()
    changes = (item for item in reader.items() if isinstance(item, MaxwellMessage))
    assert next(changes).values() == {"id": 1, "a": 1}
    unnamed.run("alter table t rename column a to b", "insert into t values (2, 2)")
    assert next(changes).values() == {"id": 2, "b": 2}
    reader.close()


def test_uuids_of_a_table_that_is_gone_are_refused_until_somebody_says_what_they_are(source: MariaSource) -> None:
    value = "123e4567-e89b-42d3-a456-426614174000"
    source.run("create table t (u uuid)", f"insert into t values ('{value}')", "drop table t")
    with pytest.raises(Unreadable, match=rf"{source.name}\.t.*whether u is BINARY, UUID.*--type"):
        source.changes()
    told = {f"{source.name}.t.u": "uuid"}
    assert source.found(overrides=told) == [("insert", {"u": value})]


@pytest.mark.parametrize("change", ["add column c int", "modify u binary(16)"])
def test_uuids_of_a_table_that_was_changed_since_are_refused(change: str, source: MariaSource) -> None:
    source.run(
        "create table t (id int, u uuid)",
        "set timestamp = unix_timestamp() - 10",
        "insert into t values (1, '123e4567-e89b-42d3-a456-426614174000')",
        "set timestamp = default",
        f"alter table t {change}",
    )
    with pytest.raises(Unreadable, match="whether u is BINARY, UUID"):
        source.changes()


def test_rows_that_waited_for_a_change_of_their_table_are_read(source: MariaSource) -> None:
    """They bear the time at which they began to wait, which lies before the change they came after."""
    source.run(
        "create table t (u uuid)",
        "alter table t add column c int",
        "set timestamp = unix_timestamp() - 10",
        "insert into t values ('123e4567-e89b-42d3-a456-426614174000', 1)",
    )
    assert len(source.changes()) == 1


@pytest.mark.parametrize("engine", ["myisam", "aria", "memory"])
def test_tables_of_engines_that_do_not_tell_when_they_were_changed_are_refused(
    engine: str, unnamed: MariaSource
) -> None:
    """Their CREATE_TIME does not move: rows would come with names that their columns got later."""
    unnamed.run(
        f"create table t (a int) engine={engine}",
        "insert into t values (1)",
        "do sleep(1.1)",
        "alter table t change a b int",
    )
    with pytest.raises(Unreadable, match="of InnoDB alone that is known"):
        unnamed.changes()


@pytest.mark.parametrize("altered", ["alter table t modify u uuid", "create or replace table t (u uuid)"])
def test_a_binary_that_is_made_a_uuid_while_it_is_read_is_one_from_then_on(altered: str, source: MariaSource) -> None:
    """Its table map has the same bytes as before."""
    value = "123e4567-e89b-42d3-a456-426614174000"
    source.run("create table t (u binary(16))", "insert into t values (x'00')")
    found, after = [], [altered, "do sleep(1.1)", f"insert into t values ('{value}')"]
    with closing(source.reader()) as reader:
        for item in reader.items():
            if isinstance(item, MaxwellMessage) and item.type != "truncate":  # of the table that was there before
                found.append(item.data["u"])
                source.run(*after)
                after = ["do 0"]
            if len(found) == 2:
                break
    assert found == [f'"{"A" * 22}=="', f'"{value}"']


def test_a_server_that_ended_an_idle_connection_is_asked_over_another_one(source: MariaSource) -> None:
    source.run("create table t (u uuid)", "insert into t values (uuid())")
    source.run("set global wait_timeout = 1")
    try:
        with closing(source.reader()) as reader:
            ours = "user = 'root' and command = 'Sleep' and id <> connection_id()"
            while source.run(f"select count(*) from information_schema.processlist where {ours}") != [(0,)]:
                pass
            assert next(item for item in reader.items() if isinstance(item, MaxwellMessage)).commit
    finally:
        source.run("set global wait_timeout = default")


def test_ordinary_tables_may_change_as_they_like(source: MariaSource) -> None:
    """The catalog is asked only where the binlog leaves a doubt: a table without doubtful columns may even be gone."""
    source.run(
        "create table t (id int, b binary(15), t longtext)", "insert into t values (1, x'00', 'x')", "drop table t"
    )
    assert len(source.changes()) == 1


def test_a_server_that_looks_for_the_place_in_a_large_binlog_is_waited_for(
    source: MariaSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB sends no heartbeat meanwhile: it was taken for gone after ten seconds, and had to look from the beginning."""
    head = BinlogEvent(0, binlog.FORMAT_DESCRIPTION, 1, 0, 0, b"")
    beat = BinlogEvent(0, binlog.HEARTBEAT, 1, 4, 0, b"binlog.000001")
    given = [head, *[None] * 100, beat, *[None] * 100]
    with closing(source.reader()) as reader:
        monkeypatch.setattr(reader._stream, "event", lambda *_: given.pop(0))
        with pytest.raises(ConnectionLost, match="heartbeats for 10 seconds"):
            deque(reader.items(), maxlen=0)
    assert len(given) == 89


@pytest.mark.parametrize("now", ["none", "crc32"])
def test_binlogs_with_checksums_and_without_are_read_whatever_the_server_writes_now(
    now: str, source: MariaSource
) -> None:
    """Those with checksums were refused for good where none are written any more; and a capture that ran ended when they
    were switched on."""
    source.run("create table t (id int primary key)", "insert into t values (1)")
    try:
        source.run("set global binlog_checksum = none", "insert into t values (2)")
        source.run("set global binlog_checksum = crc32", "insert into t values (3)")
        source.run(f"set global binlog_checksum = {now}", "insert into t values (4)")
        found = []
        with closing(source.reader()) as reader:
            for item in reader.items():
                if not isinstance(item, MaxwellMessage):
                    continue
                found.append(item.data["id"])
                if found[-1:] == ["4"]:
                    source.run("set global binlog_checksum = crc32", "insert into t values (5)")
                    source.run("set global binlog_checksum = none", "insert into t values (6)")
                if found[-1:] == ["6"]:
                    break
    finally:
        source.run("set global binlog_checksum = default")
    assert found == ["1", "2", "3", "4", "5", "6"]


def test_a_datetime_of_an_old_mariadb_is_refused_with_a_remedy_that_works(source: MariaSource) -> None:
    """With six digits it has the bytes of an older one without: 2024-01-02 came as 3850-39-58 19:91:1283201."""
    source.run("set global mysql56_temporal_format = off", "create table t (id int primary key, d datetime(6))")
    try:
        source.run("insert into t values (1, '2024-01-02 03:04:05.678901')")
        with pytest.raises(Unreadable, match=r"SET GLOBAL mysql56_temporal_format=ON.*ALTER TABLE \.\.\. FORCE"):
            source.changes()
    finally:
        source.run("set global mysql56_temporal_format = on")
    source.here = source.server.place()
    source.run("alter table t force", "insert into t values (2, '2024-01-02 03:04:05.678901')")
    assert [change.data["d"] for change in source.changes()] == ['"2024-01-02 03:04:05.678901"']


def test_a_catalog_that_waits_for_a_lock_is_not_waited_for_in_silence(
    source: MariaSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start said nothing, and a capture that was asked for tables stood still, until CREATE TABLE ... SELECT ended."""
    monkeypatch.setattr(of_server, "_AS_NOW", of_server._AS_NOW.replace("time = 300", "time = 1"))
    filling = "create table filled select sleep(30)"
    with ThreadPoolExecutor() as threads, source.server.connection(database=source.name) as connection:
        made = threads.submit(connection.cursor().execute, filling)
        of_it = f"from information_schema.processlist where info = '{filling}'"
        while not source.run(f"select 1 {of_it} and state = 'User sleep'"):
            pass
        with pytest.raises(EnvironmentMissing, match=r"refuses: .* \(1969\)\. Somebody locks a table"):
            of_server.answer(source.server.login(), of_server.tables)
        source.run(f"kill {connection.thread_id()}")
        assert made.exception()
