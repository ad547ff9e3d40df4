"""Kafka Connect with Debezium's JDBC sink reads what our captures write with `--form debezium-schemas`: the table that it
fills in PostgreSQL is the source's, row for row and column for column.

Connect and the sink come by Maven, and so this is among the tests with servers.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cdc.mariadb import MariaSource
from tests.cdc.postgres import run
from tests.samples import free_port
from waterclock import cli
from waterclock.bench.kafka.harness import class_path
from waterclock.testing import Broker

pytestmark = pytest.mark.servers
POM = Path(__file__).parent / "java" / "sink.xml"
LEAN = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
COLUMNS = "id, big, note, price, day, yes, raw, ratio, at"
TABLE = (
    "create table item (id int primary key, big bigint, note varchar(80), price numeric(12, 2), day date, yes {yes}, "
    "raw {raw}, ratio double precision, at {moment})"
)
ROW = "insert into item select {id}, {id} * 9000000000, 'é', {id} / 4.0, date '2026-02-03', {yes}, {raw}, {id} / 3.0, {at}"
ALTERED = (
    "update item set note = 'other', price = null where id = 7",
    "update item set id = 2000 where id = 1",
    "delete from item where id in (3, 5)",
    "insert into item (id) values (1000)",
    "alter table item add column more int default 5",
    "update item set more = 6 where id = 9",
)
Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> str:
    if not shutil.which("mvn"):
        pytest.skip("Kafka Connect comes by Maven (Debian: apt install default-jre-headless maven)")
    return class_path(POM, tmp_path_factory.mktemp("connect") / "jars")


@contextmanager
def connect(jars: str, folder: Path, bootstrap: str, topic: str, url: str) -> Iterator[Path]:
    """Kafka Connect with the sink as its one connector; what it says goes to the file that is given."""
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    worker = {
        "bootstrap.servers": bootstrap,
        "key.converter": json_converter,
        "value.converter": json_converter,
        "offset.storage.file.filename": f"{folder}/offsets",
        "listeners": f"http://127.0.0.1:{free_port()}",
    }
    sink = {
        "name": "sink",
        "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
        "topics": topic,
        "connection.url": url,
        "connection.username": "postgres",
        "connection.password": "none",
        "insert.mode": "upsert",
        "delete.enabled": "true",
        "primary.key.mode": "record_key",
        "schema.evolution": "basic",
        "collection.name.format": "item",
    }
    for name, settings in (("worker", worker), ("sink", sink)):
        (folder / name).write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    started = ["java", *LEAN, "-cp", jars, "org.apache.kafka.connect.cli.ConnectStandalone"]
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen([*started, str(folder / "worker"), str(folder / "sink")], stdout=said, stderr=said)
        try:
            yield folder / "said"
        finally:
            process.kill()
            process.wait()


def is_sunk(query: str, write: Callable[..., Rows], url: str, said: Path) -> None:
    """What the sink's table has becomes what the source's has, within the time that a JVM may need."""
    until_s, wanted, found = time.monotonic() + 240, texts(write(query)), None
    while found != wanted and time.monotonic() < until_s:
        time.sleep(0.5)
        with suppress(psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
            found = texts(run(url, query))
    assert found == wanted, said.read_text()[-3000:]


def texts(rows: Rows) -> list[list[str]]:
    """Rows by their keys; each value as a text that does not hang on the database."""
    return [[_text(value) for value in row] for row in sorted(rows)]


def _text(value: Any) -> str:
    if isinstance(value, datetime):
        value = value.replace(tzinfo=None)  # of MariaDB it has none, and all of them are UTC
    return str(value.normalize() if isinstance(value, Decimal) else value)


@pytest.mark.postgres
def test_postgresqls_changes_fill_a_table(jars: str, port: int, broker: Broker, tmp_path: Path) -> None:
    at = f"postgresql://postgres@127.0.0.1:{port}"
    run(f"{at}/postgres", "create database shop", "create database kept")
    write = partial(run, f"{at}/shop")
    write(TABLE.format(yes="boolean", raw="bytea", moment="timestamptz"))
    row = ROW.format(id="n", yes="n % 2 = 0", raw="decode(lpad(to_hex(n), 8, '0'), 'hex')", at="to_timestamp(n)")
    write(f"{row} from generate_series(1, 300) n")
    source = ["--slot", "shop", "--tables", "public.item", f"postgres://postgres@127.0.0.1:{port}/shop"]
    fills(jars, broker, tmp_path, write, source, "shop.public.item", f"{at}/kept")


@pytest.mark.mariadb
@pytest.mark.postgres
def test_mariadbs_changes_fill_a_table(
    jars: str, port: int, source: MariaSource, broker: Broker, tmp_path: Path
) -> None:
    at = f"postgresql://postgres@127.0.0.1:{port}"
    run(f"{at}/postgres", "create database keeps")
    source.run(TABLE.format(yes="tinyint", raw="varbinary(9)", moment="datetime(6)"))
    row = ROW.format(id="seq", yes="seq % 2", raw="unhex(lpad(hex(seq), 8, '0'))", at="from_unixtime(seq)")
    source.run("set time_zone = '+00:00'", f"{row} from seq_1_to_300")
    words = ["--tables", f"{source.name}.item", f"mysql://root@127.0.0.1:{source.server.port}/{source.name}"]
    fills(jars, broker, tmp_path, source.run, words, f"{source.name}.{source.name}.item", f"{at}/keeps")


def fills(
    jars: str, broker: Broker, folder: Path, write: Callable[..., Rows], source: list[str], topic: str, url: str
) -> None:
    """Rows older than the log, then changes, a row of another key, a new column."""
    capture = [
        "cdc",
        *source,
        "--to",
        f"kafka://{broker.bootstrap}/{topic.partition('.')[0]}",
        "--form",
        "debezium-schemas",
        "--once",
    ]
    assert cli.main(capture) == 0
    with connect(jars, folder, broker.bootstrap, topic, f"jdbc:{url.replace('postgres@', '')}") as said:
        is_sunk(f"select {COLUMNS} from item", write, url, said)
        write(*ALTERED)
        assert cli.main(capture) == 0
        is_sunk(f"select {COLUMNS} from item", write, url, said)
        is_sunk("select id, more from item where id = 9", write, url, said)
