"""`waterclock cdc`: a database's changes into Kafka, until Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import sys
import zlib
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from waterclock.cdc.addresses import Database, database, kafka
from waterclock.cdc.capture import Capture, CaptureStatistics
from waterclock.cdc.position import Position
from waterclock.cdc.produce import Publisher
from waterclock.cdc.source import Source, TableFilter
from waterclock.cdc.topics import Target
from waterclock.clock import Clock, SystemClock
from waterclock.errors import UsageError, WaterclockError
from waterclock.kafka.settings import from_text

_TYPES = ("uuid", "inet6", "inet4", "binary", "json", "text")
_GTID = re.compile(r"\d+-\d+-\d+|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}:\d+")
_EVERY_MS = 500


@dataclass(frozen=True, slots=True)
class Origin:
    """A database as the command needs it: a source from a position, where to begin, where its end is now, tables that
    were asked for and are not there, and tables whose rows the server also changes without a word."""

    source: Callable[[Position], Source]
    begin: Position | Callable[[], Position]
    end: Callable[[], str]
    absent: Callable[[], list[str]]
    unseen: Callable[[], list[str]] = list


def run(arguments: Namespace) -> int:
    """What the options say; UsageError, EnvironmentMissing or ConnectionLost where it cannot be done."""
    where = database(arguments.source)
    _check_names(arguments.tables)
    servers, topic = kafka(arguments.to)
    name = arguments.name or topic
    clock = SystemClock()
    origin = (_mysql if where.kind == "mysql" else _postgres)(arguments, where, name, clock)
    try:
        target = Target(servers, topic, arguments.order, arguments.partitions)
    except ValueError as error:
        raise UsageError(f"{error}.") from None
    file = arguments.kafka_config
    client = from_text("--kafka-config", _read("--kafka-config", file)) if file else {}
    told = _Progress(clock, arguments.json)
    publisher = partial(Publisher, target, name, client)
    capture = Capture(publisher, origin.source, clock, start=origin.begin, tell=told.tell, lost=told.lost)
    _miss(origin.absent())
    _warn(origin.unseen())
    try:
        capture.run(origin.end() if arguments.once else None)
    finally:
        told.end(capture.statistics())
    return 0


def _mysql(arguments: Namespace, where: Database, name: str, clock: Clock) -> Origin:
    from waterclock.cdc.mysql.connecting import Login, answer
    from waterclock.cdc.mysql.reader import BinlogReader
    from waterclock.cdc.mysql.server import OWN, absent, inspected, oldest, unseen

    server_id = arguments.server_id or zlib.crc32(name.encode()) | 1 << 31
    login = Login(where.host, where.port, where.user, _password(arguments, "MYSQL_PWD"), server_id, arguments.tls)
    wanted = TableFilter(arguments.tables or ([f"{where.name}.*"] if where.name else []), OWN)
    told, skip = _types(arguments.type), _transactions(arguments.skip)

    def now() -> str:
        return answer(login, lambda cursor: inspected(cursor).place)

    def begin() -> Position:
        return Position(now() if arguments.begin == "now" else answer(login, oldest))

    def source(position: Position) -> Source:
        return BinlogReader(login, position, wanted, overrides=told, skip=skip, queries=arguments.queries)

    first = begin if arguments.begin in ("start", "now") else Position(arguments.begin)
    asked = wanted.names() or ([(where.name, "*")] if where.name and not arguments.tables else [])
    return Origin(
        source,
        first,
        now,
        lambda: answer(login, lambda cursor: absent(cursor, asked)),
        lambda: answer(login, lambda cursor: unseen(cursor, wanted)),
    )


def _postgres(arguments: Namespace, where: Database, name: str, clock: Clock) -> Origin:
    from psycopg.conninfo import make_conninfo

    from waterclock.cdc.postgres.slot import OWN, Slot, SlotReader, absent, begun, current

    if arguments.begin not in ("start", "now"):
        raise UsageError("--from: a slot of PostgreSQL begins where it was made; it takes no other place.")
    password = _password(arguments, "PGPASSWORD")
    named = "waterclock_" + "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name.lower())
    conninfo = make_conninfo(
        host=where.host,
        port=where.port,
        user=where.user,
        dbname=where.name,
        **({"password": password} if password else {}),
    )
    slot = Slot(conninfo, arguments.slot or named[:63], arguments.publication or named[:63])
    wanted = TableFilter(arguments.tables, OWN)
    listed = [] if any(sign in table for table in arguments.tables for sign in "*?[") else arguments.tables
    return Origin(
        lambda position: SlotReader(slot, position, wanted, clock),
        lambda: begun(slot, listed),
        lambda: current(slot),
        lambda: absent(slot, wanted.names()),
    )


def _password(arguments: Namespace, variable: str) -> str:
    if arguments.password_file is None:
        return os.environ.get(variable, "")
    return _read("--password-file", arguments.password_file).rstrip("\r\n")


def _check_names(tables: list[str]) -> None:
    """Refuse a name that no table has: nothing would come, and nobody would hear of it."""
    for name in tables:
        if not set(name) & set(".*?["):
            raise UsageError(
                f"--tables {name}: write DATABASE.TABLE, for PostgreSQL SCHEMA.TABLE, such as shop.{name}."
            )


def _types(given: list[str]) -> dict[str, str]:
    told = {}
    for text in given:
        column, _, word = text.rpartition("=")
        if word not in _TYPES or column.count(".") < 2:
            raise UsageError(f"--type {text}: write DATABASE.TABLE.COLUMN=TYPE, with a type of {', '.join(_TYPES)}.")
        told[column] = word
    return told


def _transactions(given: list[str]) -> frozenset[str]:
    """One written otherwise than the server writes it would be none, and the transaction would not be left out."""
    for gtid in given:
        if not _GTID.fullmatch(gtid):
            raise UsageError(
                f"--skip {gtid}: write one transaction's GTID, such as 0-1-57 of MariaDB or uuid:57 of MySQL."
            )
    return frozenset(gtid.lower() for gtid in given)


def _read(option: str, file: str) -> str:
    try:
        return Path(file).read_text()
    except OSError as error:
        raise UsageError(f"{option}: {file} cannot be read: {error.strerror}.") from None


def _miss(absent: list[str]) -> None:
    """Not refused: a table may be made later."""
    if absent:
        print(
            f"waterclock: there is no {', '.join(absent)} now, or this user may not see it: nothing will come of it until "
            "there is.",
            file=sys.stderr,
        )


def _warn(unseen: list[str]) -> None:
    if unseen:
        print(
            f"waterclock: what foreign keys do (ON DELETE CASCADE and the like) is not in the binlog. Such changes of "
            f"{', '.join(unseen)} will be missing.",
            file=sys.stderr,
        )


class _Progress:
    """One line on a terminal, twice a second; at the end a sentence, or JSON."""

    def __init__(self, clock: Clock, as_json: bool) -> None:
        self._clock, self._json = clock, as_json
        self._began_ns = self._told_ns = clock.monotonic_ns()

    def tell(self, now: CaptureStatistics) -> None:
        if sys.stderr.isatty() and self._clock.monotonic_ns() - self._told_ns >= _EVERY_MS * 1_000_000:
            self._told_ns = self._clock.monotonic_ns()
            print(f"\r\x1b[K{self._line(now)}   Ctrl-C ends", end="", file=sys.stderr, flush=True)

    def lost(self, error: WaterclockError) -> None:
        print(f"waterclock: {error} Trying again.", file=sys.stderr, flush=True)

    def end(self, now: CaptureStatistics) -> None:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr)
        print(json.dumps({**asdict(now), "seconds": self._seconds()}) if self._json else self._line(now))

    def _seconds(self) -> float:
        return round((self._clock.monotonic_ns() - self._began_ns) / 1e9, 3)

    def _line(self, now: CaptureStatistics) -> str:
        seconds = max(self._seconds(), 0.001)
        place = f", up to {now.place}" if now.place else ""
        counts = f"{now.changes:,} changes of {now.transactions:,} transactions in Kafka"
        return f"{counts} ({now.changes / seconds:,.0f}/s){place}"
