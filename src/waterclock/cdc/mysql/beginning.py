"""Where a capture of MySQL or MariaDB begins that has no position yet, and what is older than the log.

Rule 1: what is older is counted before the first start: source.py says how.
Rule 2: a table that was made after the oldest binlog was begun has all its rows in the log, unless ALTER TABLE made it
        anew: of that there is no trace. So none is taken for younger where the server is older than the log by LIVED_S, as
        where the binlog was switched on later. All is known to the second: what was made in that very second may be older.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from waterclock.cdc.mysql.server import CONNECT_S, REAL, BinlogStream, MySqlLogin, answer, inspected
from waterclock.cdc.position import Position
from waterclock.cdc.source import COUNTED, OlderRows, TableFilter, check, sized
from waterclock.errors import ConnectionLost

LIVED_S = 600
_TABLES = (
    "select table_schema, table_name, table_rows, unix_timestamp(create_time) from information_schema.tables "
    f"where {REAL} order by 1, 2"
)


def begun(login: MySqlLogin, wanted: TableFilter, is_now: bool, accepted: bool, comes: bool = False) -> Position:
    """The end of the log, or the beginning of what the server still has: then UsageError for rows that are older, unless
    that is `accepted`, or they come by a snapshot."""
    if is_now:
        return Position(answer(login, lambda cursor: inspected(cursor, login.partial).place))
    place, maria = answer(login, lambda cursor: (oldest(cursor), inspected(cursor, login.partial).maria))
    if comes:
        return Position(place)
    since = None if place else began(login, maria)
    why = f"Rows of these tables may be older than the binlog{f', which begins after {place}' if place else ''}"
    check(answer(login, lambda cursor: older(cursor, wanted, since)), why, accepted)
    return Position(place)


def oldest(cursor: Any) -> str:
    """Where the oldest binlog begins: a server that has thrown binlogs away refuses whoever asks for all of them."""
    server = inspected(cursor, True)
    if not server.maria:
        cursor.execute("select @@global.gtid_purged")
        return str(cursor.fetchall()[0][0]).replace("\n", "")
    cursor.execute("show binary logs")
    cursor.execute("select binlog_gtid_pos(%s, 4)", (cursor.fetchall()[0][0],))
    return str(cursor.fetchall()[0][0] or "")


def older(cursor: Any, wanted: Callable[[str, str], bool], began: int | None) -> list[OlderRows]:
    """Wanted tables with rows that may be older than the log, which began in the second `began`; None: some of it is gone.
    See rule 2."""
    cursor.execute(_TABLES)
    tables = cursor.fetchall()
    made = [created for *_, created in tables if created is not None]
    if began is not None and made and min(made) + LIVED_S < began:
        began = None
    found = []
    for database, table, estimate, created in tables:
        if wanted(database, table) and (began is None or created is None or created <= began):
            names = ".".join(f"`{name.replace('`', '``')}`" for name in (database, table))
            cursor.execute(f"select count(*) from (select 1 from {names} limit {COUNTED + 1}) as counted")
            found.append(sized(f"{database}.{table}", cursor.fetchall()[0][0], int(estimate or 0)))
    return [each for each in found if each.rows]


def began(login: MySqlLogin, maria: bool, file: str = "") -> int:
    """The second in which the oldest binlog was begun, or the one of this name."""
    with closing(BinlogStream(login, "", maria, False, file)) as stream:
        while (event := stream.event(CONNECT_S, lambda: file)) is not None:
            if event.ts > 0:  # the first one is made up, and has none
                return event.ts
    raise ConnectionLost(f"{login.host}:{login.port} does not send its binlog {file or 'from the oldest on'}.")
