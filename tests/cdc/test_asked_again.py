"""Tables of a running capture come again when somebody asks, beside its changes; rows that are gone go from the target."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import Producer

from tests.cdc.mariadb import MariaServer, MariaSource
from tests.cdc.postgres import run
from tests.kafka.reader import committed
from tests.sinks.stores import MirroringStore, SQLiteStore
from tests.sinks.test_replica import give, opened
from waterclock import cli
from waterclock.cdc.agreement import INITIAL, Terms
from waterclock.cdc.mysql.chunks import BinlogChunks
from waterclock.cdc.position import Position
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.cdc.snapshot import SnapshotSource
from waterclock.cdc.source import POSITIONS
from waterclock.changes import Message, reader_of
from waterclock.clock import SystemClock
from waterclock.kafka.admin import Admin
from waterclock.testing import Broker

KINDS = [pytest.param("mariadb", marks=pytest.mark.mariadb), pytest.param("postgres", marks=pytest.mark.postgres)]
GONE = (
    '{{"database":"{0}","table":"item","type":"insert","ts":1,"gtid":"","sequence":1700000000000000,"xoffset":0,'
    '"commit":true,"primary_key_columns":["id"],"data":{{"id":{1},"v":"gone"}}}}'
)


class Shop:
    """A database of a kind, and the topic of its capture."""

    def __init__(self, kind: str, request: pytest.FixtureRequest) -> None:
        self.kind = kind
        self.run: Callable[..., Any]
        self._numbers: Callable[[int, int], str]
        if kind != "postgres":
            source: MariaSource = request.getfixturevalue("source" if kind == "mariadb" else "of_mysql")
            self.topic = self.schema = source.name
            self.server, self.run, self._numbers = str(source.server.port), source.run, source.server.numbers
        else:
            self._numbers = "generate_series({}, {}) seq".format
            slot: ReplicationSlot = request.getfixturevalue("slot")
            self.topic, self.schema, self.server = slot.name, "public", slot.conninfo
            self.run = partial(run, slot.conninfo)

    def rows(self, first: int, last: int) -> str:
        return f"insert into item select seq, 'old' from {self._numbers(first, last)}"

    @contextmanager
    def captured(self, broker: Broker, *die: str) -> Iterator[subprocess.Popen[bytes]]:
        where = [self.kind, self.server, broker.bootstrap, self.topic, f"{self.schema}.*", *(die or ("", "", "0"))]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.cdc.snapshot_run", *where], cwd=Path(__file__).parents[2]
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def shop(kind: str, request: pytest.FixtureRequest) -> Shop:
    found = Shop(kind, request)
    found.run("create table item (id int primary key, v varchar(9))", "create table bare (n int)", found.rows(1, 1000))
    return found


def came(broker: Broker, topic: str, enough: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
    end = time.monotonic() + 30
    while True:
        found = [json.loads(value) for part in committed(broker, topic).values() for _, value in part]
        if enough(found):
            return found
        assert time.monotonic() < end, (len(found), found[-3:])
        time.sleep(0.1)


def types(found: list[dict[str, Any]]) -> list[str]:
    return [each["type"] for each in found if each["table"] == "item"]


def ask(broker: Broker, shop: Shop, *more: str) -> int:
    return cli.main(["cdc", "snapshot", shop.topic, "--to", f"kafka://{broker.bootstrap}", "--json", *more])


@pytest.mark.parametrize("kind", [*KINDS, pytest.param("mysql", marks=pytest.mark.mysql)])
def test_tables_of_a_running_capture_come_again_and_rows_that_are_gone_go(
    shop: Shop, broker: Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with shop.captured(broker):
        came(broker, shop.topic, lambda found: types(found).count("bootstrap-insert") == 1000)
        gone = Producer({"bootstrap.servers": broker.bootstrap})  # a row that the source has not, and no log says of it
        for key in (7777, 0):
            gone.produce(shop.topic, GONE.format(shop.schema, key).encode(), str(key).encode())
        gone.flush()
        assert ask(broker, shop, "--tables", f"{shop.schema}.i*,{shop.schema}.imet") == 1
        answer = json.loads(capsys.readouterr().out)
        assert list(answer["tables"]) == [f"{shop.schema}.item"]
        assert list(answer["refused"]) == [f"{shop.schema}.imet"]
        shop.run(
            "update item set v = 'new' where id = 500", "delete from item where id = 7", "insert into bare values (1)"
        )
        found = came(
            broker, shop.topic, lambda found: "bootstrap-complete" in types(found) and "delete" in types(found)
        )
    assert types(found).count("bootstrap-complete") == 4  # in each partition
    target = SQLiteStore(tmp_path)
    put(target, found)
    rows = dict(target.look("id, v", target.mirrored(f"{shop.schema}.item")))
    assert rows == {n: "new" if n == 500 else "old" for n in range(1, 1001) if n != 7}


def put(store: MirroringStore, found: list[dict[str, Any]]) -> None:
    read = reader_of("maxwell")
    changes = [
        change
        for each in found
        if each["table"] == "item"
        for change in read(Message(None, json.dumps(each).encode(), 0))
    ]
    with opened(store) as sink:
        for number, start in enumerate(range(0, len(changes), 300)):
            give(sink, number, *changes[start : start + 300])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_capture_that_is_killed_around_its_answer_begins_once(shop: Shop, broker: Broker, when: str) -> None:
    """The answer and what is to come are one transaction: neither is there without the other."""
    with shop.captured(broker):
        came(broker, shop.topic, lambda found: types(found).count("bootstrap-insert") == 1000)
    with ThreadPoolExecutor(1) as beside:
        answer = beside.submit(ask, broker, shop, "--tables", f"{shop.schema}.item")
        with shop.captured(broker, "tell", when, "1") as process:
            assert process.wait(60) == -9
        with shop.captured(broker):
            found = came(broker, shop.topic, lambda found: types(found).count("bootstrap-complete") == 4)
        assert answer.result() == 0
    assert Counter(each["data"]["id"] for each in found if each["type"] == "bootstrap-insert") == dict.fromkeys(
        range(1, 1001), 2
    )


@pytest.mark.parametrize("kind", KINDS[:1])
def test_a_kafka_that_goes_away_behind_the_answer_gets_each_row_once_more(shop: Shop, tmp_path: Path) -> None:
    with Broker(tmp_path) as first, shop.captured(first):
        port = int(first.bootstrap.rpartition(":")[2])
        came(first, shop.topic, lambda found: types(found).count("bootstrap-insert") == 1000)
        assert ask(first, shop, "--tables", f"{shop.schema}.item") == 0
        first.close()
        with Broker(tmp_path, port=port) as second:
            found = came(second, shop.topic, lambda found: types(found).count("bootstrap-complete") == 4)
    assert Counter(each["data"]["id"] for each in found if each["type"] == "bootstrap-insert") == dict.fromkeys(
        range(1, 1001), 2
    )


def topic_of(broker: Broker, topic: str) -> list[Any]:
    return [json.loads(value) if value else None for _, value in committed(broker, topic)[0]]


def test_who_gets_no_answer_takes_the_request_back_and_is_told_why(
    broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for topic in ("till.position", "shop.position", "shop.snapshot"):
        Admin({"bootstrap.servers": broker.bootstrap}).make(topic, 1)
    command = ["cdc", "snapshot", "shop", "--to", f"kafka://{broker.bootstrap}", "--tables", "shop.item"]
    monkeypatch.setattr("waterclock.cdc.ask.WAIT_S", 0.5)
    for said, code, why in (
        (command, 1, "The capture shop did not answer within 0.5 seconds: it does not run"),
        ([*command[:2], "shup", *command[3:]], 2, "No capture is called shup in this Kafka. There is: "),
        ([*command[:2], "till", *command[3:]], 2, "The capture till was never run so that it can be asked"),
        ([*command[:-1], ","], 2, "name the tables that are to come, such as --tables shop.item,shop.sale"),
        ([*command, "--to", "127.0.0.1:9092"], 2, "--to 127.0.0.1:9092: write kafka://host:9092."),
    ):
        assert cli.main(said) == code
        assert why in " ".join(capsys.readouterr().err.split())
    monkeypatch.setattr("waterclock.cdc.ask._answer", Mock(side_effect=KeyboardInterrupt))
    assert cli.main(command) == 1
    assert topic_of(broker, "shop.snapshot") == [{"tables": ["shop.item"]}, None] * 2


WORDS = "--to kafka://h:9092 --tables shop.item"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (f"cdc snapshot shop {WORDS} --onec", "waterclock cdc snapshot: error: unrecognized arguments: --onec;"),
        (f"cdc snapshot {WORDS}", "waterclock cdc snapshot: error: the following arguments are required: NAME"),
        ("cdc snapshot shop --to kafka://h:9092", "waterclock cdc snapshot: error: the following arguments are"),
        (f"cdc snapshto shop {WORDS}", "unrecognized arguments: shop; did you mean 'snapshot'?"),
        (
            f"cdc {WORDS} snapshot shop",
            "unrecognized arguments: shop; snapshot has to stand first: waterclock cdc snap",
        ),
        (f"snapshot shop {WORDS}", "did you mean 'waterclock cdc snapshot'?"),
        (f"cdc mysql://a@b/c shop {WORDS}", "unrecognized arguments: shop; too many of them"),
        (f"cdc mysql://a@b/c --jsno {WORDS}", "unrecognized arguments: --jsno; did you mean '--json'?"),
    ],
)
def test_what_is_written_otherwise_is_told_how_it_is_written(
    said: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(said.split())
    assert why in capsys.readouterr().err


def test_a_capture_may_have_the_name_of_the_command_beside_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["cdc", "mysql://a@b/c", "--name", "snapshot", "--to", "127.0.0.1"]) == 2
    assert "'127.0.0.1' is no address of a topic" in capsys.readouterr().err


@pytest.mark.mariadb
def test_the_servers_own_tables_are_nobodys_and_do_not_come(mariadb: MariaServer, database: str) -> None:
    """Of a capture of all tables `--tables *` brought the server's own too: in MySQL the passwords of its users."""
    mariadb.run(
        f"create table {POSITIONS} (name varchar(9) primary key)",
        "create table t (id int primary key)",
        database=database,
    )
    reader = mariadb.reader(Position(mariadb.place()), terms=Terms(snapshot=INITIAL))
    chunks = BinlogChunks(reader, mariadb.login(), SystemClock())
    with closing(SnapshotSource(reader, chunks, SystemClock())) as source:
        answer = source.ask(["*"])
    assert answer is not None
    named = {*answer.tables, *answer.refused}
    assert f"{database}.t" in named
    assert not [name for name in named if name.startswith("mysql.") or name.endswith(POSITIONS)]
