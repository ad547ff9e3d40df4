"""A MariaDB server of the tests' own: in a temporary folder, on a free port, with a binlog, gone when they end."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pymysql
import pytest

from waterclock.cdc.mysql.reader import BinlogReader
from waterclock.cdc.mysql.server import MySqlLogin
from waterclock.cdc.position import Position
from waterclock.cdc.source import TableFilter
from waterclock.changes.maxwell import MaxwellMessage

SERVER = next(
    (path for name in ("mariadbd", "mysqld") if (path := shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin"))),
    None,
)
INSTALL = shutil.which("mariadb-install-db")
_OPTIONS = [
    "--bind-address=127.0.0.1",
    "--log-bin=binlog",
    "--server-id=1",
    "--binlog-format=ROW",
    "--binlog-row-metadata=FULL",
    "--innodb-buffer-pool-size=64M",
    "--innodb-flush-log-at-trx-commit=0",
    "--skip-log-slave-updates",
    "--skip-slave-start",
    "--debug-no-sync",
    "--skip-name-resolve",
    "--character-set-server=utf8mb4",
    "--max-allowed-packet=64M",
]


NEXT_SECOND = "do sleep(1.05 - microsecond(now(6)) / 1000000)"
"""Waits for it, and for the file system's clock, which is some milliseconds slow: the second of a table is a file's."""


class MariaServer:
    """`options` are the server's own, and win over the ones above. `executed`: the variable that says what it committed."""

    executed = "gtid_binlog_pos"

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self._options = folder, options
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def _temporary(self) -> Path:
        """A place of its own: a MariaDB that starts removes the temporary tables of all others that share its `tmpdir`."""
        return self.folder.with_name(f"{self.folder.name}.tmp")

    def install(self) -> None:
        assert INSTALL is not None
        self._temporary.mkdir()
        who = ["--user=root", "--auth-root-authentication-method=normal", "--skip-test-db"]
        place = [f"--datadir={self.folder}", f"--tmpdir={self._temporary}"]
        command = [INSTALL, "--no-defaults", *place, *who]
        subprocess.run(command, check=True, capture_output=True, timeout=120)

    def command(self) -> list[str]:
        """What starts it, but for where it lies and the options of its own."""
        assert SERVER is not None
        return [SERVER, "--no-defaults", "--user=root", *_OPTIONS]

    def start(self) -> None:
        place = [
            f"--datadir={self.folder}",
            f"--tmpdir={self._temporary}",
            f"--port={self.port}",
            f"--socket={self.folder}/s",
            f"--pid-file={self.folder}/pid",
        ]
        log = (self.folder / "log").open("ab")
        self._process = subprocess.Popen([*self.command(), *place, *self._options], stdout=log, stderr=log)
        log.close()
        end = time.monotonic() + 60
        while True:
            with suppress(pymysql.OperationalError), self.connection():
                return
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            assert time.monotonic() < end
            time.sleep(0.05)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    @contextmanager
    def connection(self, **settings: Any) -> Iterator[pymysql.connections.Connection]:
        # PyMySQL reads all certificates of the system for a connection that may have TLS
        given = {"charset": "utf8mb4", "autocommit": True, "ssl_disabled": True, **settings}
        connection = pymysql.connect(host="127.0.0.1", port=self.port, user="root", password="", **given)
        try:
            yield connection
        finally:
            connection.close()

    def run(self, *statements: str, **settings: Any) -> list[tuple[Any, ...]]:
        """The statements, one after the other; the rows of the last one."""
        with self.connection(**settings) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def numbers(self, first: int, last: int) -> str:
        """A table of them, in its column seq."""
        return f"seq_{first}_to_{last}"

    def place(self) -> str:
        return str(self.run(f"select @@global.{self.executed}")[0][0]).replace("\n", "")

    def login(self, server_id: int = 4711) -> MySqlLogin:
        return MySqlLogin("127.0.0.1", self.port, "root", "", server_id)

    def reader(self, start: str | Position, *tables: str, **options: Any) -> BinlogReader:
        position = Position(start) if isinstance(start, str) else start
        return BinlogReader(self.login(), position, TableFilter(tables, frozenset({"mysql"})), **options)

    def changes(self, start: str | Position, *tables: str, **options: Any) -> list[MaxwellMessage]:
        """All changes after `start`, up to what is committed now."""
        return list(self.changes_one_by_one(start, *tables, **options))

    def changes_one_by_one(self, start: str | Position, *tables: str, **options: Any) -> Iterator[MaxwellMessage]:
        reader, end = self.reader(start, *tables, **options), self.place()
        try:
            if reader.reached(end):
                return
            for item in reader.items():
                if isinstance(item, MaxwellMessage):
                    yield item
                elif reader.reached(end):
                    return
        finally:
            reader.close()


@contextmanager
def running_server(folder: Path, *options: str) -> Iterator[MariaServer]:
    """A server in `folder`, installed and started; the test is skipped if this machine has none."""
    if SERVER is None or INSTALL is None:
        pytest.skip("no MariaDB on this machine (Debian: apt install mariadb-server)")
    server = MariaServer(folder, *options)
    with started(server):
        yield server


@contextmanager
def started(server: MariaServer) -> Iterator[None]:
    """Installed, and past its log's first second: a table that is made in that counts as older than the log."""
    server.install()
    server.start()
    try:
        server.run(NEXT_SECOND)
        yield
    finally:
        server.kill()


def as_found(changes: Sequence[MaxwellMessage]) -> list[tuple[str, dict[str, Any]]]:
    """What most tests look at: the type of each change, and its values."""
    return [(change.type, change.values()) for change in changes]


class MariaSource:
    """A database of a test's own, and what was changed in it since the test began."""

    def __init__(self, server: MariaServer, name: str) -> None:
        self.server, self.name = server, name
        self.every = f"{name}.*"
        self.here = server.place()

    def run(self, *statements: str, **settings: Any) -> list[tuple[Any, ...]]:
        """The statements in this database, over a connection of their own; the rows of the last one."""
        return self.server.run(*statements, database=self.name, **settings)

    def changes(self, **options: Any) -> list[MaxwellMessage]:
        return self.server.changes(self.here, self.every, **options)

    def found(self, **options: Any) -> list[tuple[str, dict[str, Any]]]:
        return as_found(self.changes(**options))

    def reader(self, **options: Any) -> BinlogReader:
        return self.server.reader(self.here, self.every, **options)
