"""The way to a server: `mysql-replication` does the handshake and asks for the stream, and hands the socket over. Packets
are read off it here, ahead in large pieces.

Rule 1: the package asks for the stream by GTID, in blocking mode. It is left before it reads the first event: its reader
        would connect again by itself after a break, from where it BEGAN, and pass everything on a second time.
Rule 2: nothing is read from a server that writes what cannot be read exactly; the check names the setting.
Rule 3: a password never stands in a message.
Rule 4: the socket is read by `Wire` and nowhere else from the moment the stream was asked for. Waiting ends when the time
        is over; what was read of a packet until then is kept for the next time.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import pymysql
from pymysqlreplication import BinLogStreamReader

from waterclock.cdc.mysql.binlog import EventFramer
from waterclock.errors import ConnectionLost, EnvironmentMissing, UsageError

T = TypeVar("T")
HEARTBEAT_S = 1.0
REFUSALS = (1044, 1045, 1227, 1698)  # the server's errors that say who may not
_CONNECT_S = 10
_STREAM = (b"\x12", b"\x1e")  # the commands that ask for a binlog: by place, and by MySQL's GTID set
_NO_TRANSACTIONS = (
    "ffffffff-ffff-ffff-ffff-ffffffffffff:1"  # nobody's: the package takes an empty set for "from now on"
)
_PIECE = 1 << 18
_FULL = 0xFFFFFF  # a packet of this length goes on in the next one

logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)  # it warns of what the check below says in our words


@dataclass(frozen=True, slots=True)
class MySqlLogin:
    """Where a server is, and who asks."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    server_id: int = 0
    tls: bool = False

    def settings(self) -> dict[str, Any]:
        found = {"host": self.host, "port": self.port, "user": self.user, "password": self.password}
        if self.tls:
            found["ssl"] = {"check_hostname": True}
        return {**found, "charset": "utf8mb4", "connect_timeout": _CONNECT_S}


class _StreamReady(Exception):
    """The stream was asked for, and the first event is about to be read: the package's part is done."""


class _Connection(pymysql.connections.Connection):  # type: ignore[misc]  # PyMySQL has no types
    """A connection that stops the package where the stream begins."""

    watching = False  # not yet while it logs in: bytes of a password may look like the command
    streaming = False

    def _write_bytes(self, data: bytes) -> None:
        super()._write_bytes(data)
        self.streaming = self.streaming or (self.watching and data[4:5] in _STREAM)

    def _read_packet(self, *arguments: Any, **named: Any) -> Any:
        if self.streaming:
            raise _StreamReady
        return super()._read_packet(*arguments, **named)


class Wire:
    """The packets of one connection."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._data = bytearray()
        self._at = 0
        self._parts: list[bytes] = []

    def packet(self, timeout_s: float) -> bytes | None:
        """The next packet; None if it is not whole after `timeout_s` seconds. ConnectionLost if there is no more."""
        while len(self._data) - self._at >= 4 or self._has(4, timeout_s):
            size = int.from_bytes(self._data[self._at : self._at + 3], "little")
            if len(self._data) - self._at < 4 + size and not self._has(4 + size, timeout_s):
                return None
            start = self._at + 4
            self._at = start + size
            piece = bytes(memoryview(self._data)[start : self._at])
            if size < _FULL and not self._parts:
                return piece
            self._parts.append(piece)
            if size < _FULL:
                whole, self._parts = b"".join(self._parts), []
                return whole
        return None

    def _has(self, count: int, timeout_s: float) -> bool:
        while len(self._data) - self._at < count:
            if self._at > _PIECE or self._at == len(self._data):
                del self._data[: self._at]
                self._at = 0
            self._socket.settimeout(timeout_s)
            try:
                piece = self._socket.recv(_PIECE)
            except TimeoutError:
                return False
            except OSError as error:
                raise ConnectionLost(f"The connection to the database broke: {error}.") from None
            if not piece:
                raise ConnectionLost("The database closed the connection.")
            self._data += piece
        return True


class BinlogStream:
    """A server's binlog from a place on, as packets."""

    def __init__(self, login: MySqlLogin, place: str, maria: bool, queries: bool) -> None:
        self._made: list[_Connection] = []
        self._reader = BinLogStreamReader(
            login.settings(),
            login.server_id,
            blocking=True,
            auto_position=place if maria or place else _NO_TRANSACTIONS,
            is_mariadb=maria,
            annotate_rows_event=queries,
            slave_heartbeat=HEARTBEAT_S,
            enable_logging=False,
            pymysql_wrapper=self._connected,
        )
        self._wire = Wire(self._taken_over(login))

    def packet(self, timeout_s: float) -> bytes | None:
        """The next packet; see Wire."""
        return self._wire.packet(timeout_s)

    def close(self) -> None:
        for connection in self._made:
            connection.close()

    def _connected(self, **settings: Any) -> _Connection:
        if "db" in settings:  # the package's word for it, which PyMySQL no longer likes
            settings["database"] = settings.pop("db")
        self._made.append(_Connection(**settings))
        self._made[-1].watching = True
        return self._made[-1]

    def _taken_over(self, login: MySqlLogin) -> socket.socket:
        try:
            self._reader.fetchone()
        except _StreamReady:
            taken: socket.socket = self._made[0]._sock
            return taken
        except (pymysql.MySQLError, OSError) as error:
            self.close()
            refused(login, error)
        raise ConnectionLost("The server answered before it was asked for its binlog.")


def began(login: MySqlLogin, maria: bool) -> int:
    """The second in which the oldest binlog was begun."""
    framing = EventFramer()
    with closing(BinlogStream(login, "", maria, False)) as stream:
        while (packet := stream.packet(_CONNECT_S)) is not None and not packet[0]:
            if (ts := framing.event(packet[1:]).ts) > 0:  # the first one is made up, and has none
                return ts
    raise ConnectionLost(f"{login.host}:{login.port} does not send its oldest binlog.")


def connected(login: MySqlLogin) -> pymysql.connections.Connection:
    """A connection for questions; UsageError if the server does not let this user in, EnvironmentMissing if it is away."""
    try:
        return pymysql.connect(**login.settings(), autocommit=True)
    except (pymysql.MySQLError, OSError) as error:
        refused(login, error)


def answer(login: MySqlLogin, ask: Callable[[Any], T]) -> T:
    """What `ask` finds out by a cursor of a connection of its own; errors as `connected` has them."""
    with closing(connected(login)) as connection:
        try:
            return ask(connection.cursor())
        except pymysql.MySQLError as error:
            refused(login, error)


def refused(login: MySqlLogin, error: Exception) -> NoReturn:
    """Say in a sentence why the server could not be read from."""
    code, text = (*error.args, "", "")[:2]
    who, where = login.user, f"{login.host}:{login.port}"
    if code in REFUSALS:
        raise UsageError(
            f"{where} does not let {who} read its binlog: {text}. Give the right password (--password-file, or "
            f"MYSQL_PWD), and: GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO {who}"
        )
    if code in (2006, 2013, 2014):
        raise ConnectionLost(f"{where} closed the connection: {text}.")
    raise EnvironmentMissing(
        f"There is no MySQL or MariaDB to talk to at {where}: {text or error}. Is it running there?"
    )
