"""A server of MySQL or MariaDB: whether it writes a binlog that can be read exactly, what else it knows, and the way to its
stream. `mysql-replication` does the handshake and asks for the stream, and hands the socket over. Packets are read off
it here, ahead in large pieces.

Rule 1: nothing is read from a server that writes what cannot be read exactly. Every setting that would lose something is
        named, with what to set it to; all of them at once.
Rule 2: the package asks for the stream by GTID, in blocking mode. It is left before it reads the first event: its reader
        would connect again by itself after a break, from where it BEGAN, and pass everything on a second time.
Rule 3: a password never stands in a message.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import pymysql
from pymysqlreplication import BinLogStreamReader

from waterclock.cdc.mysql.binlog import BinlogEvent, EventFramer
from waterclock.cdc.mysql.wire import Connection, StreamConnection, StreamReady, Wire
from waterclock.errors import ConnectionLost, EnvironmentMissing, UsageError, unstopped
from waterclock.outside import socket

OWN = frozenset({"mysql", "information_schema", "performance_schema", "sys"})
_IMAGE = "binlog_row_image"
_RIGHT = {
    "binlog_format": ("ROW",),
    _IMAGE: ("FULL",),
    "gtid_mode": ("ON", "ON_PERMISSIVE"),
    "binlog_transaction_compression": ("OFF",),
    "binlog_row_value_options": ("",),
}
_IN_STEPS = "gtid_mode"  # a server that runs takes it in three steps only
_QUESTION = (
    "show global variables where variable_name in ('log_bin', 'version', 'gtid_binlog_pos', 'gtid_executed', "
    "'gtid_current_pos', 'binlog_row_metadata', 'lower_case_table_names', "
    + ", ".join(f"'{name}'" for name in _RIGHT)
    + ")"
)


REAL = "table_type in ('BASE TABLE', 'SYSTEM VERSIONED')"  # no views
T = TypeVar("T")
HEARTBEAT_S = 1.0
_TAKEN = "with the same server_uuid/server_id"  # who came back after a break is the later one, and never hears it
_ACCOUNT = re.compile(r"'[^']*'@'[^']*'")  # as a refusal names it
_RIGHTS = (1044, 1227)  # the server's errors that say which right is missing
REFUSALS = (*_RIGHTS, 1045, 1698)  # these, and those that say who may not come in
_REMEDIES = {
    1040: " Raise max_connections there, or end other connections.",
    1969: " Somebody locks a table for minutes, as CREATE TABLE ... SELECT does: wait for its end (SHOW PROCESSLIST).",
}
_NO_TLS = 2026  # and every other fault of TLS: a certificate that is not trusted, or of another name
CONNECT_S = 10
_NO_TRANSACTIONS = (
    "ffffffff-ffff-ffff-ffff-ffffffffffff:1"  # nobody's: the package takes an empty set for "from now on"
)
# MySQL's catalog says how large a table was up to a day ago; the comment is MySQL's alone, from 8.0.3 on. In the server's
# time zone a CREATE_TIME of an hour that comes twice would be an hour late
_AS_NOW = (
    "set autocommit = 1, time_zone = '+00:00' /*!80003, information_schema_stats_expiry = 0 */"
    "/*M!100103, max_statement_time = 300 */"  # MariaDB's catalog waits for whoever locks any table
)
logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)  # it warns of what the check below says in our words


@dataclass(frozen=True, slots=True)
class MySqlServer:
    """`maria`: MariaDB or MySQL. `place`: its last transaction. `known`: that, and what it only replicated.
    `names_columns`: whether its binlog does. `lowers_names`: whether tables' names are small letters, whatever a
    statement writes."""

    maria: bool
    version: str
    place: str
    known: str
    names_columns: bool
    lowers_names: bool

    @property
    def asks_place(self) -> str:
        """The statement that tells the binlog's end: MySQL gave it another name in 8.2, and took the old one away."""
        is_new = not self.maria and tuple(map(int, re.findall(r"\d+", self.version)[:2])) >= (8, 2)
        return f"show {'binary log' if is_new else 'master'} status"


def inspected(cursor: Any, partial: bool = False) -> MySqlServer:
    """The server behind a cursor; UsageError with everything that has to be set differently. `partial`: rows may come in
    part."""
    cursor.execute(_QUESTION)
    found = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    if found.get("log_bin", "OFF").upper() not in ("ON", "1"):
        raise UsageError(
            "The server writes no binlog. Start it with --log-bin --binlog-format=ROW "
            "--binlog-row-metadata=FULL --server-id=1; a server that the system starts takes these, without the dashes, a "
            "line each below [mysqld] in a file of its configuration (such as /etc/mysql/conf.d/binlog.cnf)."
        )
    taken = {_IMAGE} if partial else set()
    wrong = {name: right for name, right in _RIGHT.items() if name in found and found[name].upper() not in right}
    wrong = {name: right for name, right in wrong.items() if name not in taken}
    if wrong:
        told = "; ".join(
            f"{name} is {found[name] or 'empty'} and must be {right[0] or 'empty'}" for name, right in wrong.items()
        )
        instead = " Or take rows in part: --partial-rows." if _IMAGE in wrong else ""
        raise UsageError(f"The server's binlog cannot be read exactly: {told}. {_remedy(wrong)}{instead}")
    version = found.get("version", "")
    maria = "mariadb" in version.lower()
    place = found.get("gtid_binlog_pos" if maria else "gtid_executed", "").replace("\n", "")
    named, lowers = found.get("binlog_row_metadata", "").upper() == "FULL", found.get("lower_case_table_names") == "1"
    known = f"{place},{found.get('gtid_current_pos', '')}".strip(",")
    return MySqlServer(maria, version, place, known, named, lowers)


def _remedy(wrong: Mapping[str, tuple[str, ...]]) -> str:
    """What mends these variables of a server."""
    now = ", ".join(f"GLOBAL {name} = '{right[0]}'" for name, right in wrong.items() if name != _IN_STEPS)
    said = []
    if now:
        said.append(
            f"As an administrator of the server run: SET {now}. Connections that are open keep the old value, so have "
            "programs that write connect anew; and write it into the server's configuration too, for its next start."
        )
    if _IN_STEPS in wrong:
        said.append(
            f"Write {_IN_STEPS}=ON and enforce_gtid_consistency=ON into the server's configuration, and restart the server."
        )
    return " ".join([*said, "Then run this command again."])


def tables(cursor: Any) -> list[tuple[str, str]]:
    """Database and name of each table that this user may see; each database with "" too, as `shop.*` may have no table."""
    cursor.execute(
        "select schema_name, '' from information_schema.schemata union all "
        f"select table_schema, table_name from information_schema.tables where {REAL}"
    )
    return [(str(database), str(table)) for database, table in cursor.fetchall()]


def unseen(cursor: Any, wanted: Callable[[str, str], bool]) -> list[str]:
    """What changes rows and is not in the binlog, as far as the server tells it: a sentence for each."""
    cursor.execute(
        "select distinct constraint_schema, table_name from information_schema.referential_constraints "
        "where delete_rule in ('CASCADE', 'SET NULL') or update_rule in ('CASCADE', 'SET NULL') order by 1, 2"
    )
    said = []
    if referring := [f"{database}.{table}" for database, table in cursor.fetchall() if wanted(database, table)]:
        said.append(
            "what foreign keys do (ON DELETE CASCADE and the like) is not in the binlog. Such changes of "
            f"{', '.join(referring)} will be missing."
        )
    if not inspected(cursor, True).maria:  # MySQL's words for the rest change from version to version
        return said
    cursor.execute("show master status")
    for only, never in [row[2:4] for row in cursor.fetchall()]:
        if only or never:
            said.append(
                f"the server leaves databases out of its binlog (binlog_do_db={only}, binlog_ignore_db={never}). What is "
                "written there will be missing."
            )
    cursor.execute("select @@global.log_slave_updates, @@global.gtid_slave_pos")
    ((passes_on, replicated),) = cursor.fetchall()
    if replicated and not passes_on:
        said.append(
            "the server is, or was, a replica, and does not write what it replicates into its own binlog "
            "(log_slave_updates=OFF). That will be missing: read from its primary."
        )
    return said


@dataclass(frozen=True, slots=True)
class MySqlLogin:
    """Where a server is, and who asks; `partial`: who takes rows in part (tables.py, rule 5)."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    server_id: int = 0
    tls: bool = False
    partial: bool = False

    def settings(self) -> dict[str, Any]:
        found = {"host": self.host, "port": self.port, "user": self.user, "password": self.password}
        if self.tls:
            found["ssl"] = _checking()
        return {**found, "charset": "utf8mb4", "connect_timeout": CONNECT_S}


def _checking() -> ssl.SSLContext:
    """What takes a certificate only of this machine's authorities (SSL_CERT_FILE names others), for the host's name. Where
    PyMySQL is given no file of authorities it takes every one."""
    return ssl.create_default_context()


class BinlogStream:
    """A server's binlog from a place on."""

    def __init__(self, login: MySqlLogin, place: str, maria: bool, queries: bool, file: str = "") -> None:
        """`file`: from the beginning of that binlog instead, whatever the place."""
        self._login, self._framing = login, EventFramer()
        self._made: list[StreamConnection] = []
        begin: dict[str, Any] = {"auto_position": place if maria or place else _NO_TRANSACTIONS, "is_mariadb": maria}
        if file:
            begin = {"log_file": file, "log_pos": 4, "resume_stream": True}
        self._reader = BinLogStreamReader(
            login.settings(),
            login.server_id,
            blocking=True,
            **begin,
            annotate_rows_event=queries,
            slave_heartbeat=HEARTBEAT_S,
            enable_logging=False,
            pymysql_wrapper=self._connected,
        )
        self._wire = Wire(self._taken_over(login))
        self._cut: list[BinlogEvent] = []  # whole, and not given out; the next one last

    def event(self, timeout_s: float, standing: Callable[[], str]) -> BinlogEvent | None:
        """The next event; None if nothing comes in time. Errors name the place that `standing` says, and see Wire."""
        if not self._cut:
            self._cut = self._wire.events(self._framing)
        if self._cut:
            return self._cut.pop()
        packet = self._wire.packet(timeout_s)
        if packet is not None and packet[0]:
            _ended(self._login, packet, standing())
        return None if packet is None else self._framing.event(packet[1:])

    def close(self) -> None:
        for connection in self._made:
            connection.close()

    def _connected(self, **settings: Any) -> StreamConnection:
        if "db" in settings:  # the package's word for it, which PyMySQL no longer likes
            settings["database"] = settings.pop("db")
        # the package says so only where the server writes checksums now, and older binlogs may have them all the same
        settings["init_command"] = "set @master_binlog_checksum = 'CRC32'"
        self._made.append(StreamConnection(**settings))
        self._made[-1].watching = True
        return self._made[-1]

    def _taken_over(self, login: MySqlLogin) -> socket.socket:
        try:
            self._reader.fetchone()
        except StreamReady:
            taken: socket.socket = self._made[0]._sock
            return taken
        except (pymysql.MySQLError, OSError) as error:
            self.close()
            refused(login, error)
        raise ConnectionLost("The server answered before anybody asked for its binlog.")


def connected(login: MySqlLogin) -> pymysql.connections.Connection:
    """A connection for questions; UsageError if the server does not let this user in, EnvironmentMissing if it is away."""
    try:
        connection = Connection(**login.settings(), autocommit=True, init_command=_AS_NOW)
    except (pymysql.MySQLError, OSError) as error:
        refused(login, error)
    if login.tls and not connection._secure:  # an older PyMySQL goes on in clear text
        connection.close()
        refused(login, pymysql.OperationalError(_NO_TLS, "the server offers no TLS"))
    return connection


def answer(login: MySqlLogin, ask: Callable[[Any], T]) -> T:
    """What `ask` finds out by a cursor of a connection of its own; errors as `connected` has them."""
    with closing(connected(login)) as connection:
        try:
            return ask(connection.cursor())
        except pymysql.MySQLError as error:
            refused(login, error)


def _account(login: MySqlLogin, text: str) -> str:
    """The account that a refusal is about, as GRANT takes it: a refusal of a right does not name it."""
    if found := _ACCOUNT.search(text):
        return found.group()
    with suppress(pymysql.MySQLError, OSError), closing(Connection(**login.settings())) as connection:
        cursor = connection.cursor()
        cursor.execute("select current_user()")
        user, _, host = cursor.fetchall()[0][0].rpartition("@")
        return f"'{user}'@'{host}'"
    return f"'{login.user}'@'%'"


def _ended(login: MySqlLogin, packet: bytes, place: str) -> NoReturn:
    """Say why the server ended a stream that stood at `place`, by its last packet."""
    if packet[0] != 0xFF:
        raise ConnectionLost("The database ended the stream.")
    code, text = int.from_bytes(packet[1:3], "little"), packet[3:].decode("utf-8", "replace")
    text = text[6:] if text.startswith("#") else text
    if code in REFUSALS:
        refused(login, pymysql.OperationalError(code, text))
    if _TAKEN in text:
        raise UsageError(
            f"Another process reads this binlog as the replica {login.server_id}, and the server talks only "
            "to the later one. Stop one of them, or give them different names (--name), or a --server-id."
        )
    if code == 1236:
        raise UsageError(
            f"The server cannot go on from {place or 'the beginning'}: {unstopped(text)}. If its binlogs are gone "
            "already, bring the target up to date by hand, and start anew under another --name with --from now."
        )
    raise ConnectionLost(f"The database ended the stream: {text} ({code}).")


def refused(login: MySqlLogin, error: Exception) -> NoReturn:
    """Say in a sentence why the server could not be read from."""
    code, text = (*error.args, "", "")[:2]
    who, where = login.user, f"{login.host}:{login.port}"
    if code in REFUSALS:
        account = _account(login, str(text))
        told = f"{where} does not let {who} read its binlog: {unstopped(text)}."
        rights = f"GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO {account}"
        if code in _RIGHTS:
            raise UsageError(f"{told} It lacks a right: {unstopped(rights)}.")
        raise UsageError(
            f"{told} Give the right password (--password-file, or "
            f"MYSQL_PWD). If there is no such user yet, for no other host either (SELECT user, host FROM mysql.user): "
            f"CREATE USER {account} IDENTIFIED BY 'the password'; the rights: {rights}; an account holds for the host "
            "behind its @ alone, and for all with %."
        )
    if login.tls and (code == _NO_TLS or "SSL" in str(text).upper() or "certificate" in str(text)):
        raise UsageError(
            f"There is no TLS with {where} as --tls asks for it: {unstopped(text)}. Set ssl_cert and "
            "ssl_key on the server, with a certificate for this host's name that this machine trusts; or leave --tls out, "
            "if nobody else is on the way."
        )
    if code in (2006, 2013, 2014):
        raise ConnectionLost(f"{where} closed the connection: {unstopped(text)}.")
    if isinstance(code, int) and code not in range(2000, 3000):  # the server's own number: it is there, and said no
        remedy = _REMEDIES.get(code, "")
        raise EnvironmentMissing(f"The server at {where} refuses: {unstopped(text)} ({code}).{remedy}")
    raise EnvironmentMissing(
        f"There is no MySQL or MariaDB to talk to at {where}: {unstopped(text or error)}. Is it running there?"
    )
