"""Debezium's engine as a contender: in a process of its own, JSON without schemas, and nobody who takes what it makes.

Rule 1: its place is made before anything is written, by a change to a table of its own (MARK): it makes no snapshot, and
        then reads the same log as ours from there.
Rule 2: what it takes to start (a JVM, its classes) is told apart: `start_cpu_s`, until its first change.
Rule 3: what keeps it from being measured is a `NotMeasured` with its reason.
Rule 4: behind its place stands one more change of MARK. Its connector of MySQL does not see where a transaction of MariaDB
        begins: it stores the place behind the last event, and how many of that one's rows it told. The next start leaves
        out so many rows of the event that comes then.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from waterclock.bench.cdc.ended import ended
from waterclock.bench.kafka.harness import WORDS, NotMeasured, class_path, compile_all, missing

NAME = "Debezium 3.6.1 embedded, no sink"
MARK = "mark"  # a database of MariaDB, a schema of PostgreSQL, with one table: `mark.place (id int primary key)`
_COMMON = {
    "name": "bench",
    "topic.prefix": "bench",
    "snapshot.mode": "no_data",
    "tombstones.on.delete": "false",
    "converter.schemas.enable": "false",
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
    "offset.flush.interval.ms": "1000",
    "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
}
_MYSQL = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "database.hostname": "127.0.0.1",
    "database.user": "root",
    "database.password": "",
    "database.server.id": "4711",
    "connect.keep.alive": "false",
    "include.schema.changes": "false",
}
_POSTGRES = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.hostname": "127.0.0.1",
    "plugin.name": "pgoutput",
    "publication.name": "bench",
    "publication.autocreate.mode": "disabled",
    "database.user": "postgres",
    "database.password": "",
}


@dataclass(frozen=True, slots=True)
class Debezium:
    """The engine, compiled, with its jars."""

    folder: Path
    jars: str

    def engine(self, kind: str, name: str, settings: Mapping[str, str]) -> Engine:
        """One that reads a `mysql` or a `postgres`; its place and its history are files of its own `name`."""
        own = {
            "offset.storage.file.filename": f"{self.folder}/{name}.offsets",
            "schema.history.internal.file.filename": f"{self.folder}/{name}.history",
        }
        for left in own.values():  # of another server, of a size before
            Path(left).unlink(missing_ok=True)
        given = {**_COMMON, **(_MYSQL if kind == "mysql" else _POSTGRES), **own, **settings}
        file = self.folder / f"{name}.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in given.items()), encoding="utf-8")
        return Engine(file, os.pathsep.join([str(self.folder / "programs"), self.jars]))


@dataclass(frozen=True, slots=True)
class Engine:
    """It goes on where it ended; `unplaced`: why it has no place to go on from."""

    settings: Path
    path: str
    unplaced: str = ""

    def placed(self, mark: Callable[[], object]) -> Engine:
        """Rules 1 and 4: `mark` writes a change to the table of MARK; it is called until the engine has seen one, and once
        more."""
        with subprocess.Popen(
            self._command(1, MARK), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                while process.poll() is None:
                    mark()
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(1)
            finally:
                process.kill()
            assert process.stderr is not None
            why = " ".join(process.stderr.read().split())[-WORDS:]
        if process.returncode:
            return replace(self, unplaced=f"it failed before anything was written: {why or 'it said nothing'}")
        mark()
        return self

    def until(self, changes: int, schema: str) -> dict[str, Any]:
        """What it told after so many changes of this schema's tables, and what it took; NotMeasured without a place."""
        if self.unplaced:
            raise NotMeasured(self.unplaced)
        return ended(NAME, self._command(changes, schema))

    def _command(self, changes: int, schema: str) -> list[str]:
        options = ["-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        return ["java", *options, "-cp", self.path, "Embedded", str(self.settings), str(changes), f"bench.{schema}."]


@contextmanager
def debezium() -> Iterator[Debezium]:
    """The engine in a folder that is gone afterwards; NotMeasured where it cannot be had."""
    if lacking := missing():
        raise NotMeasured(f"it needs {', '.join(lacking)} on the PATH (Debian: apt install default-jdk-headless maven)")
    with TemporaryDirectory(prefix="waterclock-debezium-") as name, as_file(files("waterclock.bench.cdc")) as sources:
        folder = Path(name)
        jars = class_path(sources / "java" / "pom.xml", folder / "jars.txt")
        compile_all([sources / "java" / "Embedded.java"], folder / "programs", jars)
        yield Debezium(folder, jars)
