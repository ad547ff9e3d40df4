"""Servers of sinks that die, end connections, and are reached by a way that is cut: PostgreSQL and MariaDB."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tests.sinks.database_stores import MySQLStore
from tests.sinks.stores import PostgresStore, Store
from waterclock import sinks
from waterclock.sinks import Sink

if TYPE_CHECKING:
    import pytest

    from tests.cdc.mariadb import MariaServer
    from tests.postgres_server import PostgresServer


class FarServer(Protocol):
    """A server, and a store of a test's own on it."""

    server: Any
    scheme: str
    password: str  # the variable of the environment that holds it

    @property
    def store(self) -> Store: ...

    def crash(self) -> None: ...

    def end_connections(self) -> None:
        """End those of sinks, and return when they are gone."""

    def way(self, cut: str) -> Any:
        """A context with a sink that comes by a way which is cut `before` its commit is there, or `after`."""

    def until_undone(self) -> None:
        """Return when no transaction of a sink is open any more."""

    def until_waiting(self) -> None:
        """Return when a sink waits for another one's transaction."""

    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let no sink wait for long."""

    def login(self, name: str, password: str) -> Any:
        """A sink of a user of that name, who is made, and may do all in the store."""


class FarPostgres:
    scheme = "postgresql"
    password = "PGPASSWORD"

    def __init__(self, server: PostgresServer) -> None:
        self.server, self.store = server, PostgresStore(server)
        self.crash = server.crash

    def end_connections(self) -> None:
        query = "FROM pg_stat_activity WHERE application_name = 'waterclock'"
        self.store.ask(f"SELECT pg_terminate_backend(pid) {query}")
        until_none(self.store, f"SELECT 1 {query}")

    @contextmanager
    def way(self, cut: str) -> Iterator[Any]:
        def connect() -> socket.socket:
            made = socket.socket(socket.AF_UNIX)
            made.connect(str(self.server.folder / ".s.PGSQL.5432"))
            return made

        with tempfile.TemporaryDirectory(prefix="way-", dir="/tmp") as folder:
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(str(Path(folder) / ".s.PGSQL.5432"))
            sink = sinks.PostgresSink(f"postgresql://postgres@/postgres?host={folder}", schema=self.store.schema)
            with closing(Way(listening, connect, b"COMMIT\0", cut)), closing(sink):
                yield sink

    def until_undone(self) -> None:
        until_none(self.store, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory'")

    def until_waiting(self) -> None:
        until(self.store, "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")

    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from waterclock.postgres import session  # its package is that of an extra

        monkeypatch.setitem(session._IN_A_TRANSACTION, "lock_timeout", "50ms")

    def login(self, name: str, password: str) -> Any:
        self.store.run(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        self.store.run(f"GRANT ALL ON SCHEMA {self.store.schema} TO {name}")
        return sinks.PostgresSink(self.server.url(name), schema=self.store.schema)


class FarMySQL:
    scheme = "mysql"
    password = "MYSQL_PWD"

    def __init__(self, server: MariaServer) -> None:
        self.server, self.store = server, MySQLStore(server)
        self.crash = server.kill

    def end_connections(self) -> None:
        for (number,) in self.store.ask(self._others):
            self.store.run(f"KILL {number}")
        until_none(self.store, self._others)

    @contextmanager
    def way(self, cut: str) -> Iterator[Any]:
        listening = socket.socket()
        listening.bind(("127.0.0.1", 0))
        here, there = listening.getsockname()[1], self.server.port
        sink = sinks.MySQLSink(self.store.url.replace(f":{there}/", f":{here}/"))
        way = Way(listening, lambda: socket.create_connection(("127.0.0.1", there)), b"\x03COMMIT", cut)
        with closing(way), closing(sink):
            yield sink

    def until_undone(self) -> None:
        until_none(self.store, self._others)

    def until_waiting(self) -> None:
        until(self.store, "SELECT 1 FROM information_schema.processlist WHERE state = 'User lock'")

    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("waterclock.sinks.mysql.mysql._PATIENCE_S", 0)

    def login(self, name: str, password: str) -> Any:
        self.server.run(f"CREATE USER {name} IDENTIFIED BY '{password}'", f"GRANT ALL ON {self.store.name}.* TO {name}")
        return sinks.MySQLSink(self.store.url.replace("root@", f"{name}@"))

    @property
    def _others(self) -> str:
        return f"SELECT id FROM information_schema.processlist WHERE db = '{self.store.name}' AND id <> connection_id()"


def until(store: PostgresStore | MySQLStore, query: str) -> None:
    """Return when `query` finds something."""
    for _ in range(10_000):
        if store.ask(query):
            return
    raise AssertionError(f"nothing is there: {query}")


def until_none(store: PostgresStore | MySQLStore, query: str) -> None:
    """Return when `query` finds nothing any more."""
    for _ in range(2_000):
        if not store.ask(query):
            return
    raise AssertionError(f"still there: {store.ask(query)}")


# The way to a server


class Way:
    """A way that is cut at the first COMMIT: before it is handed over, or before its answer is.

    `listening` is where a sink comes; `connect` leads on to the server. `commit`: the bytes of a COMMIT.
    """

    def __init__(self, listening: socket.socket, connect: Callable[[], socket.socket], commit: bytes, cut: str) -> None:
        self._listening = listening
        self._connect = connect
        self._commit = commit
        self._cut = cut
        self._listening.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                with client, self._connect() as server:
                    self._pass_on(client, server)

    def _pass_on(self, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(target=self._answers, args=(server, client), daemon=True)
        back.start()
        while data := client.recv(65536):
            commits = self._commit in data and self._cut != "done"
            if commits and self._cut == "before":
                self._cut = "done"
                break
            if commits:
                self._cut = "now"
            server.sendall(data)
        for end in (server, client):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        back.join()

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65536):
                if self._cut == "now":  # the server has committed, and its answer is dropped here
                    self._cut = "done"
                    break
                client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(10)


class Interrupted:
    """A sink; once, before or after one of its calls, something happens to it."""

    def __init__(self, sink: Sink, call: str, when: str, happens: Callable[[], None]) -> None:
        self._sink, self._call, self._when, self._happens = sink, call, when, happens

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if (name, "before") == (self._call, self._when):
                self._once()
            result = getattr(self._sink, name)(*arguments)
            if (name, "after") == (self._call, self._when):
                self._once()
            return result

        return call

    def _once(self) -> None:
        self._when = "never"
        self._happens()
