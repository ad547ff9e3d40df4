"""Where another reader of the binlog stands, in our words: whole transactions, and records of the next one.

Rule 1: `events` are counted as Debezium does: from the transaction's beginning, which is the first, without the statement's
        text, which the server sends only to who asks for it. `rows` are those of the event behind them.
Rule 2: a place that is none between two transactions is refused. Debezium's connector of MySQL stores such ones where it
        reads MariaDB: behind an event, and whether that was told whole nobody knows.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from contextlib import closing

from waterclock.cdc.mysql import binlog
from waterclock.cdc.mysql.catalog import ServerCatalog
from waterclock.cdc.mysql.server import CONNECT_S, BinlogStream, MySqlLogin, connected, inspected
from waterclock.cdc.mysql.tablemap import MARIADB
from waterclock.cdc.mysql.tables import ROWS, BadRow, Tables, changes_of
from waterclock.cdc.position import Position
from waterclock.errors import ConnectionLost, UsageError

_STATEMENTS = {binlog.QUERY, binlog.MARIA_QUERY_COMPRESSED}
_WITHIN = re.compile("rows|Xid|Query|Table_map", re.IGNORECASE)  # events that are no transaction's first
_BEATS = {binlog.HEARTBEAT, binlog.HEARTBEAT_V2}
_ENDED = 5  # heartbeats in a row: the server has nothing more


def position_at(
    login: MySqlLogin, wanted: Callable[[str, str], bool], file: str, pos: int, gtids: str, events: int, rows: int
) -> Position:
    """The transaction that begins at `file` and `pos`, `events` of it read and `rows` of the next event."""
    with closing(connected(login)) as connection:
        cursor = connection.cursor()
        server = inspected(cursor, login.partial)
        place = gtids
        if server.maria:
            cursor.execute("select binlog_gtid_pos(%s, %s)", (file, pos))
            place = cursor.fetchall()[0][0]
            if place is None:
                raise UsageError(
                    f"The server has no binlog {file} with the place {pos} any more: what was committed since Debezium "
                    "ended is gone."
                )
            cursor.execute("show binlog events in %s from %s limit 1", (file, pos))
            if any(_WITHIN.search(kind) for _, _, kind, *_ in cursor.fetchall()):
                raise UsageError(
                    f"Debezium's place, {pos} in {file}, lies within a transaction, and does not say how much of it was "
                    "told: its connector of MySQL stores such places where it reads MariaDB. A capture that has no "
                    "position brings all rows once more (--snapshot initial): begin with that."
                )
        elif not gtids:
            raise UsageError(
                "The offset has no gtids, by which MySQL is read. Set gtid_mode=ON, and start Debezium once."
            )
        if not events and not rows:
            return Position(str(place))
        if not server.maria:
            raise UsageError(
                "Debezium ended inside of a transaction of MySQL, which is told for MariaDB alone. Start the connector "
                "once more, and stop it when nothing is written."
            )
        tables = Tables(ServerCatalog(cursor, server.maria), MARIADB, wanted)
        return _counted(login, str(place), tables, wanted, events, rows)


def _counted(
    login: MySqlLogin, place: str, tables: Tables, wanted: Callable[[str, str], bool], events: int, rows: int
) -> Position:
    gtid, seen, records, beats = "", 0, 0, 0
    with closing(BinlogStream(login, place, True, False)) as stream:
        while beats < _ENDED and (event := stream.event(CONNECT_S, lambda: place)) is not None:
            beats = beats + 1 if event.kind in _BEATS else 0
            if event.kind == binlog.MARIA_GTID and not gtid:
                number, domain = struct.unpack_from("<QI", event.body)
                gtid = f"{domain}-{event.server}-{number}"
            if not gtid or beats or event.kind == binlog.MARIA_ANNOTATE:
                continue
            if event.kind == binlog.TABLE_MAP:
                tables.introduce(event)
            elif event.kind in _STATEMENTS and (made := binlog.statement(event).made()):
                table_name, replaces, _ = made
                records += seen < events and replaces and wanted(*table_name)  # what stood there goes
            elif event.kind in ROWS and (found := tables.rows(event)) is not None:
                table, changed = found
                part = changed if seen < events else changed[:rows]
                records += sum(1 if isinstance(row, BadRow) else len(changes_of(table.key, *row)) for row in part)
            seen += 1
            if seen > events:
                return Position(place, 0, records, gtid if records else "")
    raise ConnectionLost(
        "The server does not send the transaction in which Debezium ended: its log ends before that, so it is another one "
        "than the connector's, or an older copy. Name the server that the connector read."
    )
