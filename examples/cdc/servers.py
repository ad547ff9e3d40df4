"""The two databases of the demo: MariaDB, where the shop writes, and PostgreSQL, where its tables are mirrored.

Both are made in a temporary folder: PostgreSQL does not run as root, and its user may not enter every folder; and the
path of its socket has to be short.
"""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pymysql

from waterclock.clock import Clock
from waterclock.errors import EnvironmentMissing, WaterclockError
from waterclock.examples.ends import kill_all, undisturbed
from waterclock.examples.processes import Process

_PATIENCE_S = 60.0
_BINLOG = (
    "--log-bin=binlog",
    "--server-id=1",
    "--binlog-format=ROW",
    "--binlog-row-image=FULL",
    "--binlog-row-metadata=FULL",
    "--character-set-server=utf8mb4",
    "--skip-name-resolve",
    "--innodb-flush-log-at-trx-commit=0",
    "--innodb-buffer-pool-size=128M",
)
_PROGRAMS = {"mariadbd": "MariaDB", "mariadb-install-db": "MariaDB", "initdb": "PostgreSQL", "postgres": "PostgreSQL"}
_PACKAGES = {"MariaDB": "mariadb-server", "PostgreSQL": "postgresql"}
_POSTGRES = """
listen_addresses = ''
unix_socket_directories = '{folder}'
shared_buffers = 128MB
max_wal_size = 2GB
synchronous_commit = on
"""
# a table that is made in the binlog's first second may be older than it, so its rows would come by a snapshot too
_NEXT_SECOND = "do sleep(1.05 - microsecond(now(6)) / 1000000)"


def programs(what: str = "the demo", of: Sequence[str] = ("MariaDB", "PostgreSQL")) -> dict[str, str]:
    """Where the databases' programs are; EnvironmentMissing, in one sentence, where one is not that `what` needs."""
    known = [*map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), "/usr/sbin"]
    path = os.pathsep.join([os.environ.get("PATH", ""), *known])
    wanted = {name: product for name, product in _PROGRAMS.items() if product in of}
    found = {name: shutil.which(name, path=path) for name in wanted}
    packages = " ".join(_PACKAGES[product] for product in of)
    for name, product in wanted.items():
        if found[name] is None:
            raise EnvironmentMissing(
                f"{what} needs the servers of {' and '.join(of)}, and there is no {name} of {product} here: install "
                f"them (Debian: apt install {packages}) and run the same command again"
            )
    return {name: str(place) for name, place in found.items()}


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class MariaDB:
    """A MariaDB with a binlog, in `folder`.

    Its temporary files lie there too: a MariaDB that starts removes the temporary tables of all others that share its
    `tmpdir`, and by default that is the one of the whole machine. `options` are mariadbd's own.
    """

    def __init__(
        self, folder: Path, log: Path, found: dict[str, str], clock: Clock, options: Sequence[str] = ()
    ) -> None:
        self.port, self._clock = free_port(), clock
        me = pwd.getpwuid(os.geteuid()).pw_name
        data, temporary = folder / "data", folder / "tmp"
        temporary.mkdir(parents=True)
        own = ["--no-defaults", f"--datadir={data}", f"--tmpdir={temporary}", f"--user={me}"]
        make = [found["mariadb-install-db"], *own]
        _run([*make, "--auth-root-authentication-method=normal", "--skip-test-db"], log)
        place = [f"--port={self.port}", f"--socket={folder}/s", "--bind-address=127.0.0.1"]
        self.process = Process("MariaDB", [found["mariadbd"], *own, *place, *_BINLOG, *options], log, clock)

    @contextmanager
    def connection(self, **settings: Any) -> Iterator[pymysql.connections.Connection]:
        given = {"charset": "utf8mb4", "autocommit": True, **settings}
        connection = pymysql.connect(host="127.0.0.1", port=self.port, user="root", password="", **given)
        try:
            yield connection
        finally:
            connection.close()

    def start(self) -> None:
        self.process.start()
        _wait("MariaDB", lambda: self.place(), self._clock)
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute(_NEXT_SECOND)

    def place(self) -> str:
        """The GTID of the last transaction."""
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute("select @@global.gtid_binlog_pos")
            return str(cursor.fetchone()[0])


class Postgres:
    """A PostgreSQL in `folder`, reached by a socket there."""

    def __init__(self, folder: Path, log: Path, found: dict[str, str], clock: Clock) -> None:
        self._folder, self._clock = folder, clock
        user = _unprivileged() if os.geteuid() == 0 else None
        folder.mkdir()
        if user:
            shutil.chown(folder, user)
        data = folder / "data"
        made = ["-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]
        _run([found["initdb"], *made], log, user)
        with (data / "postgresql.conf").open("a") as conf:
            conf.write(_POSTGRES.format(folder=folder))
        self.process = Process("PostgreSQL", [found["postgres"], "-D", str(data)], log, clock, user)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}"

    def start(self, database: str) -> None:
        self.process.start()
        _wait("PostgreSQL", lambda: self.ask("postgres", "select 1"), self._clock)
        self.ask("postgres", f"create database {database} encoding 'UTF8' template template0")

    def ask(self, database: str, query: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url(database), autocommit=True, connect_timeout=5) as connection:
            cursor = connection.execute(query)
            return cursor.fetchall() if cursor.description else []


def _run(command: list[str], log: Path, user: str | None = None) -> None:
    """To its end; where somebody ends us first, with all that it started, which would go on filling its folder."""
    with log.open("ab") as out:
        made = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, cwd="/", user=user
        )
    try:
        made.wait()
    except BaseException:
        with undisturbed():
            kill_all(made.pid)
            made.wait()
        raise
    if made.returncode:
        words = " ".join(log.read_text(errors="replace")[-400:].split())
        raise WaterclockError(f"{Path(command[0]).name} failed: {words}")


def _wait(what: str, ask: Callable[[], object], clock: Clock) -> None:
    until_s = clock.monotonic_s() + _PATIENCE_S
    while clock.monotonic_s() < until_s:
        with suppress(pymysql.Error, psycopg.Error):
            ask()
            return
        clock.sleep_s(0.05)
    raise EnvironmentMissing(f"{what} did not start within {_PATIENCE_S:.0f} s; its log is in the demo's folder")


def _unprivileged() -> str:
    names = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
