"""Kafka Connect in one process, with Debezium's connectors and its JDBC sink, from jars that Maven brings once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cdc.mariadb import MariaServer
from waterclock.bench.servers.server import free_ports

LIB = Path(os.environ.get("CONNECT_LIB") or Path(__file__).parents[3] / "build" / "connect" / "lib")
JSON = "org.apache.kafka.connect.json.JsonConverter"


def jars() -> str:
    """The class path; the test is skipped where there is no Maven."""
    if not any(LIB.glob("debezium-connector-jdbc*.jar")):
        if not shutil.which("mvn"):
            pytest.skip("no Maven on this machine (Debian: apt install maven)")
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={LIB}"]
        pom = str(Path(__file__).with_name("pom.xml"))
        subprocess.run(["mvn", "-q", "-B", "-f", pom, *goal], check=True, stdin=subprocess.DEVNULL)
    return f"{LIB}/*"


@contextmanager
def connect(folder: Path, bootstrap: str, connector: Mapping[str, str], schemas: bool = False) -> Iterator[Path]:
    """A worker with this connector, stopped in its own way at the end; its offsets are in the file that is given."""
    path, offsets = jars(), folder / "offsets"
    (port,) = free_ports(1)
    worker = {
        "bootstrap.servers": bootstrap,
        "key.converter": JSON,
        "value.converter": JSON,
        "key.converter.schemas.enable": str(schemas).lower(),
        "value.converter.schemas.enable": str(schemas).lower(),
        "offset.storage.file.filename": str(offsets),
        "offset.flush.interval.ms": "1000",
        "plugin.discovery": "only_scan",
        "listeners": f"http://127.0.0.1:{port}",
    }
    for name, settings in (("worker", worker), ("connector", connector)):
        text = "".join(f"{key}={value}\n" for key, value in settings.items())
        (folder / f"{name}.properties").write_text(text.replace("\\", "\\\\"))
    files = [str(folder / f"{name}.properties") for name in ("worker", "connector")]
    log = (folder / "connect.log").open("ab")
    options = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = ["java", *options, "-cp", path, "org.apache.kafka.connect.cli.ConnectStandalone", *files]
    process = subprocess.Popen(command, stdout=log, stderr=log)
    log.close()
    try:
        yield offsets
        assert process.poll() is None, (folder / "connect.log").read_text()[-3000:]
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def until(holds: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def of_mariadb(server: MariaServer, folder: Path, bootstrap: str, database: str) -> dict[str, str]:
    """Debezium's connector of a database's tables, which makes no snapshot of rows."""
    return {
        "name": "moved",
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "topic.prefix": database,
        "database.hostname": "127.0.0.1",
        "database.port": str(server.port),
        "database.user": "root",
        "database.password": "",
        "database.server.id": "4712",
        "table.include.list": rf"{database}\.item",
        "snapshot.mode": "no_data",
        "include.schema.changes": "false",
        "max.batch.size": "100",
        "max.queue.size": "200",
        "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
        "schema.history.internal.file.filename": str(folder / "history"),
    }


def of_postgres(folder: str, database: str, slot: str) -> dict[str, str]:
    return {
        "name": "moved",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "topic.prefix": slot,
        "database.hostname": folder,
        "database.port": "5432",
        "database.user": "postgres",
        "database.dbname": database,
        "plugin.name": "pgoutput",
        "slot.name": slot,
        "publication.name": slot,
        "publication.autocreate.mode": "disabled",
        "table.include.list": r"public\.item",
        "snapshot.mode": "no_data",
        "max.batch.size": "100",
        "max.queue.size": "200",
    }
