"""What a server is, and whether it writes a binlog that can be read exactly.

Rule 1: every setting that would lose something is named, with what to set it to; all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from waterclock.cdc.older import COUNTED, OlderRows, sized
from waterclock.errors import UsageError

OWN = frozenset({"mysql", "information_schema", "performance_schema", "sys"})
_RIGHT = {
    "binlog_format": ("ROW",),
    "binlog_row_image": ("FULL",),
    "gtid_mode": ("ON", "ON_PERMISSIVE"),
    "binlog_transaction_compression": ("OFF",),
    "binlog_row_value_options": ("",),
}
_QUESTION = (
    "show global variables where variable_name in ('log_bin', 'version', 'gtid_binlog_pos', 'gtid_executed', "
    "'gtid_current_pos', 'binlog_row_metadata', 'lower_case_table_names', "
    + ", ".join(f"'{name}'" for name in _RIGHT)
    + ")"
)


_REAL = "table_type in ('BASE TABLE', 'SYSTEM VERSIONED')"  # no views
_TABLES = (
    "select table_schema, table_name, table_rows, unix_timestamp(create_time) from information_schema.tables "
    f"where {_REAL} order by 1, 2"
)


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


def inspected(cursor: Any) -> MySqlServer:
    """The server behind a cursor; UsageError with everything that has to be set differently."""
    cursor.execute(_QUESTION)
    found = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
    if found.get("log_bin", "OFF").upper() not in ("ON", "1"):
        raise UsageError(
            "The server writes no binlog. Start it with --log-bin --binlog-format=ROW "
            "--binlog-row-metadata=FULL --server-id=1."
        )
    wrong = [
        f"{name} is {found[name] or 'empty'} and must be {right[0] or 'empty'}"
        for name, right in _RIGHT.items()
        if name in found and found[name].upper() not in right
    ]
    if wrong:
        raise UsageError(
            f"The server's binlog cannot be read exactly: {'; '.join(wrong)}. SET GLOBAL them so, and start again."
        )
    version = found.get("version", "")
    maria = "mariadb" in version.lower()
    place = found.get("gtid_binlog_pos" if maria else "gtid_executed", "").replace("\n", "")
    named, lowers = found.get("binlog_row_metadata", "").upper() == "FULL", found.get("lower_case_table_names") == "1"
    known = f"{place},{found.get('gtid_current_pos', '')}".strip(",")
    return MySqlServer(maria, version, place, known, named, lowers)


def oldest(cursor: Any) -> str:
    """Where the oldest binlog begins: a server that has thrown binlogs away refuses whoever asks for all of them."""
    server = inspected(cursor)
    if not server.maria:
        cursor.execute("select @@global.gtid_purged")
        return str(cursor.fetchall()[0][0]).replace("\n", "")
    cursor.execute("show binary logs")
    cursor.execute("select binlog_gtid_pos(%s, 4)", (cursor.fetchall()[0][0],))
    return str(cursor.fetchall()[0][0] or "")


def older(cursor: Any, wanted: Callable[[str, str], bool], began: int | None) -> list[OlderRows]:
    """Wanted tables with rows that may be older than the log, which began in the second `began`; None: some of it is gone.

    A table that was made later has all its rows in the log, unless ALTER TABLE made it anew: of that there is no trace.
    """
    cursor.execute(_TABLES)
    found = []
    for database, table, estimate, created in cursor.fetchall():
        if wanted(database, table) and (began is None or (created is not None and created < began)):
            names = ".".join(f"`{name.replace('`', '``')}`" for name in (database, table))
            cursor.execute(f"select count(*) from (select 1 from {names} limit {COUNTED + 1}) as counted")
            found.append(sized(f"{database}.{table}", cursor.fetchall()[0][0], int(estimate or 0)))
    return [each for each in found if each.rows]


def tables(cursor: Any) -> list[tuple[str, str]]:
    """Database and name of each table that this user may see; each database with "" too, as `shop.*` may have no table."""
    cursor.execute(
        "select schema_name, '' from information_schema.schemata union all "
        f"select table_schema, table_name from information_schema.tables where {_REAL}"
    )
    return [(str(database), str(table)) for database, table in cursor.fetchall()]


def unseen(cursor: Any, wanted: Callable[[str, str], bool]) -> list[str]:
    """Tables whose rows change with those they refer to (ON DELETE CASCADE): of that the binlog has nothing."""
    cursor.execute(
        "select distinct constraint_schema, table_name from information_schema.referential_constraints "
        "where delete_rule in ('CASCADE', 'SET NULL') or update_rule in ('CASCADE', 'SET NULL') order by 1, 2"
    )
    return [f"{database}.{table}" for database, table in cursor.fetchall() if wanted(database, table)]
