"""What the command's options name: the database, how its changes are read, where they begin and where they end now; and
the topic, `kafka://host:9092/topic`.

Rule 1: a password does not stand in an address: everyone on the machine can list a process's arguments.
Rule 2: what is wrong with an option is said in one sentence that shows a right one.
"""

from __future__ import annotations

import glob
import re
import zlib
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote, urlsplit

from waterclock.cdc.agreement import ASK, FROM_NOW, INITIAL, NEVER, WHEN_NEEDED, Terms
from waterclock.cdc.position import Position
from waterclock.cdc.snapshot import beside
from waterclock.cdc.source import Source, TableFilter, put_aside, stop
from waterclock.clock import WallClock
from waterclock.errors import EnvironmentMissing, UsageError, unstopped
from waterclock.outside import os

if TYPE_CHECKING:
    from waterclock.cdc.mysql.server import MySqlLogin
    from waterclock.cdc.postgres.session import ReplicationSlot

SCHEMES = {"mysql": "mysql", "mariadb": "mysql", "postgres": "postgres", "postgresql": "postgres"}
_PORTS = {"mysql": 3306, "postgres": 5432}
_TYPES = ("uuid", "inet6", "inet4", "binary", "json", "text")
_GTID = re.compile(r"\d+-\d+-\d+|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}:\d+")
_LSN = re.compile(r"[0-9a-fA-F]{1,8}/[0-9a-fA-F]{1,8}")


@dataclass(frozen=True, slots=True)
class Database:
    """Where changes come from: `kind` is mysql (MariaDB too) or postgres; `name` is empty if none is named."""

    kind: str
    host: str
    port: int
    user: str
    name: str


def database(text: str) -> Database:
    """A database's address.

    >>> database("mysql://reader@127.0.0.1/shop")
    Database(kind='mysql', host='127.0.0.1', port=3306, user='reader', name='shop')
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{text!r} is no address: {unstopped(error)}.") from None
    kind = SCHEMES.get(parts.scheme)
    # libpq's way to name the folder of a server's socket: postgresql://user@/shop?host=/run/postgresql
    folder = parse_qs(parts.query).get("host", [""])[0] if kind == "postgres" else ""
    host = folder or parts.hostname
    if kind is None or not host or not parts.username:
        raise UsageError(
            f"{text!r} is no address of a database: write mysql://user@host:3306/shop, or postgres://user@host/shop."
        )
    if parts.password is not None:
        raise UsageError(
            "A password in an address is seen by everyone who lists this machine's processes: leave it out, and give "
            "it in a file (--password-file) or in MYSQL_PWD or PGPASSWORD."
        )
    name = unquote(parts.path.strip("/"))
    if kind == "postgres" and not name:
        raise UsageError(
            f"{text!r} names no database, and PostgreSQL is read one database at a time. Write postgres://user@host/shop."
        )
    return Database(kind, host, port or _PORTS[kind], unquote(parts.username), name)


def check_names(tables: Sequence[str]) -> None:
    """Refuse a name that no table has: nothing would come, and nobody would hear of it."""
    for name in tables:
        if not set(name) & set(".*?["):
            raise UsageError(
                f"--tables {name}: write DATABASE.TABLE, for PostgreSQL SCHEMA.TABLE, such as shop.{name}."
            )


def kafka(text: str) -> tuple[str, str]:
    """Servers and topic of `kafka://one:9092,two:9092/topic`.

    >>> kafka("kafka://127.0.0.1:9092/shop")
    ('127.0.0.1:9092', 'shop')
    """
    scheme, _, rest = text.partition("://")
    servers, _, topic = rest.partition("/")
    if scheme != "kafka" or not servers or not topic or "/" in topic or "@" in servers:
        raise UsageError(f"{text!r} is no address of a topic: write kafka://host:9092/topic.")
    return servers, topic


@dataclass(frozen=True, slots=True)
class Origin:
    """A database as the command needs it: a source from a position, where to begin, where its end is now, patterns that
    no table has, and a sentence for each way in which rows change without a word, or the server takes harm."""

    source: Callable[[Position], Source]
    begin: Position | Callable[[], Position]
    end: Callable[[], str]
    absent: Callable[[], list[str]]
    warnings: Callable[[], list[str]] = list


def say_what_is_missing(origin: Origin, waits: bool, say: Callable[[str], object]) -> None:
    """EnvironmentMissing for a database or a table that is not there, unless the capture `waits` for it to be made."""
    if absent := origin.absent():
        missing = f"there is no table {', '.join(absent)}, or this user may not see it"
        if not waits:
            raise EnvironmentMissing(
                f"{missing}: nothing of it would come. Mend the name (a database's in SOURCE, a table's in "
                "--tables), or give the user SELECT on it. Of what was dropped the log may still have changes: to have "
                "them, leave the name out."
            )
        say(f"{missing}: nothing will come of it until there is.")
    for sentence in origin.warnings():
        say(sentence)


def mysql(arguments: Namespace, where: Database, name: str, clock: WallClock) -> Origin:
    from waterclock.cdc.mysql.beginning import begun
    from waterclock.cdc.mysql.chunks import BinlogChunks
    from waterclock.cdc.mysql.mysql_chunks import MySqlChunks
    from waterclock.cdc.mysql.reader import BinlogReader
    from waterclock.cdc.mysql.server import OWN, answer, inspected, tables, unseen

    terms = terms_of(arguments, where)
    overrides, comes = types_of(arguments.type), terms.snapshot != NEVER
    login = login_of(arguments, where, name)
    wanted = TableFilter(arguments.tables or ([f"{glob.escape(where.name)}.*"] if where.name else []), OWN)
    skip = transactions_of(arguments.skip, _GTID, "GTID, such as 0-1-57 of MariaDB or uuid:57 of MySQL")
    refusal = put_aside if arguments.dead_letters else stop

    def begin() -> Position:
        return begun(login, wanted, arguments.begin == "now", arguments.from_here, comes)

    def source(position: Position) -> Source:
        reader = BinlogReader(
            login,
            position,
            wanted,
            overrides=overrides,
            skip=skip,
            queries=arguments.queries,
            refusal=refusal,
            terms=terms,
        )
        chunks = partial(BinlogChunks if reader.server.maria else MySqlChunks, reader, login, clock, overrides)
        return beside(reader, chunks, clock, arguments.snapshot_rate, _never(terms))

    first = begin if arguments.begin in ("start", "now") else Position(_behind(arguments.begin))
    return Origin(
        source,
        first,
        lambda: answer(login, lambda cursor: inspected(cursor, login.partial).place),
        # what the server has to be set to is said first
        lambda: wanted.absent(answer(login, lambda cursor: tables(cursor) if inspected(cursor, login.partial) else [])),
        lambda: answer(login, lambda cursor: unseen(cursor, wanted)),
    )


def _behind(gtids: str) -> str:
    """The place of --from. Of MySQL it is a set of what was executed: one transaction in it has no others before it."""
    server, _, number = gtids.partition(":")
    if _GTID.fullmatch(gtids) and number.isdecimal() and int(number) > 1:
        raise UsageError(
            f"--from {gtids}: of MySQL this is one transaction alone: all would come that are before it, and it would not. "
            f"Write all up to it: {server}:1-{number}."
        )
    return gtids


def _never(terms: Terms) -> str:
    """Why no table comes again."""
    return "The capture was started with --snapshot never. Start it without." if terms.gives_up else ""


def login_of(arguments: Namespace, where: Database, name: str) -> MySqlLogin:
    """Who asks a server of MySQL or MariaDB; the capture's number as a replica comes of its name."""
    from waterclock.cdc.mysql.server import MySqlLogin

    server_id = arguments.server_id or zlib.crc32(name.encode()) | 1 << 31
    password = password_of(arguments, "MYSQL_PWD")
    more = arguments.tls, arguments.partial_rows
    return MySqlLogin(where.host, where.port, where.user, password, server_id, *more)


def postgres(arguments: Namespace, where: Database, name: str, clock: WallClock) -> Origin:
    from waterclock.cdc.postgres.beginning import Older, begun, refuse_older
    from waterclock.cdc.postgres.chunks import SlotChunks
    from waterclock.cdc.postgres.pgoutput import lsn_number, lsn_text
    from waterclock.cdc.postgres.slot import OWN, SlotReader, current, stands_by, tables

    terms = terms_of(arguments, where)
    if arguments.begin not in ("start", "now"):
        raise UsageError("--from: a slot of PostgreSQL begins where it was made; it takes no other place.")
    slot = slot_of(arguments, where, name)
    wanted = TableFilter(arguments.tables, OWN)
    named_lsns = transactions_of(arguments.skip, _LSN, "LSN, such as 0/16B3748")
    skip = frozenset(lsn_text(lsn_number(lsn)) for lsn in named_lsns)  # with capitals, and without zeros in front
    refusal = put_aside if arguments.dead_letters else stop
    listed = [] if any(sign in table for table in arguments.tables for sign in "*?[") else arguments.tables

    def begin() -> Position:
        asked = (
            None
            if arguments.begin == "now" or terms.snapshot != NEVER
            else Older(wanted, lambda rows, there: refuse_older(slot, rows, there, arguments.from_here))
        )
        return begun(slot, listed, asked, lambda found: found.refuse(wanted, None, terms.as_published))

    def source(position: Position) -> Source:
        reader = SlotReader(slot, position, wanted, clock, skip=skip, refusal=refusal, terms=terms)
        chunks = partial(SlotChunks, reader, slot, clock)
        return beside(reader, chunks, clock, arguments.snapshot_rate, _never(terms))

    return Origin(
        source,
        begin,
        lambda: current(slot),
        lambda: wanted.absent(tables(slot)),
        lambda: stands_by(slot),
    )


def slot_of(arguments: Namespace, where: Database, name: str) -> ReplicationSlot:
    """Slot and publication, by default of the capture's name in letters that PostgreSQL takes."""
    from psycopg.conninfo import make_conninfo

    from waterclock.cdc.postgres.session import ReplicationSlot

    password = password_of(arguments, "PGPASSWORD")
    named = "waterclock_" + "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name.lower())
    conninfo = make_conninfo(
        host=where.host,
        port=where.port,
        user=where.user,
        dbname=where.name,
        **({"password": password} if password else {}),
    )
    return ReplicationSlot(conninfo, arguments.slot or named[:63], arguments.publication or named[:63])


def terms_of(arguments: Namespace, where: Database) -> Terms:
    """The words that were given; UsageError for an option of the other kind of database, which would do nothing."""
    mysql = {"--type": arguments.type, "--queries": arguments.queries, "--server-id": arguments.server_id}
    mysql |= {"--tls": arguments.tls, "--partial-rows": arguments.partial_rows}
    others = {"--slot": arguments.slot, "--publication": arguments.publication}
    others |= {"--as-published": arguments.as_published, "--skip-to": arguments.skip_to}
    if wrong := [option for option, given in (others if where.kind == "mysql" else mysql).items() if given]:
        instead = " TLS to PostgreSQL is asked for by PGSSLMODE=verify-full." if "--tls" in wrong else ""
        kind = "PostgreSQL" if where.kind == "mysql" else "MySQL and MariaDB"
        raise UsageError(f"{', '.join(wrong)}: only for {kind}. Leave it out.{instead}")
    if arguments.skip_to and not _LSN.fullmatch(arguments.skip_to):
        raise UsageError(f"--skip-to {arguments.skip_to}: write an LSN, such as 0/16B3748.")
    if arguments.snapshot_rate < 0:
        raise UsageError(f"--snapshot-rate {arguments.snapshot_rate}: write rows a second, 1 or more; 0 sets no limit.")
    for option, given, words in (
        ("--snapshot", arguments.snapshot or INITIAL, (INITIAL, WHEN_NEEDED, NEVER)),
        ("--new-tables", arguments.new_tables, (ASK, FROM_NOW)),
    ):
        if given not in words:  # of a program: the command knows its words
            raise UsageError(f"{option} {given}: write {' or '.join(words)}.")
    begins = INITIAL if arguments.begin == "start" and not arguments.from_here else NEVER
    gives_up = arguments.snapshot == NEVER
    return Terms(
        arguments.new_tables, arguments.as_published, arguments.skip_to, arguments.snapshot or begins, gives_up
    )


def password_of(arguments: Namespace, variable: str) -> str:
    """Given by a program, in a file, or in the variable of the database's own clients."""
    if arguments.password is not None:
        return str(arguments.password)
    if arguments.password_file is None:
        return os.environ.get(variable, "")
    return read_file("--password-file", arguments.password_file).rstrip("\r\n")


def read_file(option: str, file: str) -> str:
    """The text of the file that an option names; UsageError if it cannot be read."""
    try:
        return Path(file).read_text()
    except OSError as error:
        raise UsageError(f"{option}: {file} cannot be read: {error.strerror}.") from None


def types_of(given: list[str]) -> dict[str, str]:
    """`--type`: column -> what it is; UsageError for a word that is no type."""
    found = {}
    for text in given:
        column, _, word = text.rpartition("=")
        if word not in _TYPES or column.count(".") < 2:
            raise UsageError(f"--type {text}: write DATABASE.TABLE.COLUMN=TYPE, with a type of {', '.join(_TYPES)}.")
        found[column] = word
    return found


def transactions_of(given: list[str], form: re.Pattern[str], like: str) -> frozenset[str]:
    """One written otherwise than the server writes it would be none, and the transaction would not be left out."""
    for name in given:
        if not form.fullmatch(name):
            raise UsageError(f"--skip {name}: write one transaction's {like}.")
    return frozenset(name.lower() for name in given)
