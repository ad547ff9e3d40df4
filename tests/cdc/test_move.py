"""A Debezium connector's settings as a command line, its offset out of each place, and its place counted in our records."""

from __future__ import annotations

import json
import shlex
import struct
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

from tests.cdc.mariadb import MariaSource
from tests.cdc.postgres import changes, run
from tests.kafka.reader import committed
from waterclock import cli
from waterclock.cdc.move.connector import moved, settings_of
from waterclock.cdc.move.offset import offset_of
from waterclock.cdc.mysql import middle as of_mariadb
from waterclock.cdc.postgres import middle as of_postgres
from waterclock.cdc.postgres.beginning import begun
from waterclock.cdc.postgres.pgoutput import lsn_number
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.source import TableFilter
from waterclock.errors import ConnectionLost, UsageError
from waterclock.testing import Broker

SETTINGS = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "topic.prefix": "shop",
    "database.hostname": "db",
    "database.user": "reader",
    "database.dbname": "till",
    "table.include.list": r"public\.item,audit\..*",
    "tombstones.on.delete": "false",
    "transforms": "unwrap",
    "snapshot.mode": "initial",
    "time.precision.mode": "connect",
}


def test_settings_become_words_and_each_of_the_others_is_named() -> None:
    found = moved(SETTINGS, "kafka://k:9092")
    assert " ".join(found.words) == (
        "cdc postgres://reader@db:5432/till --to kafka://k:9092/shop --form debezium-schemas --tables public.item "
        "--tables audit.* --slot debezium --publication dbz_publication --no-tombstones"
    )
    assert found.unsaid.keys() == {"transforms", "snapshot.mode", "time.precision.mode", "skipped.operations"}


@pytest.mark.parametrize(
    ("connector", "given", "unsaid"),
    [
        ("MySqlConnector", {}, {"skipped.operations", "include.schema.changes", "bigint.unsigned.handling.mode"}),
        (
            "MariaDbConnector",
            {"bigint.unsigned.handling.mode": "precise", "time.precision.mode": "adaptive_time_microseconds"},
            {"skipped.operations", "include.schema.changes"},
        ),
        (
            "MySqlConnector",
            {"converter.schemas.enable": "false", "time.precision.mode": "adaptive"},
            {"skipped.operations", "include.schema.changes", "time.precision.mode"},
        ),
        ("PostgresConnector", {"skipped.operations": "none", "time.precision.mode": "adaptive"}, set()),
        ("PostgresConnector", {"time.precision.mode": "adaptive_time_microseconds"},
         {"skipped.operations", "time.precision.mode"}),
    ],
)  # fmt: skip
def test_what_debezium_does_by_default_and_a_capture_does_not_is_named_too(
    connector: str, given: dict[str, str], unsaid: set[str]
) -> None:
    """PostgreSQL's `time(3)` became milliseconds where it was microseconds, without a word."""
    settings = {"connector.class": connector, "topic.prefix": "shop", "database.hostname": "db", **given}
    assert moved(settings, "kafka://k:9092").unsaid.keys() == unsaid


@pytest.mark.parametrize("name", ["table.exclude.list", "database.exclude.list", "schema.exclude.list"])
def test_tables_that_were_left_out_are_never_brought_in_silence(name: str) -> None:
    with pytest.raises(UsageError, match=rf"{name}: a capture is told what it brings.*in table\.include\.list"):
        moved({**SETTINGS, name: "shop.secret"}, "kafka://k:9092")


def test_a_pattern_that_the_options_cannot_say_is_refused() -> None:
    with pytest.raises(UsageError, match="says more than"):
        moved({**SETTINGS, "table.include.list": r"public\.(item|sale)"}, "kafka://k:9092")


def test_settings_are_read_from_properties_and_from_connects_json() -> None:
    assert settings_of("# a word\nname = shop\ntable.include.list=a\\\\.b\n")["table.include.list"] == r"a\.b"
    assert settings_of('{"name": "shop", "config": {"topic.prefix": "shop"}}') == {"topic.prefix": "shop"}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"config": {**SETTINGS, "tombstones.on.delete": False, "value.converter.schemas.enable": False,
                               "decimal.handling.mode": "STRING", "heartbeat.interval.ms": 500, "transforms": None}}),
        "".join(f"{name} {value}\n" for name, value in SETTINGS.items())
        + "tombstones.on.delete False\nvalue.converter.schemas.enable: FALSE\ndecimal.handling.mode=String\n"
        "heartbeat.interval.ms=500\n",
        "".join(f"debezium.source.{name}={value}\n" for name, value in SETTINGS.items())
        + "debezium.format.value.schemas.enable=false\ndebezium.format.value=json\n"
        "debezium.source.decimal.handling.mode=string\ndebezium.source.heartbeat.interval.ms=500\n",
    ],
)  # fmt: skip
def test_a_setting_is_heard_in_each_spelling_that_debezium_takes(text: str) -> None:
    """JSON's false was taken for a yes, `STRING` for precise, and what was parted by a space was not there at all."""
    found = moved(settings_of(text), "kafka://k:9092")
    assert " ".join(found.words).endswith(
        "--form debezium --tables public.item --tables audit.* --slot debezium --publication dbz_publication "
        "--decimals string --no-tombstones --heartbeat-ms 500"
    )
    assert found.unsaid.keys() - {"transforms"} == {"snapshot.mode", "time.precision.mode", "skipped.operations"}


@pytest.mark.parametrize(
    ("given", "unsaid"),
    [
        ({"key.converter.schemas.enable": "false"}, {"key.converter.schemas.enable"}),
        ({"key.converter.schemas.enable": "false", "value.converter.schemas.enable": "false"}, set()),
        ({"decimal.handling.mode": "Double"}, {"decimal.handling.mode"}),
        ({"interval.handling.mode": "other"}, {"interval.handling.mode"}),
        ({"database.include.list": "till"}, {"database.include.list"}),  # of MySQL's connector
        ({"database.sslmode": "verify-full"}, {"database.sslmode"}),
    ],
)
def test_a_value_that_no_option_says_is_named(given: dict[str, str], unsaid: set[str]) -> None:
    assert moved({**SETTINGS, **given}, "kafka://k:9092").unsaid.keys() - moved(SETTINGS, "k").unsaid.keys() == unsaid


OF_MYSQL = {**SETTINGS, "connector.class": "MySqlConnector"}


def test_two_lists_of_what_is_wanted_are_one_or_refused() -> None:
    """A table of a database that the other list left out was brought."""
    words = moved({**OF_MYSQL, "table.include.list": r"shop\.item", "database.include.list": "shop,till"}, "k").words
    assert [word for name, word in pairwise(words) if name == "--tables"] == ["shop.item"]
    with pytest.raises(UsageError, match=r"takes \*\.item, of which database\.include\.list leaves something out"):
        moved({**OF_MYSQL, "table.include.list": r".*\.item", "database.include.list": "shop"}, "k")
    words = moved({**OF_MYSQL, "table.include.list": "", "database.include.list": "shop,"}, "k").words
    assert [word for name, word in pairwise(words) if name == "--tables"] == ["shop.*"]
    assert "--tables" not in moved({**OF_MYSQL, "table.include.list": " "}, "k").words


def test_a_connection_whose_certificate_was_checked_is_checked_on() -> None:
    assert moved({**OF_MYSQL, "database.ssl.mode": "verify_identity"}, "k").words[-1] == "--tls"
    assert "database.ssl.mode" in moved({**OF_MYSQL, "database.ssl.mode": "required"}, "k").unsaid


def in_java(*texts: bytes) -> bytes:
    """A HashMap of byte[] as Java writes it: the class of the first array stands whole, of the others by its number."""
    head = b"\xac\xed\x00\x05sr\x00\x11java.util.HashMap" + bytes(30)
    first, later = b"ur\x00\x02[B\xac\xf3\x17\xf8\x06\x08T\xe0\x02\x00\x00xp", b"uq\x00~\x00\x02"
    return head + b"".join(
        (later if place else first) + struct.pack(">i", len(text)) + text for place, text in enumerate(texts)
    )


def test_an_offset_is_found_in_each_place_and_never_chosen_among_several() -> None:
    key, value = b'["moved",{"server":"shop"}]', b'{"file":"b.000001","pos":4}'
    other = b'["moved",{"server":"till"}]'
    wanted = {"file": "b.000001", "pos": 4}
    assert offset_of(in_java(key, value, other, b'{"pos":9}'), "shop") == wanted
    assert offset_of(key + b"\t" + value, "shop") == wanted
    rest = b'{"offsets":[{"partition":{"server":"shop"},"offset":{"file":"b.000001","pos":4}}]}'
    assert offset_of(rest, "shop") == wanted
    with pytest.raises(UsageError, match="has 0 of"):
        offset_of(rest, "till")


@pytest.mark.mariadb
def test_what_comes_after_a_place_inside_of_mariadbs_transaction_is_the_rest_of_it(source: MariaSource) -> None:
    source.run("create table other (id int)", "create table item (id int primary key, n int)")
    (file, pos), *_ = [row[:2] for row in source.run("show master status")]
    source.run("begin", "insert into other values (1)", "insert into item values (1, 0), (2, 0), (3, 0)",
               "update item set id = id + 10 where id > 1 order by id", "commit")  # fmt: skip
    tables = TableFilter([f"{source.name}.item"])
    whole = source.server.changes(source.here, f"{source.name}.item")
    # GTID, map, rows of `other`, map, rows of `item`, map, rows of the update, each of which is two of our records
    for events, rows, records in ((0, 0, 0), (3, 0, 0), (4, 2, 2), (5, 0, 3), (6, 1, 5)):
        login = source.server.login()
        found = of_mariadb.position_at(login, tables, file, pos, "", events, rows)
        assert found.rows == records
        rest = source.server.changes(found, f"{source.name}.item")
        assert [change.data for change in rest] == [change.data for change in whole[records:]]


@pytest.mark.mariadb
def test_so_is_it_where_the_transaction_makes_the_table_anew(source: MariaSource) -> None:
    """Of the statement we have a record, the TRUNCATE, and Debezium none."""
    (file, pos), *_ = [row[:2] for row in source.run("create table item (id int primary key)", "show master status")]
    source.run("create or replace table item (primary key (id)) select seq as id from seq_1_to_3")
    whole = source.changes()
    assert [change.type for change in whole] == ["truncate", "insert", "insert", "insert"]
    tables = TableFilter([f"{source.name}.item"])
    for events, rows, records in ((1, 0, 0), (2, 0, 1), (3, 2, 3)):  # GTID, statement, map, rows
        found = of_mariadb.position_at(source.server.login(), tables, file, pos, "", events, rows)
        assert found.rows == records
        rest = source.server.changes(found, f"{source.name}.item")
        assert [(change.type, change.data) for change in rest] == [(each.type, each.data) for each in whole[records:]]


@pytest.mark.mariadb
def test_a_place_within_a_transaction_is_refused_for_its_rest_would_be_missing(
    source: MariaSource, broker: Broker
) -> None:
    """Debezium's connector of MySQL 3.6.1, reading MariaDB, stored {"pos": the end of a rows event, "row": 1}."""
    inserts = [f"insert into item values ({number})" for number in (1, 2)]
    source.run("create table item (id int primary key)", "create table plain (id int) engine=aria transactional=0")
    ((file, start, *_),) = source.run("show master status")
    source.run(
        "begin", *inserts, "commit", "insert into plain values (1)"
    )  # one ends with Xid, the other with a COMMIT
    events = source.run(f"show binlog events in '{file}' from {start}")
    within = [(kind, at) for _, at, kind, *_ in events if kind != "Gtid"]
    assert {"Xid", "Query", "Table_map", "Write_rows_v1", "Annotate_rows"} == {kind for kind, _ in within}
    for _, at in within:
        for rows in (0, 1):  # what the offset counts behind such a place is nothing that helps
            with pytest.raises(UsageError, match="A capture that has no position brings all rows once more"):
                of_mariadb.position_at(source.server.login(), TableFilter([]), file, at, "", 0, rows)
    with pytest.raises(ConnectionLost, match="its log ends before that"):
        of_mariadb.position_at(source.server.login(), TableFilter([]), file, events[-1][4], "", 0, 1)
    to = ["--to", f"kafka://{broker.bootstrap}/{source.name}", "--tables", f"{source.name}.item", "--order", "global"]
    given = [f"mysql://root@127.0.0.1:{source.server.port}", *to, "--snapshot", "initial", "--once"]
    assert cli.main(["cdc", *given]) == 0
    found = [json.loads(value)["data"]["id"] for _, value in committed(broker, source.name)[0]]
    assert sorted(set(found)) == [1, 2]


def test_what_comes_after_a_place_inside_of_a_transaction_of_postgresql_is_the_rest_of_it(
    slot: ReplicationSlot,
) -> None:
    run(slot.conninfo, "create table item (id int primary key)", "create table other (id int primary key)")
    start = begun(slot, [])
    run(slot.conninfo, "insert into item values (0)")
    with psycopg.connect(slot.conninfo) as connection:
        connection.execute("insert into other values (1)")
        for number in (1, 2, 3):
            connection.execute("insert into item values (%s)", (number,))
    peek = (
        "select lsn::text, data from pg_logical_slot_peek_binary_changes(%s, null, null, 'proto_version', '1', %s, %s)"
    )
    with psycopg.connect(slot.conninfo) as connection:
        found = connection.execute(peek, (slot.name, "publication_names", slot.publication)).fetchall()
    (commit, _) = [struct.unpack_from(">Q", data, 2)[0] for _, data in found if data[:1] == b"C"]
    (_, number) = [struct.unpack_from(">QqI", data, 1)[2] for _, data in found if data[:1] == b"B"]
    second = [lsn_number(lsn) for lsn, data in found if data[:1] == b"I"][3]
    wanted = TableFilter(["public.item"])
    inside = of_postgres.position_at(slot, wanted, commit, second, number)
    assert inside.rows == 2
    assert [change.data["id"] for change in changes(slot, inside, "public.item")] == ["3"]
    between = of_postgres.position_at(slot, wanted, commit, second, -1)
    assert [change.data["id"] for change in changes(slot, between, "public.item")] == ["1", "2", "3"]
    assert start.place != between.place


@pytest.mark.mariadb
def test_what_was_moved_goes_on_there_and_older_rows_do_not_come_once_more(
    source: MariaSource, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source.run("create table item (id int primary key)", "insert into item values (1)")
    source.server.run("flush binary logs")
    (file, pos), *_ = [row[:2] for row in source.run("show master status")]
    source.server.run(f"purge binary logs to '{file}'")
    source.run("insert into item values (2)")
    settings, offset = tmp_path / "settings", tmp_path / "offset"
    given = {
        "connector.class": "MySqlConnector",
        "topic.prefix": source.name,
        "database.hostname": "127.0.0.1",
        "database.port": source.server.port,
        "table.include.list": rf"{source.name}\\.item",
        "value.converter.schemas.enable": "false",
    }
    settings.write_text("".join(f"{name}={value}\n" for name, value in given.items()))
    rest = "[{...}]"  # of a snapshot that a signal had asked for
    offset.write_text(json.dumps({"file": file, "pos": pos, "incremental_snapshot_collections": rest}))
    to = f"kafka://{broker.bootstrap}"
    assert cli.main(["move", "debezium", str(settings), "--offset", str(offset), "--to", to, "--write"]) == 0
    out, err = capsys.readouterr()
    assert f"[{{...}}] had not come whole; once the capture runs: waterclock cdc snapshot {source.name}" in err
    command = out.splitlines()[-1]
    assert cli.main([*shlex.split(command)[1:], "--once", "--topics", "per-table", "--order", "global"]) == 0
    found = [json.loads(value) for _, value in committed(broker, f"{source.name}.{source.name}.item")[0]]
    assert [(change["op"], change["after"]["id"]) for change in found] == [("c", 2)]
