"""MySQL and MariaDB as a source of changes: a stream of binlog events from a position on, turned into items.

Rule 1: one object reads one connection, from one position, once. After a break another object is made, from the
        position that Kafka holds: what was on its way is read again and nothing is counted twice.
Rule 2: silence is reported, so that what was gathered need not wait for the next change; a server that is silent for
        longer than its heartbeats allow is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import pymysql

from waterclock.cdc.agreement import NEVER, Terms, agreed
from waterclock.cdc.held import EVERY, Held
from waterclock.cdc.mysql import binlog
from waterclock.cdc.mysql.beginning import began, older
from waterclock.cdc.mysql.catalog import ServerCatalog
from waterclock.cdc.mysql.file_place import FilePlace
from waterclock.cdc.mysql.history import history
from waterclock.cdc.mysql.server import (
    HEARTBEAT_S,
    BinlogStream,
    MySqlLogin,
    MySqlServer,
    connected,
    inspected,
    tables,
)
from waterclock.cdc.mysql.tablemap import MARIADB, MYSQL
from waterclock.cdc.mysql.tables import Tables
from waterclock.cdc.mysql.transactions import Transactions
from waterclock.cdc.position import MariaGtidList, MySqlGtidSet, Position
from waterclock.cdc.schemas import SchemaAt
from waterclock.cdc.source import Item, OlderRows, Refusal, SourceMark, TableFilter, stop
from waterclock.errors import ConnectionLost, UsageError, unstopped

_QUIET_S = 0.02  # so long nothing came: what was gathered is committed
# of no transaction: a view of the server may have its place behind one, and a chunk is to be sent there (chunks.py)
_HEADS = {binlog.ROTATE, binlog.FORMAT_DESCRIPTION, binlog.MARIA_GTID_LIST, binlog.MARIA_CHECKPOINT, binlog.STOP,
          binlog.PREVIOUS_GTIDS}  # fmt: skip
_GONE_AFTER = 10  # silences in a row, a heartbeat's time each, and not one heartbeat
_SEEKS_FOR = (
    600  # the same before the first transaction: MariaDB looks for a GTID from its file's beginning on, silently
)


class _Questions:
    """A cursor for questions that come hours apart: a server ends a connection that is idle for long (wait_timeout)."""

    def __init__(self, connection: pymysql.connections.Connection) -> None:
        self._connection, self._cursor = connection, connection.cursor()
        self.fetchall = self._cursor.fetchall

    @property
    def description(self) -> Any:
        return self._cursor.description

    def execute(self, query: str, arguments: tuple[Any, ...] = ()) -> Any:
        try:
            with suppress(pymysql.MySQLError, OSError):
                self._connection.ping(reconnect=False)
            if not self._connection.open:
                self._connection.connect()
            return self._cursor.execute(query, arguments)
        except (pymysql.OperationalError, pymysql.InterfaceError, OSError) as error:
            raise ConnectionLost(f"The database did not answer: {unstopped(error)}.") from None


class BinlogReader:
    """A `Source` over one connection.

    `overrides` says what MariaDB's binlog does not (`shop.item.id` -> `uuid`), `skip` names transactions that are left out,
    `queries` brings the statements beside the rows, `refusal` says what is done about what cannot be read.
    """

    def __init__(
        self,
        login: MySqlLogin,
        position: Position,
        wanted: TableFilter,
        *,
        overrides: dict[str, str] | None = None,
        skip: frozenset[str] = frozenset(),
        queries: bool = False,
        refusal: Refusal = stop,
        terms: Terms | None = None,
    ) -> None:
        self._opened, self._login, self.wanted = ExitStack(), login, wanted
        self._silences, self._patience = 0, _SEEKS_FOR
        self.file_place = FilePlace()
        self._end: tuple[str, MariaGtidList | MySqlGtidSet] | None = None
        try:
            self.questions = questions = _Questions(self._opened.enter_context(connected(login)))
            described, place = self._described(questions, position, wanted, overrides)
            lowers, held = self.server.lowers_names, self._agreed(questions, position, wanted, terms or Terms())
            begun = position._replace(held=held)
            renews = terms is not None and terms.snapshot != NEVER
            self._transactions = Transactions(
                place, begun, described, wanted, skip=skip, lowers=lowers, refusal=refusal, renews=renews
            )
            self._stream = self._opened.enter_context(
                closing(BinlogStream(login, str(place), self.server.maria, queries))
            )
        except BaseException:
            self._opened.close()
            raise

    def _described(
        self, questions: _Questions, position: Position, wanted: TableFilter, overrides: dict[str, str] | None
    ) -> tuple[Tables, MariaGtidList | MySqlGtidSet]:
        """What is known of the server and of its tables, and the place to read from."""
        self.server: MySqlServer = inspected(questions, self._login.partial)
        self._place_type = MariaGtidList if self.server.maria else MySqlGtidSet
        place, known = self._place_type(position.place), self._place_type(self.server.known)
        # what the server writes until it gets there would be passed over
        if place.beyond(known):  # type: ignore[arg-type]  # of one kind both
            raise UsageError(
                f"The capture stands at {place}, and the server at {self._login.host}:{self._login.port} has written no "
                f"further than {str(known) or 'nothing'}: the position holds for another server, or for this one before it "
                "was copied back or its binlogs were thrown away (RESET MASTER). Name the server that the capture began "
                "with; or bring the target up to date by hand, and start anew under another --name."
            )
        self.catalog = ServerCatalog(questions, self.server.maria, overrides)
        dialect = MARIADB if self.server.maria else MYSQL
        return Tables(self.catalog, dialect, wanted, self._login.partial), place

    def _agreed(self, questions: _Questions, position: Position, wanted: TableFilter, terms: Terms) -> Held:
        """See agreement.py. A binlog brings every table from its making on."""
        server = history(self._login, questions, self.server.maria, position.held.server if position.held else {})
        there = [f"{database}.{table}" for database, table in tables(questions) if table and database not in wanted.own]

        def counted(names: Collection[str]) -> list[OlderRows]:
            return older(questions, lambda database, table: f"{database}.{table}" in names, None)

        def first() -> list[str]:
            """See beginning.py: what is older than the log that is read from here."""
            since = None if position.place else began(self._login, self.server.maria)
            return [each.table for each in older(questions, wanted, since)]

        asked = Held(wanted.patterns or (EVERY,), server=server)
        return agreed(position, asked, there, counted, terms, first)

    def items(self) -> Iterator[Item]:
        """Changes and marks, without end."""
        while True:
            event = self._stream.event(HEARTBEAT_S if self._silences else _QUIET_S, self._standing)
            if event is None:
                self._silences += 1
                if self._silences > self._patience:
                    raise ConnectionLost(f"The database has not even sent heartbeats for {self._patience} seconds.")
                yield SourceMark.QUIET
                continue
            self._silences = 0
            self._patience = self._patience if event.kind in _HEADS else _GONE_AFTER
            self.file_place.passed(event)
            yield from self._transactions.take(event)
            if event.kind in _HEADS and event.end and self._transactions.is_between():
                yield SourceMark.MOVED

    def position(self) -> Position:
        return self._transactions.position()

    def _standing(self) -> str:
        return str(self.position().place)

    def reached(self, end: str) -> bool:
        if self._end is None or self._end[0] != end:  # this is called after every transaction
            self._end = (end, self._place_type(end))
        return self._transactions.covers(self._end[1])

    def recall(self, schema_at: SchemaAt) -> None:
        """See `Recaller`."""
        self._transactions.recall(schema_at)

    def is_between(self) -> bool:
        """Whether it stands between two transactions."""
        return self._transactions.is_between()

    def numbered(self, seconds: int) -> int:
        """Between two transactions: a sequence of its own, from which the next one counts on."""
        return self._transactions.numbered(seconds)

    def stored(self, position: Position) -> None:
        """Nothing to do: a server throws its binlogs away by its own rules (binlog_expire_logs_seconds)."""

    def close(self) -> None:
        self._opened.close()
